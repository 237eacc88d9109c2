#!/usr/bin/env bash
# A memory node that is killed and started again on the same name has what was written before; its
# clients get errors meanwhile, and connect again.
source "$(dirname "$0")/lib.sh"

free_port() {
    PYTHONPATH=$(dirname "$0")/../clients python3 -c 'import lib; print(lib.free_port())'
}

# --- over tcp, on a named window ---
PORT=$(free_port)
NODE=(--listen "127.0.0.1:$PORT" --shm "$PREFIX" --size 64M --secret-file "$SECRET")
CLIENT=(--pool "tcp:127.0.0.1:$PORT" --secret-file "$SECRET")

start_memory first "${NODE[@]}"
FIRST=$PID
grep -q ', new$' "$DIR/first.out" || fail "a new window is not said to be new"
run "$PANDO" shell "${CLIENT[@]}" -c 'write 0x3000000 12345; faa 0x3000000 5; write 0x3f00000 0xfeed'
[[ $RC == 0 ]] || fail "writing: $ERR"

# A client that stays connected over the crash: its commands come through a pipe.
make_pipe "$DIR/commands" 3
start client "$PANDO" shell "${CLIENT[@]}" < "$DIR/commands"
CLIENT_PID=$PID
echo 'read 0x3000000' >&3
wait_for 12350 "$DIR/client.out"

kill -KILL "$FIRST"
wait "$FIRST" 2>/dev/null || true
echo 'read 0x3f00000' >&3
wait_for 'error: ' "$DIR/client.err"
[[ $(grep -c 'error: ' "$DIR/client.err") == 1 ]] || fail "more than one line: $(cat "$DIR/client.err")"
run "$PANDO" shell "${CLIENT[@]}" -c 'read 0x3000000'
[[ $RC == 1 ]] || fail "a memory node that is gone: exit status $RC"
grep -q 'no memory node answers' <<< "$ERR" || fail "a memory node that is gone: $ERR"

start_memory second "${NODE[@]}"
grep -q 'contents kept' "$DIR/second.out" || fail "the window was not kept: $(cat "$DIR/second.out")"
run "$PANDO" shell "${CLIENT[@]}" -c 'read 0x3000000; read 0x3f00000'
[[ $RC == 0 ]] || fail "reading after the restart: $ERR"
grep -q '  12350$' <<< "$OUT" || fail "the first word is lost: $OUT"
grep -q '000000000000feed' <<< "$OUT" || fail "the second word is lost: $OUT"

echo 'read 0x3f00000' >&3
wait_for feed "$DIR/client.out"
echo 'quit' >&3
exec 3>&-
wait "$CLIENT_PID" && fail "the client forgot its failed command" || true

# --- a graceful stop ---
kill -TERM "$PID"
RC=0
wait "$PID" || RC=$?
[[ $RC == 0 ]] || fail "SIGTERM: exit status $RC"
[[ ! -s $DIR/second.err ]] || fail "the node complained: $(cat "$DIR/second.err")"

# --- the same on shared memory ---
NODE=(--shm "$PREFIX-b" --size 64M)
start_memory third "${NODE[@]}"
run "$PANDO" shell --pool "shm:$PREFIX-b" -c 'write 0x3000000 77'
[[ $RC == 0 ]] || fail "shm, writing: $ERR"
kill -KILL "$PID"
wait "$PID" 2>/dev/null || true
run "$PANDO" shell --pool "shm:$PREFIX-b" -c 'read 0x3000000'
[[ $RC == 1 ]] || fail "shm, node gone: exit status $RC"
start_memory fourth "${NODE[@]}"
run "$PANDO" shell --pool "shm:$PREFIX-b" -c 'read 0x3000000'
[[ $RC == 0 ]] || fail "shm, reading after the restart: $ERR"
grep -q '  77$' <<< "$OUT" || fail "shm: the word is lost: $OUT"
run "$PANDO" status --pool "shm:$PREFIX-b"
[[ $RC == 0 ]] || fail "status: $ERR"
grep -q '1 of 1 memory nodes reached' <<< "$OUT" || fail "status: $OUT"
echo "memory_node: ok"
