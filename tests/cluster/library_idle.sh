#!/usr/bin/env bash
# Two applications of the C library share a pool and then make no call for several leases: neither is taken for
# dead, although the loops of their threads stand still, and neither uses the processor.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_library_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

start_memory memory --listen 127.0.0.1:0 --size 256M --secret-file "$SECRET"
POOL=tcp:$ADDRESS
CLIENTS=()
for name in one two; do
    start "$name" "$CLIENT" "$POOL" "$SECRET" 1 7
    CLIENTS+=("$PID")
    wait_for running "$DIR/$name.out"
done
sleep 3
USED=$(cpu_permille "${CLIENTS[0]}" 3)
for i in 0 1; do
    RC=0
    wait "${CLIENTS[$i]}" || RC=$?
    [[ $RC == 0 ]] || fail "exit $RC: $(cat "$DIR"/one.err "$DIR"/two.err)"
done
cat "$DIR"/one.err "$DIR"/two.err > "$DIR/both"
grep -q 'declared dead' "$DIR/both" && fail "an idle process was declared dead: $(cat "$DIR/both")"
[[ $USED -le 20 ]] || fail "an idle process uses $USED thousandths of a core"
echo "$(cat "$DIR/one.out" "$DIR/two.out" | grep -c ' 0 lost') processes, idle $USED thousandths of a core"
