#!/usr/bin/env bash
# An application of the C library while its memory nodes are killed and come back with their memory, one after
# the other: short outages it does not notice but for the time they take, a long one gives errors that say
# so; it goes on by itself, and nothing that it was told is stored is lost.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_library_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

memory() { # NODE ADDRESS
    start_memory "memory$1" --listen "$2" --shm "$PREFIX-$1" --node "$1" --size 256M --secret-file "$SECRET"
}
ADDRESSES=() PIDS=()
for node in 0 1; do
    memory "$node" 127.0.0.1:0
    ADDRESSES+=("$ADDRESS")
    PIDS+=("$PID")
done
POOL=tcp:${ADDRESSES[0]},${ADDRESSES[1]}

# Lasts until the client has met a failure. Without node 0, which holds the heartbeats, no operation succeeds once its
# lease is over; of another node it may need nothing for as long as it likes.
long() {
    for _ in $(seq 120); do
        grep -q '^met ' "$DIR/client.out" && return 0
        sleep 1
    done
    fail "it met no failure: $(cat "$DIR/client.out")"
}

start client "$CLIENT" "$POOL" "$SECRET" 300
CLIENT_PID=$PID
wait_for running "$DIR/client.out"
for outage in "1 sleep 2" "0 sleep 3" "1 sleep 12" "0 long"; do
    read -r node pause <<< "$outage"
    sleep 2
    kill -KILL "${PIDS[$node]}"
    wait "${PIDS[$node]}" 2>/dev/null || true
    $pause
    memory "$node" "${ADDRESSES[$node]}"
    PIDS[node]=$PID
done
sleep 4
kill -TERM "$CLIENT_PID"
RC=0
wait "$CLIENT_PID" || RC=$?
[[ $RC == 0 ]] || fail "exit $RC: $(tail -n 12 "$DIR/client.err") $(cat "$DIR/client.out")"
CHECKED=$(sed -n 's/ keys checked.*//p' "$DIR/client.out")
[[ $CHECKED -gt 5000 ]] || fail "few keys: $(cat "$DIR/client.out")"
cat "$DIR/client.out"
