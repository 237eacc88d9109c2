#!/usr/bin/env bash
# A table is dropped while other processes use it; the dropper is killed with -9 at all kinds of moments, and
# whoever is left finishes. The name can be used again at once, and the memory comes back.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_store_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

start_pool
client() {
    timeout -k 1 60 "$CLIENT" "$POOL" "$SECRET" "$@"
}

# Stays for the whole test: it finishes what others leave.
client create other
start keeper "$CLIENT" "$POOL" "$SECRET" use other
KEEPER=$PID

# An operation of another process that is under way is waited for.
client create slow
start holder "$CLIENT" "$POOL" "$SECRET" hold slow
wait_for holding "$DIR/holder.out"
client drop slow
grep -q held "$DIR/holder.out" || fail "dropped and freed under an operation of another process"
wait "$PID" || fail "the holder: $(cat "$DIR/holder.err")"

client create t
client fill t 20000
FREE=$(client free)
ROUNDS=9
for round in $(seq "$ROUNDS"); do
    USERS=()
    for user in 1 2; do
        start "user$user" "$CLIENT" "$POOL" "$SECRET" use t
        USERS+=("$PID")
        wait_for using "$DIR/user$user.out"
    done
    case $((round % 3)) in
    0) client drop t || fail "round $round: drop" ;;
    1)
        # Somewhere between joining and having freed it: 0 to 0.9 seconds.
        start dropper "$CLIENT" "$POOL" "$SECRET" drop t
        sleep "0.$((round * 7 % 10))$round"
        kill -KILL "$PID" 2>/dev/null || true
        wait "$PID" 2>/dev/null || true
        client drop t 2> /dev/null || true # if it was killed before it had begun
        ;;
    2) client mark t > /dev/null 2>&1 && fail "round $round: the marker lives" ;;
    esac
    client create t || fail "round $round: the name cannot be used again"
    for pid in "${USERS[@]}"; do
        wait "$pid" || fail "round $round: a user of the dropped table: $(cat "$DIR"/user*.err)"
    done
    client fill t 20000 || fail "round $round: fill"
done
kill -0 "$KEEPER" 2>/dev/null || fail "the process that stays ended: $(cat "$DIR/keeper.err")"

# Dead members are recovered, their marks taken over, and freed blocks wait for their grace period. 10 tables
# of this size have been filled: what is lost shows.
for _ in $(seq 60); do
    LEFT=$(client free)
    [[ $LEFT -ge $((FREE - 10)) ]] && break
    sleep 0.5
done
[[ $LEFT -ge $((FREE - 10)) ]] || fail "memory is lost: $FREE chunks were free, now $LEFT"
client drop other || fail "drop other"
wait "$KEEPER" || fail "the process that stays: $(cat "$DIR/keeper.err")"
echo "$ROUNDS rounds, $FREE chunks free before, $LEFT after"
