#!/usr/bin/env bash
# Whatever is wrong gives one clear line and an exit status; nothing hangs, and a memory node that has
# seen all of it still serves.
source "$(dirname "$0")/lib.sh"

# expect STATUS PATTERN COMMAND...: that exit status, and one line on stderr that matches.
expect() {
    local status=$1 pattern=$2
    shift 2
    run "$@"
    [[ $RC == $status ]] || fail "exit status $RC, not $status: $* ($ERR)"
    [[ $(wc -l < "$DIR/run.err") == 1 ]] || fail "not one line: $*: $ERR"
    grep -Eq -- "$pattern" <<< "$ERR" || fail "no '$pattern' from: $*: $ERR"
}

still_serves() {
    run "$PANDO" shell --pool "tcp:$ADDRESS" --secret-file "$SECRET" -c 'read 0x3000000'
    [[ $RC == 0 ]] || fail "the memory node no longer serves after: $1: $ERR"
    grep -q '  4242$' <<< "$OUT" || fail "the memory node lost a word after: $1: $OUT"
}

start_memory node --listen 127.0.0.1:0 --size 64M --secret-file "$SECRET"
NODE=$PID
CLIENT=(--pool "tcp:$ADDRESS" --secret-file "$SECRET")
run "$PANDO" shell "${CLIENT[@]}" -c 'write 0x3000000 4242'
[[ $RC == 0 ]] || fail "writing: $ERR"

# --- the command line ---
run "$PANDO"
[[ $RC == 2 ]] || fail "no command: exit status $RC"
expect 2 "no such command; did you mean shell" "$PANDO" shel
expect 2 "no such command" "$PANDO" frobnicate
for command in memory status shell fabric-bench serve; do
    run "$PANDO" "$command" --help
    [[ $RC == 0 ]] || fail "$command --help: exit status $RC"
    grep -q "Example:" <<< "$OUT" || fail "$command --help has no example"
    expect 2 "frobnicate" "$PANDO" "$command" --frobnicate
done
expect 2 "neither pool nor none" "$PANDO" serve --pool embedded:64M --durability perhaps
expect 2 "did you mean --listen" "$PANDO" memory --lisen 127.0.0.1:0
expect 2 "listen HOST:PORT, --shm NAME" "$PANDO" memory
expect 2 "'lots' is not a size" "$PANDO" memory --shm "$PREFIX" --size lots
expect 2 "too small; a memory node needs at least" "$PANDO" memory --shm "$PREFIX" --size 1K
expect 2 "too large|is more than" "$PANDO" memory --shm "$PREFIX" --size 1000T
expect 2 "is more than" "$PANDO" memory --listen 127.0.0.1:0 --size 100T --secret-file "$SECRET"
expect 2 "not host:port" "$PANDO" memory --listen nowhere --secret-file "$SECRET"
expect 2 "not a name" "$PANDO" memory --shm 'a b'
expect 2 "belong together" "$PANDO" memory --listen 127.0.0.1:0 --tls-cert x --secret-file "$SECRET"
expect 2 "--pool: is required" "$PANDO" shell
expect 2 "not a pool's name" "$PANDO" shell --pool nonsense
expect 2 "not host:port" "$PANDO" status --pool tcp:nowhere
expect 2 "'127.0.0.1:70000' has a port over 65535" "$PANDO" status --pool tcp:127.0.0.1:70000
expect 2 "listen: '127.0.0.1:65536' has a port over 65535" "$PANDO" memory --listen 127.0.0.1:65536 --secret-file "$SECRET"
expect 1 "cannot find host 'no-such-host.invalid': .*check the name" \
    "$PANDO" status --pool tcp:no-such-host.invalid:7000 --secret-file "$SECRET"
expect 1 "cannot find host 'no-such-host.invalid': .*check the name" \
    "$PANDO" table list --pool tcp:no-such-host.invalid:7000 --secret-file "$SECRET"
expect 2 "too small" "$PANDO" shell --pool embedded:1K
expect 2 "is no operation" "$PANDO" fabric-bench --pool embedded:64M --op increment
expect 2 "not from 1 to 16384" "$PANDO" fabric-bench --pool embedded:64M --depth 0
expect 2 "add --force" "$PANDO" fabric-bench "${CLIENT[@]}" --op write
expect 2 "nothing lies beneath" "$PANDO" fabric-bench --pool sim:seed=1 --raw
expect 2 "is no level" "$PANDO" status --pool embedded:64M --log-level loud

# --- ports, names, permissions, versions ---
expect 1 "port in use" "$PANDO" memory --listen "$ADDRESS" --size 64M --secret-file "$SECRET"
expect 1 "cannot listen|cannot find host" \
    "$PANDO" memory --listen 203.0.113.1:7000 --size 64M --secret-file "$SECRET"
start_memory shm --shm "$PREFIX-a" --size 64M
expect 1 "another memory node serves it" "$PANDO" memory --shm "$PREFIX-a" --size 64M
expect 1 "no memory node answers" "$PANDO" shell --pool "shm:$PREFIX-none" -c 'read 0x3000000'
if [[ $(id -u) == 0 ]] && command -v setpriv > /dev/null && id nobody > /dev/null 2>&1; then
    cp "$PANDO" "$DIR/pando"
    chmod 755 "$DIR" "$DIR/pando"
    AS_NOBODY=(setpriv --reuid nobody --clear-groups)
    expect 1 "no permission" "${AS_NOBODY[@]}" "$DIR/pando" shell --pool "shm:$PREFIX-a" -c 'read 0x3000000'
    kill -TERM "$PID"
    wait "$PID" || true
    expect 1 "[Pp]ermission denied" "${AS_NOBODY[@]}" "$DIR/pando" memory --shm "$PREFIX-a" --size 64M
    expect 1 "[Pp]ermission denied" "${AS_NOBODY[@]}" "$DIR/pando" shell --pool "tcp:$ADDRESS" \
        --secret-file "$SECRET" -c 'read 0x3000000'
else
    echo "not root: the checks of permissions are left out"
    kill -TERM "$PID"
    wait "$PID" || true
fi
expect 1 "give the same --node and --size" "$PANDO" memory --shm "$PREFIX-a" --size 128M
expect 1 "give the same --node and --size" "$PANDO" memory --shm "$PREFIX-a" --size 64M --node 1
FILE=$(find /dev/shm /dev/hugepages -maxdepth 1 -name "pando-$PREFIX-a" 2> /dev/null | head -1) || true
[[ -n $FILE ]] || fail "the window's file is not where it should be"
# The window's own version (at 8), then the pool's (behind the magic of its superblock, at 0x8000).
printf '\x02' | dd of="$FILE" bs=1 seek=8 conv=notrunc status=none
expect 1 "format version 2, this program has 3; .*contents are untouched: dump .*pando dump.* load " "$PANDO" memory --shm "$PREFIX-a" --size 64M
printf '\x03' | dd of="$FILE" bs=1 seek=8 conv=notrunc status=none
printf '\x63' | dd of="$FILE" bs=1 seek=$((0x8000 + 8)) conv=notrunc status=none
expect 1 "version.*contents are untouched: dump .*pando dump.* load " "$PANDO" memory --shm "$PREFIX-a" --size 64M

# --- secrets ---
(umask 077 && head -c 32 /dev/urandom | base64 > "$DIR/other" && echo short > "$DIR/short")
cp "$SECRET" "$DIR/public" && chmod 644 "$DIR/public"
for command in "shell -c help" status "fabric-bench --seconds 0.1"; do
    # shellcheck disable=SC2086
    expect 1 "wrong secret: it does not know the one of --secret-file" \
        "$PANDO" $command --pool "tcp:$ADDRESS" --secret-file "$DIR/other"
done
expect 1 "others may read it" "$PANDO" shell --pool "tcp:$ADDRESS" --secret-file "$DIR/public"
expect 1 "others may read it" \
    "$PANDO" memory --listen 127.0.0.1:0 --size 64M --secret-file "$DIR/public"
expect 1 "No such file" "$PANDO" status --pool "tcp:$ADDRESS" --secret-file "$DIR/none"
expect '[12]' "shorter than 16 bytes" "$PANDO" status --pool "tcp:$ADDRESS" --secret-file "$DIR/short"
expect 2 "tcp needs --secret-file" "$PANDO" status --pool "tcp:$ADDRESS"
still_serves "wrong secrets"

# --- addresses ---
expect 1 "outside the window" "$PANDO" shell "${CLIENT[@]}" -c 'read 0x4000000'
expect 1 "outside the window" "$PANDO" shell "${CLIENT[@]}" -c 'write 0 1'
expect 1 "outside the window" "$PANDO" shell "${CLIENT[@]}" -c 'read 0x3fffffc'
expect 1 "outside the window" "$PANDO" shell "${CLIENT[@]}" -c 'read 0xffffffffffffffff'
expect 1 "not a multiple of 8" "$PANDO" shell "${CLIENT[@]}" -c 'cas 0x3000004 1 2'
expect 1 "not a multiple of 8" "$PANDO" shell "${CLIENT[@]}" -c 'faa 0x3000001 1'
expect 1 "no such command" "$PANDO" shell "${CLIENT[@]}" -c 'frobnicate'
expect 1 "not a 64-bit number" "$PANDO" shell "${CLIENT[@]}" -c 'read five'
expect 1 "write it as: cas OFFSET EXPECTED NEW" "$PANDO" shell "${CLIENT[@]}" -c 'cas 1 2'
still_serves "bad addresses"

# --- strangers at the port ---
HOST=${ADDRESS%:*}
PORT=${ADDRESS##*:}
for size in 1 7 64 5000; do
    timeout 10 bash -c "head -c $size /dev/urandom > /dev/tcp/$HOST/$PORT" 2> /dev/null || true
done
timeout 10 bash -c "printf 'GET / HTTP/1.0\r\n\r\n' > /dev/tcp/$HOST/$PORT" 2> /dev/null || true
still_serves "garbage"

# One that begins a frame and goes no further, while another client works.
exec 5<> "/dev/tcp/$HOST/$PORT"
printf '\x30\x00\x00\x00\x01' >&5
run "$PANDO" fabric-bench "${CLIENT[@]}" --seconds 0.5
[[ $RC == 0 ]] || fail "a stranger who stopped half-way disturbs others: $ERR"
still_serves "half a frame"
exec 5>&-

# A client that is stopped in the middle of its work.
start stuck "$PANDO" fabric-bench "${CLIENT[@]}" --seconds 60 --size 64K
sleep 0.5
kill -STOP "$PID"
run "$PANDO" fabric-bench "${CLIENT[@]}" --seconds 0.5
[[ $RC == 0 ]] || fail "a stopped client disturbs others: $ERR"
still_serves "a stopped client"
kill -KILL "$PID"

# --- the memory node goes away under a benchmark ---
start bench "$PANDO" fabric-bench "${CLIENT[@]}" --seconds 60
BENCH=$PID
sleep 0.5
kill -0 "$NODE" || fail "the memory node has died"
kill -KILL "$NODE"
for _ in $(seq 100); do
    kill -0 "$BENCH" 2> /dev/null || break
    sleep 0.1
done
kill -0 "$BENCH" 2> /dev/null && fail "fabric-bench hangs when the memory node is gone"
RC=0
wait "$BENCH" || RC=$?
[[ $RC == 1 ]] || fail "fabric-bench, memory node gone: exit status $RC"
[[ $(wc -l < "$DIR/bench.err") == 1 ]] || fail "not one line: $(cat "$DIR/bench.err")"
expect 1 "no memory node answers" "$PANDO" shell "${CLIENT[@]}" -c 'read 0x3000000'
expect 1 "no memory node answers" "$PANDO" status "${CLIENT[@]}"
expect 1 "no memory node answers" "$PANDO" fabric-bench "${CLIENT[@]}"
echo "bad_input: ok"
