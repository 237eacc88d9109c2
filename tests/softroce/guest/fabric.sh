# One device: what can go wrong with it, and the fabric conformance suite.
. /test/lib.sh
rxe_up 0
rxe_up 1 no-address
rxe_up 2
export PANDO_TEST_TARGET_DEVICE=rxe0 PANDO_TEST_CLIENT_DEVICE=rxe0

for name in counters kept refused error_state packets sleeping names no_ipv4 locked_memory removed; do
    check "faults/$name" softroce_faults $name
done
conformance_fabric verbs || failed=1
conformance_fabric verbs-compute || failed=1
# As on a device that is not known to keep a READ behind an atomic.
check fenced env PANDO_TEST_FENCE=1 conformance_fabric verbs own_effects_in_order read_behind_lock
exit $failed
