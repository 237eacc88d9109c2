# One device: what can go wrong with it, and the fabric conformance suite.
. /test/lib.sh
rxe_up
ip link add wire1 type dummy
ip link set wire1 up
rdma link add rxe1 type rxe netdev wire1
ip link add wire2 type dummy
ip addr add 10.0.2.1/24 dev wire2
ip link set wire2 up
rdma link add rxe2 type rxe netdev wire2
export PANDO_TEST_TARGET_DEVICE=rxe0 PANDO_TEST_CLIENT_DEVICE=rxe0

for name in counters refused error_state packets sleeping names no_ipv4 locked_memory removed; do
    check "faults/$name" softroce_faults $name
done
[ -n "$quick" ] || conformance_fabric verbs || failed=1
exit $failed
