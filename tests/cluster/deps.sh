#!/usr/bin/env bash
# What `make run` and `make test` install: it is said package by package while it happens, and `make run` brings
# the redis-cli that it tells people to use. apt-get is one that only talks.
source "$(dirname "$0")/lib.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
mkdir "$DIR/scripts" "$DIR/bin"
cp "$ROOT/scripts/deps" "$DIR/scripts"
for tool in bash cat dirname env grep mkdir sed tail; do
    ln -s "$(command -v "$tool")" "$DIR/bin"
done
cat > "$DIR/bin/apt-get" << 'END'
#!/usr/bin/env bash
echo "$*" >> "$APT_CALLS"
[[ $* == *install* ]] || exit 0
cat << 'SAID'
Reading package lists...
1 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://mirror.example/debian bookworm/main amd64 cmake amd64 3.25.1-1 [8692 kB]
Selecting previously unselected package cmake.
Unpacking cmake (3.25.1-1) ...
Setting up libuv1:amd64 (1.44.2-1) ...
Setting up cmake (3.25.1-1) ...
SAID
exit "${APT_EXIT:-0}"
END
printf '#!/usr/bin/env bash\n' > "$DIR/bin/dpkg-query"
printf '#!/usr/bin/env bash\necho 0\n' > "$DIR/bin/id"
chmod +x "$DIR"/bin/apt-get "$DIR"/bin/dpkg-query "$DIR"/bin/id
export APT_CALLS=$DIR/calls
deps() {
    : > "$APT_CALLS"
    run env PATH="$DIR/bin" "$DIR/bin/bash" "$DIR/scripts/deps" "$@"
}

deps run
[[ $RC == 0 ]] || fail "deps run: exit $RC: $ERR"
grep -q 'install .*redis-tools' "$APT_CALLS" || fail "make run does not bring redis-cli: $(cat "$APT_CALLS")"
grep -q 'install .*cmake' "$APT_CALLS" || fail "make run does not bring what builds it: $(cat "$APT_CALLS")"
[[ $(grep -c update "$APT_CALLS") == 1 ]] || fail "asks for the lists more than once: $(cat "$APT_CALLS")"
grep -qx '  2 of 2: cmake' <<< "$OUT" || fail "no line for a package: $OUT"
grep -q 'Get:1 .*cmake' "$DIR/build/deps.log" || fail "the log has not all of it"
deps build
! grep -q redis "$APT_CALLS" || fail "make wants a Redis client: $(cat "$APT_CALLS")"
APT_EXIT=100 deps build
[[ $RC == 1 && $ERR == *"could not install"*"by hand"* ]] || fail "a failure: exit $RC: $ERR"
# A server runs without a client to try it with.
printf '#!/usr/bin/env bash\n[[ $* == *install*redis* ]] && exit 100\nexit 0\n' > "$DIR/bin/apt-get"
deps run
[[ $RC == 0 && $ERR == *"going on without redis-tools"* ]] || fail "without redis-cli: exit $RC: $ERR"
echo "deps: ok"
