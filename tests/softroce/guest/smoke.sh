# One device: a memory node, puts and gets through it, and what the fabric promises, in half a minute.
. /test/lib.sh
rxe_up 0
make_secret
export PANDO_TEST_TARGET_DEVICE=rxe0 PANDO_TEST_CLIENT_DEVICE=rxe0
pool=verbs:127.0.0.1:7000

start_memory 127.0.0.1:7000 rxe0 --size 64M || exit 1
check status pando status --pool $pool --secret-file /tmp/secret
check put softroce_kv $pool /tmp/secret write 50
check "get and scan" softroce_kv $pool /tmp/secret check 50
kill "$memory"
wait "$memory" || failed=1
check conformance conformance_fabric verbs own_effects_in_order flag_behind_data read_behind_lock call_bodies \
    target_killed fence_running_peer
for engine in sherman dex; do
    check "$engine" conformance_engine $engine verbs values races
done
exit $failed
