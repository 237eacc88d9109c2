#!/usr/bin/env bash
# Two members in two processes call each other, over tcp and over shared memory. The one called is killed with -9: the
# caller's calls end soon, and it is known to be gone. Whoever sends garbage to a member's port or does not know the
# secret stays outside, and the member goes on. One that cannot be reached keeps nobody from going on.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_peer_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

# Starts a member that answers: NAME, then where it listens. $MEMBER, $INCARNATION and $AT say who and where it is.
start_member() {
    local name=$1 line
    shift
    make_pipe "$DIR/$name.pipe" "$NEXT_FD"
    NEXT_FD=$((NEXT_FD + 1))
    start "$name" "$CLIENT" "$POOL" "$SECRET" answer "$@" < "$DIR/$name.pipe"
    wait_for '^member' "$DIR/$name.out"
    line=$(cat "$DIR/$name.out")
    read -r _ MEMBER _ INCARNATION _ AT <<< "$line"
}
NEXT_FD=20

# Calls COUNT times with PAUSE ms between; what came of it is in $OUT.
call() {
    run "$CLIENT" "$POOL" "$SECRET" call "$@"
    [[ $RC == 0 ]] || fail "call $*: exit $RC: $ERR"
}

longest_ms() {
    sed -n 's/.*the longest \([0-9]*\) ms/\1/p' <<< "$1" | sort -n | tail -n 1
}

check_calls() {
    local victim member incarnation at caller
    start_member "answers-$1"
    victim=$PID member=$MEMBER incarnation=$INCARNATION at=$AT
    call "$member" "$incarnation" 2000 0
    [[ $OUT == "ok: 2000 calls"* ]] || fail "$1: $OUT"
    echo "$1: $OUT, at $at"
    call "$member" $((incarnation + 1)) 2 0
    [[ $OUT == "not found: 2 calls"* ]] || fail "$1: another incarnation: $OUT"
    call 999 1 2 0
    [[ $OUT == "not found: 2 calls"* ]] || fail "$1: nobody: $OUT"
    if [[ $1 == shm ]]; then
        [[ $(stat -c %a "$at.sock") == 600 ]] || fail "others may call: $(stat -c %A "$at.sock")"
        [[ -e $at ]] || fail "no window at $at"
    fi

    start "calls-$1" "$CLIENT" "$POOL" "$SECRET" call "$member" "$incarnation" 60 100 < /dev/null
    caller=$PID
    sleep 1.5
    kill -KILL "$victim"
    wait "$victim" 2>/dev/null || true
    RC=0
    wait "$caller" || RC=$?
    OUT=$(cat "$DIR/calls-$1.out")
    [[ $RC == 0 ]] || fail "$1: the caller: exit $RC: $(cat "$DIR/calls-$1.err")"
    echo "$1: killed: ${OUT//$'\n'/; }"
    head -n 1 <<< "$OUT" | grep -q '^ok: ' || fail "$1: it was never called: $OUT"
    tail -n 1 <<< "$OUT" | grep -q '^not found: ' || fail "$1: it is not known to be gone: $OUT"
    sed '1d;$d' <<< "$OUT" | grep -qv '^endpoint failed: ' && fail "$1: $OUT"
    (($(longest_ms "$OUT") < 1000)) || fail "$1: a call took too long: $OUT"
    call "$member" "$incarnation" 1 0
    [[ $OUT == "not found: 1 calls"* ]] || fail "$1: after its death: $OUT"
    if [[ $1 == shm ]]; then
        [[ ! -e $at && ! -e $at.sock ]] || fail "the dead one's window is left: $at"
    fi
}

# Garbage, half a greeting, and a wrong secret at a member's port; it goes on.
check_strangers() {
    local member incarnation at node
    start_member strangers
    member=$MEMBER incarnation=$INCARNATION at=$AT
    printf -v node '%d' $((0x8000 | member))
    [[ $at == 127.0.0.1:* ]] || fail "it listens on $at, not on the address that leads to the pool"
    for _ in 1 2 3; do
        head -c 5000 /dev/urandom > "/dev/tcp/${at%:*}/${at##*:}" 2>/dev/null || true
    done
    exec 9<> "/dev/tcp/${at%:*}/${at##*:}" # a stranger that says nothing
    (umask 077 && head -c 32 /dev/urandom | base64 > "$DIR/wrong")
    run "$CLIENT" "$at" "$DIR/wrong" knock "$node"
    [[ $OUT == denied ]] || fail "a wrong secret: $OUT"
    run "$CLIENT" "$at" "$SECRET" knock "$node"
    [[ $OUT == ok ]] || fail "the right secret: $OUT"
    call "$member" "$incarnation" 100 0
    [[ $OUT == "ok: 100 calls"* ]] || fail "after strangers: $OUT"
    exec 9>&-
    echo "strangers: ok"
    IDLE=$(cpu_permille "$PID" 3)
    echo "an idle member uses $IDLE per mille of a core"
    ((IDLE < 10)) || fail "an idle member uses $IDLE per mille of a core"
}

# One that wants not to be called, and one whose address leads to something that never says a word.
check_unreachable() {
    local begin victim hole
    start_member none none
    call "$MEMBER" "$INCARNATION" 3 0
    [[ $OUT == "not supported here: 3 calls"* && -z $AT ]] || fail "one that does not listen: $OUT"

    start hole python3 -c '
import socket, time
s = socket.create_server(("127.0.0.1", 0)); print("hole %d." % s.getsockname()[1], flush=True); time.sleep(600)' < /dev/null
    wait_for hole "$DIR/hole.out"
    hole=$(sed 's/hole \([0-9]*\)\./\1/' "$DIR/hole.out")
    start_member behind 127.0.0.1:0 "127.0.0.1:$hole"
    [[ $AT == 127.0.0.1:$hole ]] || fail "it tells others $AT"
    RUN_SECONDS=20 call "$MEMBER" "$INCARNATION" 2 0
    echo "unreachable: $OUT"
    [[ $OUT == "not found: 2 calls"* ]] || fail "one that cannot be reached: $OUT"
    (($(longest_ms "$OUT") < 8000)) || fail "that took too long: $OUT"

    start_member victim
    victim=$MEMBER
    kill -KILL "$PID"
    wait "$PID" 2>/dev/null || true
    begin=$SECONDS
    while run "$CLIENT" "$POOL" "$SECRET" members && grep -q "^$victim $INCARNATION " <<< "$OUT"; do
        ((SECONDS - begin < 8)) || fail "a dead member is not recovered: $OUT"
        sleep 0.2
    done
    echo "with one that cannot be reached, a dead member is recovered in $((SECONDS - begin)) s"
}

# Members of a pool with TLS call each other over TLS, whether they have certificates or not. Who has one is called by
# those only who have one, too.
check_tls() {
    local member incarnation at node
    command -v openssl > /dev/null || { echo "tls: not checked, no openssl"; return; }
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
        -addext "subjectAltName=IP:127.0.0.1" -keyout "$DIR/key" -out "$DIR/cert" 2> /dev/null
    chmod 600 "$DIR/key"
    start_memory tls --listen 127.0.0.1:0 --size 64M --secret-file "$SECRET" --tls-cert "$DIR/cert" --tls-key "$DIR/key"
    POOL=tcp:$ADDRESS
    export PEER_CLIENT_CA=$DIR/cert
    start_member bare
    call "$MEMBER" "$INCARNATION" 2 0
    [[ $OUT == "ok: 2 calls"* ]] || fail "without certificates: $OUT, at $AT"
    export PEER_CLIENT_CERT=$DIR/cert PEER_CLIENT_KEY=$DIR/key
    start_member hears
    member=$MEMBER incarnation=$INCARNATION at=$AT
    call "$member" "$incarnation" 100 0
    [[ $OUT == "ok: 100 calls"* ]] || fail "with TLS: $OUT"
    unset PEER_CLIENT_CERT PEER_CLIENT_KEY
    call "$member" "$incarnation" 2 0
    [[ $OUT == "not found: 2 calls"* ]] || fail "without a certificate, to one with: $OUT"
    unset PEER_CLIENT_CA
    printf -v node '%d' $((0x8000 | member))
    run "$CLIENT" "$at" "$SECRET" knock "$node" # knows the secret and speaks no TLS
    [[ -n $OUT && $OUT != ok ]] || fail "without TLS: $OUT"
    echo "tls: ok"
}

# One that was killed before its window was one, and one that is just being made.
(umask 077 && : > "/dev/shm/pando-peer-$PREFIX-old" && : > "/dev/shm/pando-peer-$PREFIX-new")
touch -d '2 minutes ago' "/dev/shm/pando-peer-$PREFIX-old"
start_memory shm --shm "$PREFIX" --size 64M
POOL=shm:$PREFIX
check_calls shm
# No room for a window: it works without, and leaves nothing behind.
run bash -c "trap '' XFSZ; ulimit -f 1; exec '$CLIENT' '$POOL' '$SECRET' answer < /dev/null | cat"
[[ $RC == 0 && $OUT == *" at " ]] || fail "without room for a window: exit $RC: $OUT $ERR"
[[ -z $(find /dev/shm -name 'pando-peer-*' -size 0 -newer "$DIR/shm.out" ! -name "*$PREFIX*" ! -name '*.sock') ]] ||
    fail "a window that was not made is left"
[[ ! -e /dev/shm/pando-peer-$PREFIX-old ]] || fail "an empty file is left"
[[ -e /dev/shm/pando-peer-$PREFIX-new ]] || fail "somebody's new file was removed"
rm "/dev/shm/pando-peer-$PREFIX-new"
start_memory tcp --listen 127.0.0.1:0 --size 64M --secret-file "$SECRET"
POOL=tcp:$ADDRESS
check_calls tcp
check_strangers
check_unreachable
check_tls
echo "peers: ok"
