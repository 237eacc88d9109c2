#!/usr/bin/env bash
# The two-machine set-up of the README with real processes on one machine: a memory node, and two servers
# on it that serve the same data. Stops everything when it ends.
#
#   examples/cluster.sh          shows it and ends
#   examples/cluster.sh --stay   keeps it running until Ctrl-C
set -euo pipefail
cd "$(dirname "$0")/.."

PANDO=${PANDO:-build/pando}
MEMORY=${MEMORY:-127.0.0.1:7000}
SERVERS=(${SERVERS:-127.0.0.1:6380 127.0.0.1:6381})
DIR=$(mktemp -d)
STARTED=()

stop() {
    # The memory node was first and goes last: servers have something to write when they end.
    for ((i = ${#STARTED[@]} - 1; i >= 0; i--)); do
        kill "${STARTED[i]}" 2>/dev/null || true
        wait "${STARTED[i]}" || true
    done
    rm -rf "$DIR"
}
trap stop EXIT
trap 'exit 0' INT TERM

[[ -x $PANDO ]] || { echo "examples/cluster.sh: no $PANDO; run make first" >&2; exit 1; }

# Starts "$@" and waits until it says that it is ready.
start() {
    local log=$DIR/${#STARTED[@]}
    "$@" > "$log" 2>&1 &
    STARTED+=($!)
    for _ in $(seq 200); do
        if grep -q ' ready at ' "$log"; then
            cat "$log"
            return
        fi
        kill -0 $! 2>/dev/null || break
        sleep 0.05
    done
    cat "$log" >&2
    exit 1
}

# One request, with redis-cli or without.
ask() {
    local address=$1
    shift
    if command -v redis-cli > /dev/null; then
        redis-cli -h "${address%:*}" -p "${address#*:}" "$@"
    else
        exec 3<> "/dev/tcp/${address%:*}/${address#*:}"
        echo "$*" >&3
        head -n 1 <&3 | tr -d '\r'
        exec 3>&-
    fi
}

(umask 077; head -c 32 /dev/urandom | base64 > "$DIR/pando.secret")
start "$PANDO" memory --listen "$MEMORY" --size 256M --secret-file "$DIR/pando.secret"
for address in "${SERVERS[@]}"; do
    start "$PANDO" serve --pool "tcp:$MEMORY" --secret-file "$DIR/pando.secret" --listen "$address"
done

echo
echo "${SERVERS[0]}> SET greeting hello"
ask "${SERVERS[0]}" SET greeting hello
echo "${SERVERS[1]}> GETRANGE greeting 0 -1"
ask "${SERVERS[1]}" GETRANGE greeting 0 -1
for address in "${SERVERS[@]}" "${SERVERS[@]}"; do
    echo "$address> INCR visits"
    ask "$address" INCR visits
done
"$PANDO" status --pool "tcp:$MEMORY" --secret-file "$DIR/pando.secret"

if [[ ${1-} == --stay ]]; then
    echo "Running until Ctrl-C. Try: redis-cli -p ${SERVERS[0]#*:}"
    wait
fi
