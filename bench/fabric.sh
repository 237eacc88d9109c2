#!/usr/bin/env bash
# The speed of the foundation, as ratios to what lies beneath it, in one run of about a minute:
#   bench/fabric.sh [BUILD_DIRECTORY] [SECONDS_PER_LINE]
# Memory nodes and clients are bound to different cores. Prints a table, with each target beside it.
set -euo pipefail

BUILD=${1:-$(dirname "$0")/../build}
SECONDS_EACH=${2:-2}
PANDO=$(cd "$BUILD" && pwd)/pando
DIR=$(mktemp -d)
NAME=bench-$$
STARTED=()
SERVER_CORE=0
CLIENT_CORE=$(($(nproc) > 1 ? 1 : 0))
MISSED=0

cleanup() {
    trap - EXIT
    exec 2> /dev/null
    for pid in "${STARTED[@]}"; do
        kill -KILL "$pid" || true
        wait "$pid" || true
    done
    rm -rf "$DIR" "/dev/shm/pando-$NAME" "/dev/shm/pando-$NAME.sock"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

start() {
    local name=$1
    shift
    "$@" <&0 > "$DIR/$name.out" 2> "$DIR/$name.err" &
    PID=$!
    STARTED+=("$PID")
}

start_memory() {
    start "$1" taskset -c "$SERVER_CORE" "$PANDO" memory "${@:2}" < /dev/null
    for _ in $(seq 100); do
        grep -qs ready "$DIR/$1.out" && return 0
        sleep 0.05
    done
    cat "$DIR/$1.err"
    exit 1
}

# measure NAME OPTION...: numbers go to $DIR/NAME.json
measure() {
    taskset -c "$CLIENT_CORE" "$PANDO" fabric-bench --seconds "$SECONDS_EACH" \
        --json "$DIR/$1.json" "${@:2}"
}

# value NAME KEY: a number of the first measurement, or of the runtime.
value() {
    python3 - "$DIR/$1.json" "$2" << 'PYTHON'
import json, sys
data = json.load(open(sys.argv[1]))
found = data["measurements"][0].get(sys.argv[2], data.get("runtime", {}).get(sys.argv[2]))
print(f"{found:.4g}")
PYTHON
}

# row WHAT VALUE UNIT RELATION TARGET
row() {
    local verdict=ok
    awk -v a="$2" -v b="$5" "BEGIN { exit !(a $4 b) }" || verdict=MISSED
    [[ $verdict == ok ]] || MISSED=$((MISSED + 1))
    printf '%-46s %10s %-12s %3s %-8s %s\n' "$1" "$2" "$3" "$4" "$5" "$verdict"
}

cpu_ticks() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}'
}

(umask 077 && head -c 32 /dev/urandom | base64 > "$DIR/secret")
start_memory tcp --listen 127.0.0.1:0 --size 512M --secret-file "$DIR/secret"
TCP=$PID
ADDRESS=$(sed -n 's/.* ready at tcp:\([^,]*\),.*/\1/p' "$DIR/tcp.out")
start_memory shm --shm "$NAME" --size 2G
SHM=$PID
TCP_POOL=(--pool "tcp:$ADDRESS" --secret-file "$DIR/secret")

echo "measuring on $(nproc) cores, $SECONDS_EACH s a line"
measure tcp64 "${TCP_POOL[@]}" --size 64 --depth 64 --raw
measure tcp64one "${TCP_POOL[@]}" --size 64 --depth 64 --raw --one-task
measure tcp1 "${TCP_POOL[@]}" --size 64 --depth 1 --raw
measure shm64 --pool "shm:$NAME" --size 64 --raw
measure shm1k --pool "shm:$NAME" --size 1K --raw
measure runtime --pool embedded:64M --seconds 0.1 --runtime
measure sim --pool sim:nic=cx5,compute=8,memory=8,seed=1 --seconds 0.02

# A client that has connected, and then only waits.
mkfifo "$DIR/input"
exec 3<> "$DIR/input"
start client taskset -c "$CLIENT_CORE" "$PANDO" shell "${TCP_POOL[@]}" < "$DIR/input"
CLIENT=$PID
echo window >&3
sleep 1
TICKS=$(getconf CLK_TCK)
BEFORE=("$(cpu_ticks "$TCP")" "$(cpu_ticks "$SHM")" "$(cpu_ticks "$CLIENT")")
sleep 5
AFTER=("$(cpu_ticks "$TCP")" "$(cpu_ticks "$SHM")" "$(cpu_ticks "$CLIENT")")
idle() {
    awk -v t="$((AFTER[$1] - BEFORE[$1]))" -v hz="$TICKS" 'BEGIN { printf "%.2f", t * 100 / hz / 5 }'
}

echo
printf '%-46s %10s %-12s %-12s\n' "what" "measured" "" "target"
row "tcp READ 64 B, depth 64, to raw echo" "$(value tcp64 ratio)" "of its rate" ">=" 0.70
row "the same, all posted by one task" "$(value tcp64one ratio)" "of its rate" ">=" 0.70
row "tcp READ 64 B, depth 1, to raw echo" "$(value tcp1 latency_ratio)" "its latency" "<=" 1.30
row "shm READ 64 B, to memcpy" "$(value shm64 ratio)" "of its rate" ">=" 0.70
row "shm READ 1 KB, to memcpy" "$(value shm1k ratio)" "of its rate" ">=" 0.70
row "task created, run and finished" "$(value runtime create_ns)" ns "<" 100
row "task switch" "$(value runtime switch_ns)" ns "<" 5
row "operation, nothing on the wire, without copy" "$(value runtime net_operation_ns)" ns "<" 60
row "simulated operations per second of real time" "$(value sim real_per_second)" "" ">=" 1000000
row "idle tcp memory node" "$(idle 0)" "% of a core" "<" 1
row "idle shm memory node" "$(idle 1)" "% of a core" "<" 1
row "idle tcp client" "$(idle 2)" "% of a core" "<" 1
((MISSED == 0)) || echo "$MISSED missed; on a busy machine, run it again"
