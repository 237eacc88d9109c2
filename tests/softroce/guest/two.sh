# One of two guests: a memory node here, its client there.
. /test/lib.sh
wire=$(ls /sys/class/net | grep '^e' | head -n 1)
[ "$role" = memory ] && own=10.9.0.2 || own=10.9.0.1
ip addr add "$own/24" dev "$wire"
ip link set "$wire" up
rdma link add rxe0 type rxe netdev "$wire"
# The two share no files: both know this.
(umask 077 && echo "known to both guests of a test" >/tmp/secret)

if [ "$role" = memory ]; then
    start_memory 10.9.0.2:7000 rxe0 --size 64M || exit 1
    # The host writes a line when the client's guest has ended: a last word from there could be lost with it.
    read -r _ </dev/ttyS0
    kill "$memory"
    wait "$memory" || { echo "FAILED memory node: status $?"; failed=1; }
    exit $failed
fi

pool=verbs:10.9.0.2:7000
for i in $(seq 100); do
    pando status --pool $pool --secret-file /tmp/secret >/dev/null 2>&1 && break
    sleep 0.2
done
check status pando status --pool $pool --secret-file /tmp/secret
check write softroce_kv $pool /tmp/secret write 100
check read softroce_kv $pool /tmp/secret check 100
check capture softroce_capture $pool /tmp/secret rxe0 "$wire" near
exit $failed
