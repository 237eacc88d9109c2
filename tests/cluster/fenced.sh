#!/usr/bin/env bash
# A client on tcp is stopped for several leases, again and again, while another works: it is declared dead and
# recovered. When it goes on it joins again by itself; FENCED never comes out, and what either of them was
# told is stored is there.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_store_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

start_pool

"$CLIENT" "$POOL" "$SECRET" create test || fail "cannot create the table"
STORE_CLIENT_LOG=1 start even "$CLIENT" "$POOL" "$SECRET" write test 0 2
EVEN=$PID
STORE_CLIENT_LOG=1 start odd "$CLIENT" "$POOL" "$SECRET" write test 1 2
ODD=$PID
sleep 1
STOPS=(4 3 11) # seconds; the last is longer than a hung thread may take
for seconds in "${STOPS[@]}"; do
    stop_until_dead "$EVEN" "$seconds" "$DIR/odd.err"
    BEFORE=$(wc -l < "$DIR/even.out")
    for _ in $(seq 60); do
        sleep 0.5
        AFTER=$(wc -l < "$DIR/even.out")
        [[ $AFTER -gt $((BEFORE + 500)) ]] && break
    done
    kill -0 "$EVEN" 2>/dev/null || fail "the stopped client ended: $(tail -n 20 "$DIR/even.err")"
    [[ $AFTER -gt $((BEFORE + 500)) ]] ||
        fail "the stopped client does not go on: $BEFORE lines, then $AFTER; $(tail -n 3 "$DIR/even.err")"
done
kill -0 "$ODD" 2>/dev/null || fail "the other client stopped: $(tail -n 1 "$DIR/odd.err")"
REJOINED=$(grep -c 'joined the pool again' "$DIR/even.err" || true)
[[ $REJOINED -ge ${#STOPS[@]} ]] || fail "joined again only $REJOINED times of ${#STOPS[@]}"
kill -KILL "$EVEN" "$ODD"
wait "$EVEN" "$ODD" 2>/dev/null || true

# The last line of a killed process may be cut off.
sed '$d' "$DIR/even.out" > "$DIR/all"
sed '$d' "$DIR/odd.out" >> "$DIR/all"
UNKNOWN=$(grep -c '^?' "$DIR/all" || true)
grep -v '^?' "$DIR/all" | "$CLIENT" "$POOL" "$SECRET" verify test > "$DIR/verify.out" ||
    fail "acknowledged writes are lost"
echo "$(cat "$DIR/verify.out"); joined again $REJOINED times, $UNKNOWN puts of unknown outcome"
