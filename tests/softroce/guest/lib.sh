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

# One device on a network interface that leads nowhere.
rxe_up() {
    ip link add wire0 type dummy
    ip addr add 10.0.0.1/24 dev wire0
    ip link set wire0 up
    rdma link add rxe0 type rxe netdev wire0
}
