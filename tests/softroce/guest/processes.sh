# One device: processes that are killed, and a lock table on the card.
. /test/lib.sh
rxe_up 0
make_secret
pool=verbs:127.0.0.1:7000

acknowledged() {
    sed '$d' /tmp/written | wc -l # the last line of a killed process may be cut off
}

# Until so many puts were acknowledged, or half a minute has passed.
wait_for_puts() {
    for i in $(seq 300); do
        [ "$(acknowledged)" -gt "$1" ] && return
        sleep 0.1
    done
}

check_kept() {
    softroce_kv $pool /tmp/secret check "$(acknowledged)"
}

# call COUNT: calls the member that answers so often, and it calls back.
call() {
    cluster_peer_client $pool /tmp/secret call "$(cut -d' ' -f2 /tmp/peer.out)" "$(cut -d' ' -f4 /tmp/peer.out)" "$1" 0 2>&1
}

check_peers() {
    call 50 | grep '^ok: 50 calls' || return 1
    kill -9 $peer
    wait $peer
    call 2 | grep '^not found: 2 calls'
}

# The client dies, then the memory node; whoever is left goes on.
start_memory 127.0.0.1:7000 rxe0 --size 64M --shm softroce || exit 1
mkfifo /tmp/hold
exec 3<>/tmp/hold
cluster_peer_client $pool /tmp/secret answer </tmp/hold >/tmp/peer.out 2>/tmp/peer.err &
peer=$!
for i in $(seq 200); do
    grep -q ^member /tmp/peer.out && break
    sleep 0.1
done
cat /tmp/peer.out /tmp/peer.err
check "members call each other" check_peers
check put softroce_kv $pool /tmp/secret write 100
check "get and scan" softroce_kv $pool /tmp/secret check 100

: >/tmp/written
softroce_kv $pool /tmp/secret write 0 >/tmp/written &
client=$!
wait_for_puts 500
kill -9 $client
wait $client
echo "client killed after $(acknowledged) puts"
check "get and scan after kill -9 of the client" check_kept

: >/tmp/written
softroce_kv $pool /tmp/secret write 0 >/tmp/written 2>/tmp/writer.err &
client=$!
wait_for_puts 500
kill -9 "$memory"
wait "$memory"
before=$(acknowledged)
echo "memory node killed after $before puts"
sleep 0.5
start_memory 127.0.0.1:7000 rxe0 --size 64M --shm softroce || failed=1
wait_for_puts $((before + 50))
kill -9 $client
wait $client
echo "client reconnected, $(acknowledged) puts; it had seen: $(cut -d: -f2 /tmp/writer.err | sort | uniq -c | tr '\n' ';')"
check "the client goes on" [ "$(acknowledged)" -gt $((before + 50)) ]
check "get and scan after kill -9 of the memory node" check_kept
check status pando status --pool $pool --secret-file /tmp/secret
kill "$memory"
wait "$memory" || failed=1
rm /dev/shm/pando-softroce*

# A card with memory of its own, and a node that loses it.
export LD_PRELOAD=/lib/softroce_chip.so
start_memory 127.0.0.1:7000 rxe0 --size 64M --shm chip || failed=1
check "lock table on the card" grep -q 'lock table on the card' /tmp/memory.out
check "put with it" softroce_kv $pool /tmp/secret write 100
kill -9 "$memory"
wait "$memory"
start_memory 127.0.0.1:7000 rxe0 --size 64M --shm chip || failed=1
check "get and put after its loss" sh -c "softroce_kv $pool /tmp/secret check 100 && softroce_kv $pool /tmp/secret write 150"
check "its status" sh -c "pando status --pool $pool --secret-file /tmp/secret | grep 'on the card'"
kill "$memory"
wait "$memory" || failed=1
check "conformance on the card" conformance_fabric verbs atomics_results atomics_count_device flag_behind_data_device endpoint_to_itself large_round_trips
unset LD_PRELOAD

exit $failed
