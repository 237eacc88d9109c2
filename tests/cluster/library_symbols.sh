#!/usr/bin/env bash
# Nothing of the laboratory (src/check, src/bench) is in libpando.so: no function or variable that the objects
# of these rooms export is in its full table of symbols. The program has them, or this looks for nothing.
source "$(dirname "$0")/lib.sh"

command -v nm > /dev/null || { echo "SKIP: no nm; install binutils"; exit 77; }

LIBRARY=$(readlink -f "$BUILD/libpando.so")
LABORATORY=$(find "$BUILD/CMakeFiles/pando_check.dir" "$BUILD/CMakeFiles/pando_bench.dir" -name '*.o')
[[ $LABORATORY ]] || fail "no objects of src/check and src/bench in $BUILD"

# Names as the sources have them: optimising a program as a whole puts words behind them.
names() {
    sed 's/.* //; s/[.].*//' | sort -u
}

# shellcheck disable=SC2086 # one word for each object
nm --defined-only --extern-only $LABORATORY | grep -E '^[0-9a-f]+ ' | names > "$DIR/laboratory"
for file in "$PANDO" "$LIBRARY"; do
    nm --defined-only "$file" | names > "$DIR/$(basename "$file")"
done
[[ $(grep -Ec "^(store|dex|sherman|pool)_" "$DIR/$(basename "$LIBRARY")") -ge 50 ]] || fail "$LIBRARY is stripped: nm shows next to nothing"
comm -12 "$DIR/laboratory" "$DIR/$(basename "$PANDO")" > "$DIR/program-has"
comm -12 "$DIR/laboratory" "$DIR/$(basename "$LIBRARY")" > "$DIR/library-has"
[[ $(wc -l < "$DIR/program-has") -ge 20 ]] || fail "the program has next to nothing of $(wc -l < "$DIR/laboratory") names"
[[ ! -s $DIR/library-has ]] ||
    fail "libpando.so has $(wc -l < "$DIR/library-has") names of src/check and src/bench: $(head -5 "$DIR/library-has" | xargs)"
echo "library_symbols: $(wc -l < "$DIR/laboratory") names of the laboratory, none in libpando.so"
