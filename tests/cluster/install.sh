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
ARCHIVE="$(pkg-config --cflags pando) $LIB/libpando.a $(pkg-config --static --libs-only-l pando | sed 's/-lpando//')"
[[ $(pkg-config --variable=archive pando) == *"$PREFIX_DIR"/lib*/libpando.a ]] || fail "pando.pc does not name the archive"
for name in embedded prefix; do
    # shellcheck disable=SC2086
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror -o "$DIR/$name" "$ROOT/examples/$name.c" $FLAGS ||
        fail "$name does not compile against the installed copy"
    LD_LIBRARY_PATH=$LIB run "$DIR/$name"
    [[ $RC == 0 ]] || fail "$name: exit $RC: $ERR"
    SHARED=$OUT
    # shellcheck disable=SC2086
    cc -std=c11 -Wall -Wextra -Werror -o "$DIR/$name-static" "$ROOT/examples/$name.c" $ARCHIVE -pthread ||
        fail "$name does not link with the archive"
    run "$DIR/$name-static"
    [[ $RC == 0 && $OUT == "$SHARED" ]] || fail "$name, static: exit $RC: $ERR"
    # All of it static, as the README says; that name look-ups want the C library's shared parts is a warning.
    # shellcheck disable=SC2046
    cc -static -o "$DIR/$name-alone" "$ROOT/examples/$name.c" $(pkg-config --static --cflags --libs pando) \
        2> "$DIR/link.err" || fail "$name does not link statically: $(cat "$DIR/link.err")"
    ! readelf -d "$DIR/$name-alone" | grep -q NEEDED || fail "$name, linked with -static, needs shared libraries"
    run "$DIR/$name-alone"
    [[ $RC == 0 && $OUT == "$SHARED" ]] || fail "$name, alone: exit $RC: $ERR"
done
for standard in c++11 c++17 c++20; do
    # shellcheck disable=SC2086
    c++ -std=$standard -Wall -Wextra -Wpedantic -Werror -o "$DIR/cplusplus" \
        "$ROOT/tests/library/cplusplus.cc" $FLAGS || fail "the header in $standard"
done
LD_LIBRARY_PATH=$LIB run "$DIR/cplusplus"
[[ $RC == 0 ]] || fail "C++: exit $RC: $ERR"

# --- where the loader finds it ---
# Below DESTDIR nothing is said or done; where the loader does not look, it is said what to do.
DESTDIR=$DIR/root run "$ROOT/scripts/after-install" "$LIB"
[[ $RC == 0 && -z $OUT$ERR ]] || fail "below DESTDIR: $RC: $OUT$ERR"
! grep -q 'The loader does not look' "$DIR/install.out" || fail "says something of the loader below DESTDIR"
# /usr/local and /etc of its own, if the kernel gives us one: as on a machine that has never seen the library.
AS_ROOT=()
[[ $(id -u) == 0 ]] || AS_ROOT=(--map-root-user)
ALONE=(unshare "${AS_ROOT[@]}" --mount)
mkdir "$DIR/local" "$DIR/etc"
cp -a /etc/. "$DIR/etc" 2> /dev/null || true
cat > "$DIR/inside" << 'END'
set -e
mount --bind "$1/local" /usr/local
mount --bind "$1/etc" /etc
unset LD_LIBRARY_PATH PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR DESTDIR
cmake --install "$2" --prefix /usr/local
PKG_CONFIG_PATH=/usr/local/lib/pkgconfig
export PKG_CONFIG_PATH
cc "$3/examples/embedded.c" $(pkg-config --cflags --libs pando) -o "$1/embedded-installed"
"$1/embedded-installed"
# Elsewhere it stays the user's business, and is said.
cmake --install "$2" --prefix "$1/elsewhere" > "$1/elsewhere.out"
END
if [[ $(sed -n 's/^CMAKE_INSTALL_PREFIX:[A-Z]*=//p' "$DIR/cache") == /usr/local ]] &&
    "${ALONE[@]}" mount --bind "$DIR/etc" /etc 2> /dev/null; then
    RUN_SECONDS=60 run "${ALONE[@]}" bash "$DIR/inside" "$DIR" "$BUILD" "$ROOT"
    [[ $RC == 0 && $OUT == *venus* ]] || fail "on a machine that is new to it: exit $RC: $OUT $ERR"
    grep -q "LD_LIBRARY_PATH=$DIR/elsewhere/lib" "$DIR/elsewhere.out" ||
        fail "nothing said of $DIR/elsewhere: $(cat "$DIR/elsewhere.out")"
    LOADER=", found by the loader"
else
    LOADER=", not checked with the loader (no mount namespaces here)"
fi
run "$AT/bin/pando" --version
[[ $RC == 0 ]] || fail "the installed program: exit $RC: $ERR"
echo "$(wc -l < "$DIR/exported") functions; shared, static, C and C++$LOADER"
