#!/usr/bin/env bash
# Two clients write neighbouring keys through two memory nodes over tcp; one of them is killed with -9 in
# the middle. The other goes on within two seconds, and every acknowledged write of both is there.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_kv_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

start_pool

"$CLIENT" "$POOL" "$SECRET" create || fail "cannot create the table"
start even "$CLIENT" "$POOL" "$SECRET" write 0 2 100000000
EVEN=$PID
start odd "$CLIENT" "$POOL" "$SECRET" write 1 2 100000000
ODD=$PID
sleep 3
[[ $(wc -l < "$DIR/even.out") -gt 1000 ]] || fail "the client to be killed has written little"
kill -KILL "$EVEN"
wait "$EVEN" 2>/dev/null || true
KILLED_AT=$(wc -l < "$DIR/odd.out")
sleep 5
kill -0 "$ODD" 2>/dev/null || fail "the other client stopped: $(tail -n 1 "$DIR/odd.err")"
[[ $(wc -l < "$DIR/odd.out") -gt $((KILLED_AT + 1000)) ]] || fail "the other client did not go on"
kill -KILL "$ODD"
wait "$ODD" 2>/dev/null || true

# The last line of a killed process may be cut off.
GAP=$(sed '$d' "$DIR/odd.out" | awk 'NR > 1 && $2 - last > gap { gap = $2 - last } { last = $2 }
    END { print gap + 0 }')
[[ $GAP -le 2000 ]] || fail "the other client stood still for $GAP ms"
sed '$d' "$DIR/even.out" > "$DIR/acknowledged"
sed '$d' "$DIR/odd.out" >> "$DIR/acknowledged"
"$CLIENT" "$POOL" "$SECRET" verify < "$DIR/acknowledged" > "$DIR/verify.out" ||
    fail "acknowledged writes are lost"
echo "$(cat "$DIR/verify.out"); longest pause of the survivor $GAP ms"
