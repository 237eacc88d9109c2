#!/usr/bin/env bash
# No message and no page advises what destroys data, or what cannot be done: a pool's memory nodes are decided
# when it is made.
source "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.."

BAD='(remove|delete|unlink) (the|that|this|its) (file|window)|rm -f|file to start empty|add (more )?memory'
BAD+='|add a memory node|more memory to it|give it more memory'
FOUND=$(grep -aoiE "[[:print:]]{0,60}($BAD)[[:print:]]{0,40}" "$PANDO" || true)
[[ -z $FOUND ]] || fail "the program says: $FOUND"
FOUND=$(grep -niE "$BAD" README.md docs/*.md include/pando/pando.h contrib/etc/* || true)
[[ -z $FOUND ]] || fail "the documentation says: $FOUND"
[[ -n $(grep -aoE 'the pool is full: delete keys' "$PANDO") ]] || fail "texts of the program are not found: nothing was tested"
echo "messages: ok"
