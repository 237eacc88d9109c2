#!/usr/bin/env bash
# `make install` into an empty directory: an example compiles against what is there and nothing else, by
# pkg-config, with the shared library and with the archive, in C and C++; the library exports the functions of
# its header and no other.
source "$(dirname "$0")/lib.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
command -v pkg-config > /dev/null || { echo "SKIP: no pkg-config"; exit 77; }
BUILD=$(cd "$BUILD" && pwd)
[[ -f $BUILD/libpando.a ]] || { echo "SKIP: $BUILD/libpando.a is not built"; exit 77; }

# As `make install PREFIX=/opt/pando DESTDIR=...` does it, without building again.
PREFIX_DIR=/opt/pando
cp "$BUILD/CMakeCache.txt" "$DIR/cache"
cmake -DCMAKE_INSTALL_PREFIX=$PREFIX_DIR -S "$ROOT" -B "$BUILD" > /dev/null
DESTDIR=$DIR/root cmake --install "$BUILD" > "$DIR/install.out" || fail "$(cat "$DIR/install.out")"
grep '^CMAKE_INSTALL_PREFIX' "$DIR/cache" | sed 's/.*=//' |
    xargs -I{} cmake -DCMAKE_INSTALL_PREFIX={} -S "$ROOT" -B "$BUILD" > /dev/null

AT=$DIR/root$PREFIX_DIR
PC=$(find "$AT" -name pando.pc)
LIB=$(dirname "$(dirname "$PC")")
for file in "$AT/bin/pando" "$AT/include/pando/pando.h" "$LIB/libpando.so" "$LIB/libpando.so.0" \
    "$LIB/libpando.a"; do
    [[ -e $file ]] || fail "not installed: ${file#"$DIR/root"}"
done
[[ $(find "$AT/include" -name '*.h' | wc -l) == 1 ]] || fail "more than one header is installed"
readelf -d "$LIB/libpando.so" | grep -q 'SONAME.*\[libpando.so.0\]' || fail "no SONAME libpando.so.0"
readelf -W -l "$LIB/libpando.so" | grep -q 'GNU_STACK.*RWE' && fail "an executable stack"

# The header's functions, the version script's and the library's are the same.
sed 's,//.*,,' "$AT/include/pando/pando.h" | tr '\n' ' ' | sed 's,/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/,,g' |
    grep -o 'PANDO_API[^;]*;' | grep -o 'pando_[a-z_]*(' | tr -d '(' | grep -v '_fn$' | sort -u > "$DIR/declared"
nm -D --defined-only "$LIB/libpando.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' |
    sort > "$DIR/exported"
diff "$DIR/declared" "$DIR/exported" > "$DIR/diff" || fail "declared and exported differ: $(cat "$DIR/diff")"
[[ $(wc -l < "$DIR/exported") -gt 40 ]] || fail "few functions are exported"
nm -g --defined-only "$LIB/libpando.a" | awk 'NF == 3 { print $3 }' | sort > "$DIR/archived"
diff "$DIR/declared" "$DIR/archived" > "$DIR/diff" || fail "the archive's symbols: $(cat "$DIR/diff")"
nm -D --defined-only "$LIB/libpando.so" | grep -q 'pando_get@@PANDO_0' || fail "symbols have no version"

export PKG_CONFIG_PATH=$LIB/pkgconfig PKG_CONFIG_SYSROOT_DIR=$DIR/root
FLAGS=$(pkg-config --cflags --libs pando)
STATIC="$(pkg-config --cflags pando) $LIB/libpando.a $(pkg-config --static --libs-only-l pando | sed 's/-lpando//')"
for name in embedded prefix; do
    # shellcheck disable=SC2086
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror -o "$DIR/$name" "$ROOT/examples/$name.c" $FLAGS ||
        fail "$name does not compile against the installed copy"
    LD_LIBRARY_PATH=$LIB run "$DIR/$name"
    [[ $RC == 0 ]] || fail "$name: exit $RC: $ERR"
    SHARED=$OUT
    # shellcheck disable=SC2086
    cc -std=c11 -Wall -Wextra -Werror -o "$DIR/$name-static" "$ROOT/examples/$name.c" $STATIC -pthread ||
        fail "$name does not link with the archive"
    run "$DIR/$name-static"
    [[ $RC == 0 && $OUT == "$SHARED" ]] || fail "$name, static: exit $RC: $ERR"
done
for standard in c++11 c++17 c++20; do
    # shellcheck disable=SC2086
    c++ -std=$standard -Wall -Wextra -Wpedantic -Werror -o "$DIR/cplusplus" \
        "$ROOT/tests/library/cplusplus.cc" $FLAGS || fail "the header in $standard"
done
LD_LIBRARY_PATH=$LIB run "$DIR/cplusplus"
[[ $RC == 0 ]] || fail "C++: exit $RC: $ERR"
run "$AT/bin/pando" --version
[[ $RC == 0 ]] || fail "the installed program: exit $RC: $ERR"
echo "$(wc -l < "$DIR/exported") functions; shared, static, C and C++"
