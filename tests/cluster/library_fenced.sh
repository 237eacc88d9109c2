#!/usr/bin/env bash
# Two applications of the C library share a pool. One is stopped for several leases, while it works and while it
# is idle, and so declared dead: its threads and its queue go on in a new life, and it reads all it was told is
# stored.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_library_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

start_memory memory --listen 127.0.0.1:0 --size 512M --secret-file "$SECRET"
POOL=tcp:$ADDRESS
start other "$CLIENT" "$POOL" "$SECRET" 26
OTHER=$PID
start stopped "$CLIENT" "$POOL" "$SECRET" 9 8
STOPPED=$PID
wait_for running "$DIR/stopped.out"
for pause in 2 5; do # at work, then idle
    sleep "$pause"
    stop_until_dead "$STOPPED" 4 "$DIR/other.err"
done
RC=0
wait "$STOPPED" || RC=$?
[[ $RC == 0 ]] || fail "exit $RC: $(tail -n 5 "$DIR/stopped.err") $(cat "$DIR/stopped.out")"
[[ $(grep -c 'joined the pool again' "$DIR/stopped.err") -ge 2 ]] ||
    fail "it did not join again twice: $(cat "$DIR/stopped.err")"
wait "$OTHER" || fail "the other one: $(tail -n 5 "$DIR/other.err") $(cat "$DIR/other.out")"
cat "$DIR/stopped.out"
