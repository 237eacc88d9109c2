#!/usr/bin/env bash
# An idle memory node and an idle client use less than 1 % of a core.
source "$(dirname "$0")/lib.sh"

SECONDS_EACH=3

check_idle() {
    local what=$1 pid=$2 permille
    permille=$(cpu_permille "$pid" "$SECONDS_EACH")
    echo "$what: $permille per mille of a core"
    ((permille < 10)) || fail "$what is idle and uses $permille per mille of a core"
}

start_memory tcp --listen 127.0.0.1:0 --size 64M --secret-file "$SECRET"
TCP=$PID
start_memory shm --shm "$PREFIX" --size 64M
SHM=$PID

# Clients that have done something and now wait for input.
make_pipe "$DIR/a" 3
make_pipe "$DIR/b" 4
start client_tcp "$PANDO" shell --pool "tcp:$ADDRESS" --secret-file "$SECRET" < "$DIR/a"
CLIENT_TCP=$PID
start client_shm "$PANDO" shell --pool "shm:$PREFIX" < "$DIR/b"
CLIENT_SHM=$PID
echo 'write 0x3000000 1' >&3
echo 'write 0x3000000 1' >&4
wait_for 0x "$DIR/client_tcp.out"
wait_for 0x "$DIR/client_shm.out"
sleep 0.2

check_idle "tcp memory node" "$TCP" &
A=$!
check_idle "shm memory node" "$SHM" &
B=$!
check_idle "tcp client" "$CLIENT_TCP" &
C=$!
check_idle "shm client" "$CLIENT_SHM" &
D=$!
for job in "$A" "$B" "$C" "$D"; do
    wait "$job"
done
echo "idle: ok"
