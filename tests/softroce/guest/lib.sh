# What the guest's tests share.

failed=0

# check WHAT COMMAND...: runs it, says how that went, remembers a failure.
check() {
    what=$1
    shift
    begin=$(cut -d' ' -f1 /proc/uptime)
    if "$@" >/tmp/check.log 2>&1; then
        cat /tmp/check.log
        echo "ok $what ($(cut -d' ' -f1 /proc/uptime | awk -v b="$begin" '{printf "%.1f", $1 - b}') s)"
    else
        echo "FAILED $what: status $?"
        cat /tmp/check.log
        failed=1
    fi
}

# rxe_up N [no-address]: device rxeN on a network interface that leads nowhere.
rxe_up() {
    ip link add "wire$1" type dummy
    [ -n "$2" ] || ip addr add "10.0.$1.1/24" dev "wire$1"
    ip link set "wire$1" up
    rdma link add "rxe$1" type rxe netdev "wire$1"
}

# Two devices in one guest whose packets cross a wire: veth pairs that meet in a bridge elsewhere. Routes
# keep the kernel from taking the short way between two addresses of its own. (A device in another network
# namespace would be simpler, and Soft-RoCE cannot do that.)
wire_up() {
    ip netns add switch
    for side in a b; do
        ip link add "wire$side" type veth peer name "port$side"
        ip link set "port$side" netns switch
    done
    ip netns exec switch sh -c 'ip link add bridge0 type bridge
        for port in porta portb; do ip link set $port master bridge0; ip link set $port up; done
        ip link set bridge0 up'
    ip addr add 10.1.0.1/24 dev wirea
    ip addr add 10.2.0.2/24 dev wireb
    for side in a b; do
        ip link set "wire$side" up
        for setting in accept_local=1 rp_filter=0 arp_ignore=1; do
            echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/wire$side/${setting%=*}"
        done
    done
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    ip rule add pref 10 iif wirea lookup local
    ip rule add pref 10 iif wireb lookup local
    ip route add 10.2.0.2 dev wirea src 10.1.0.1 table 101
    ip route add 10.1.0.1 dev wireb src 10.2.0.2 table 102
    ip rule add pref 20 from 10.1.0.1 to 10.2.0.2 lookup 101
    ip rule add pref 20 from 10.2.0.2 to 10.1.0.1 lookup 102
    ip rule add pref 30 oif wirea to 10.2.0.2 lookup 101
    ip rule add pref 30 oif wireb to 10.1.0.1 lookup 102
    ip rule add pref 100 lookup local
    ip rule del pref 0
    ip neigh add 10.2.0.2 lladdr "$(cat /sys/class/net/wireb/address)" dev wirea
    ip neigh add 10.1.0.1 lladdr "$(cat /sys/class/net/wirea/address)" dev wireb
    sleep 1
    rdma link add rxea type rxe netdev wirea
    rdma link add rxeb type rxe netdev wireb
}

make_secret() {
    (umask 077 && head -c 32 /dev/urandom | base64 >/tmp/secret)
}

# start_memory ADDRESS DEVICE OPTION...: its id is in $memory.
start_memory() {
    address=$1
    device=$2
    shift 2
    : >/tmp/memory.out # not what the last one said
    pando memory --listen "$address" --verbs "$device" --secret-file /tmp/secret "$@" >/tmp/memory.out 2>/tmp/memory.err &
    memory=$!
    for i in $(seq 200); do
        grep -q ready /tmp/memory.out && break
        sleep 0.05
    done
    cat /tmp/memory.out /tmp/memory.err
    grep -q ready /tmp/memory.out
}
