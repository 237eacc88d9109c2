#!/usr/bin/env bash
# The scripts that repeat the papers' experiments still work: all of DEX's, with next to no records.
source "$(dirname "$0")/lib.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)

RUN_SECONDS=120 run "$ROOT/scripts/papers" dex --tiny --pando "$PANDO" --out "$DIR/out" --work "$DIR/work"
[[ $RC == 0 ]] || fail "exit status $RC: $OUT $ERR"
for title in "Table 2" "Figure 6" "Figure 7" "Figure 8" "Figure 9" "Figure 10" "Figure 11" "Figure 12"; do
    grep -q "^## $title" "$DIR/out/dex.md" || fail "no $title in the page"
done
grep -q "^| DEX (RO) |.*(333.9)" "$DIR/out/dex.md" || fail "Table 2 has no row of DEX"
run "$ROOT/scripts/papers" frobnicate
[[ $RC == 1 ]] && grep -q "there is no 'frobnicate'" <<< "$ERR" || fail "an unknown paper: $RC: $ERR"
echo "papers: ok"
