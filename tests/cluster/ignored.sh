#!/usr/bin/env bash
# git does not offer to commit a secret or a dump that somebody made in the checkout.
source "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.."
git rev-parse --is-inside-work-tree > /dev/null 2>&1 || { echo "SKIP: not a git checkout"; exit 77; }
for name in pando.secret new.secret docs/pool.secret server.password users.dump docs/users.dump build/pando; do
    git check-ignore -q "$name" || fail "git does not ignore $name"
done
[[ -z $(git ls-files -ci --exclude-standard) ]] || fail "ignored, and a part of the project: $(git ls-files -ci --exclude-standard)"
echo "ignored: ok"
