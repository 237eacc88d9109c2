# Two devices joined by a wire: what goes over it, and what happens when it is cut.
. /test/lib.sh
wire_up
make_secret
export PANDO_TEST_TARGET_DEVICE=rxeb PANDO_TEST_CLIENT_DEVICE=rxea

start_memory 127.0.0.1:7000 rxeb --size 64M || exit 1
check status pando status --pool verbs:127.0.0.1:7000 --secret-file /tmp/secret --verbs rxea
# Answers come late, so that the capture shows which requests did not wait for one.
ip netns exec switch tc qdisc add dev porta root netem delay 3ms || failed=1
check capture softroce_capture verbs:127.0.0.1:7000 /tmp/secret rxea wirea
ip netns exec switch tc qdisc del dev porta root
kill "$memory"
wait "$memory" || failed=1

check cut softroce_faults cut
check conformance conformance_fabric verbs counters read_behind_lock completed_write_is_visible call_bodies \
    many_calls endpoint_to_itself target_killed fence_running_peer

# Larger packets on one side only.
ip link set wireb mtu 4500
start_memory 127.0.0.1:7000 rxeb --size 64M || failed=1
check "MTU 4096 there" grep -q 'MTU 4096' /tmp/memory.out
kill "$memory"
wait "$memory" || failed=1
check "MTU 1024 here" conformance_fabric verbs large_round_trips call_long_replies
exit $failed
