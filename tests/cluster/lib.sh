# lib.sh - what the cluster tests share; sourced with the build directory as $1.
#
# A test works in a directory of its own, names its windows after its process id, and stops by process
# id whatever it started, also when it fails.

set -euo pipefail

BUILD=${1:?usage: $0 BUILD_DIRECTORY}
PANDO=$(cd "$BUILD" && pwd)/pando
[[ -x $PANDO ]] || { echo "SKIP: $PANDO is not built"; exit 77; }
DIR=$(mktemp -d)
SECRET=$DIR/secret
PREFIX=test-$$
STARTED=()

(umask 077 && head -c 32 /dev/urandom | base64 > "$SECRET")

cleanup() {
    local status=$?
    trap - EXIT
    for pid in "${STARTED[@]}"; do
        kill -CONT "$pid" 2>/dev/null || true
        kill -KILL "$pid" 2>/dev/null || true
    done
    for pid in "${STARTED[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$DIR" /dev/shm/pando-"$PREFIX"*
    exit "$status"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# Begins the test anew with a /dev/shm of its own, if that can be had: in the machine's the files of others come and
# go. Call it first, with the test's arguments.
own_shm() {
    local as=()
    [[ -z ${OWN_SHM:-} ]] || return 0
    ((EUID == 0)) || as=(--map-root-user)
    unshare "${as[@]}" --mount mount -t tmpfs tmpfs /dev/shm 2> /dev/null || return 0
    rm -rf "$DIR"
    OWN_SHM=yes exec unshare "${as[@]}" --mount \
        bash -c 'mount -t tmpfs tmpfs /dev/shm && exec bash "$@"' bash "$0" "$@"
}

# Of what has ended nothing lies in /dev/shm.
nothing_in_shm() {
    [[ -n ${OWN_SHM:-} ]] || { echo "/dev/shm was not looked at: no mount namespace to be had"; return 0; }
    [[ -z $(ls -A /dev/shm) ]] || fail "$1 left in /dev/shm: $(ls -A /dev/shm)"
}

fail() {
    echo "FAILED: $*"
    exit 1
}

# Starts "$@" in the background with its output in $DIR/NAME.out and .err; its id is in $PID.
start() {
    local name=$1
    shift
    : > "$DIR/$name.out" # before it starts: what an earlier one said is not to be found
    "$@" <&0 > "$DIR/$name.out" 2> "$DIR/$name.err" &
    PID=$!
    STARTED+=("$PID")
}

# Waits up to ten seconds for a line with PATTERN in FILE.
wait_for() {
    local pattern=$1 file=$2
    for _ in $(seq 200); do
        grep -q -- "$pattern" "$file" 2>/dev/null && return 0
        sleep 0.05
    done
    echo "--- $file:"
    cat "$file" "${file%.out}.err" 2>/dev/null || true
    fail "no '$pattern' in $file"
}

# Makes a pipe whose writing end is descriptor $2 and whose reading end is the path $1.
make_pipe() {
    mkfifo "$1"
    eval "exec $2<> '$1'"
}

# Starts a memory node: NAME, then options. Its id is in $PID, where it listens over TCP in $ADDRESS.
start_memory() {
    local name=$1
    shift
    start "$name" "$PANDO" memory "$@" < /dev/null
    wait_for ready "$DIR/$name.out"
    if grep -q ' ready at tcp:' "$DIR/$name.out"; then
        ADDRESS=$(sed -n 's/.* ready at tcp:\([^,]*\),.*/\1/p' "$DIR/$name.out")
    fi
}

# Runs "$@" with a time limit: ten seconds, or $RUN_SECONDS. Its exit status is in $RC, its output in $OUT and $ERR.
run() {
    RC=0
    timeout -k 1 "${RUN_SECONDS:-10}" "$@" > "$DIR/run.out" 2> "$DIR/run.err" < /dev/null || RC=$?
    OUT=$(cat "$DIR/run.out")
    ERR=$(cat "$DIR/run.err")
    [[ $RC != 124 && $RC != 137 ]] || fail "hangs: $*"
}

# Thousandths of a core that process $1 uses over $2 seconds.
cpu_permille() {
    local before after hertz
    hertz=$(getconf CLK_TCK)
    before=$(sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}')
    sleep "$2"
    after=$(sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}')
    echo $(((after - before) * 1000 / hertz / $2))
}

# Two memory nodes over tcp: $POOL names them.
start_pool() {
    local node
    POOL=tcp:
    for node in 0 1; do
        start_memory "memory$node" --listen 127.0.0.1:0 --node "$node" --size 256M --secret-file "$SECRET"
        POOL+=$ADDRESS,
    done
    POOL=${POOL%,}
}

# Stops the process PID for SECONDS, and on until another one, whose log is FILE, has declared it dead.
stop_until_dead() {
    local pid=$1 seconds=$2 log=$3 before
    before=$(grep -c 'recovering a dead member' "$log" || true)
    kill -STOP "$pid"
    sleep "$seconds"
    for _ in $(seq 120); do
        [[ $(grep -c 'recovering a dead member' "$log" || true) -gt $before ]] && break
        sleep 0.5
    done
    kill -CONT "$pid"
    [[ $(grep -c 'recovering a dead member' "$log" || true) -gt $before ]] || fail "never declared dead"
}
