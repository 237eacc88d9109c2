# Two devices joined by a wire: what goes over it, and what happens when it is cut.
. /test/lib.sh
wire_up
make_secret
export PANDO_TEST_TARGET_DEVICE=rxeb PANDO_TEST_CLIENT_DEVICE=rxea

start_memory 127.0.0.1:7000 rxeb --size 64M || exit 1
pando status --pool verbs:127.0.0.1:7000 --secret-file /tmp/secret --verbs rxea || failed=1
check capture softroce_capture verbs:127.0.0.1:7000 /tmp/secret rxea wirea near
kill "$memory"
wait "$memory" || failed=1
exit $failed
