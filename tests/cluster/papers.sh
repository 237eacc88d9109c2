#!/usr/bin/env bash
# The scripts that repeat the papers' experiments still work: all of both papers', with next to no records.
source "$(dirname "$0")/lib.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)

# papers NAME TITLE...: the page of that paper has these.
papers() {
    local name=$1 title
    shift
    RUN_SECONDS=120 run "$ROOT/scripts/papers" "$name" --tiny --pando "$PANDO" --out "$DIR/out" --work "$DIR/work"
    [[ $RC == 0 ]] || fail "$name: exit status $RC: $OUT $ERR"
    for title in "$@"; do
        grep -q "^## $title" "$DIR/out/$name.md" || fail "no $title in the page of $name"
    done
}

papers dex "Table 2" "Figure 6" "Figure 7" "Figure 8" "Figure 9" "Figure 10" "Figure 11" "Figure 12"
grep -q "^| DEX (RO) |.*(333.9)" "$DIR/out/dex.md" || fail "Table 2 has no row of DEX"
papers sherman "Table 1" "Figure 10(a)" "Figure 10(b)" "Figure 10(c)" "Figure 11" "Figure 12" "Figure 13" "Figure 14" \
    "Figure 15(a, b)" "Figure 15(c)" "Figure 2" "Figure 16"
grep -q "^| writes of 4 round trips | 94 %, - | 9[0-9.]* % |" "$DIR/out/sherman.md" || fail "FG+ does not write in 4 round trips"
run "$ROOT/scripts/papers" frobnicate
[[ $RC == 1 ]] && grep -q "there is no 'frobnicate'" <<< "$ERR" || fail "an unknown paper: $RC: $ERR"
echo "papers: ok"
