#!/usr/bin/env bash
# What the README says to type works: `make run`'s server with the lines it prints, and the cluster example.
# And an idle server uses less than 1 % of a core.
source "$(dirname "$0")/lib.sh"
own_shm "$@"
cd "$(dirname "$0")/../.."

command -v redis-cli > /dev/null || { echo "SKIP: no redis-cli; Debian's package redis-tools has it"; exit 77; }

start server scripts/run --listen 127.0.0.1:0 --pool embedded:64M < /dev/null
SERVER=$PID
wait_for "scan 0 match" "$DIR/server.out"
[[ $(grep -c '^  redis-cli ' "$DIR/server.out") == 3 ]] || fail "not three lines to try: $(cat "$DIR/server.out")"
grep '^  redis-cli ' "$DIR/server.out" > "$DIR/lines"
run bash "$DIR/lines"
[[ $OUT == $'OK\nhello\n0\ngreeting' ]] || fail "the lines to try gave: $OUT $ERR"

sleep 1.5
permille=$(cpu_permille "$SERVER" 3)
echo "idle server: $permille per mille of a core"
((permille < 10)) || fail "the server is idle and uses $permille per mille of a core"

kill -TERM "$SERVER"
wait "$SERVER" || fail "the server ended with $? after SIGTERM"
nothing_in_shm "scripts/run"

# Nothing of ours listens there; the kernel gave these ports out a moment ago.
read -r -a PORTS <<< "$(python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])')"
PANDO=$PANDO MEMORY=127.0.0.1:${PORTS[0]} SERVERS="127.0.0.1:${PORTS[1]} 127.0.0.1:${PORTS[2]}" \
    run examples/cluster.sh
[[ $RC == 0 ]] || fail "examples/cluster.sh: $OUT $ERR"
grep -q '^hello$' <<< "$OUT" || fail "the second server does not see what the first set: $OUT"
[[ $(grep -c '^[1-4]$' <<< "$OUT") == 4 ]] || fail "two servers do not count together: $OUT"
nothing_in_shm "examples/cluster.sh"

run "$PANDO" serve --pool tcp:127.0.0.1:1 --secret-file "$SECRET" --listen 127.0.0.1:0 --pool-wait 0
[[ $RC == 1 && -n $ERR ]] || fail "a pool that is not there: $RC, '$ERR'"
echo "$ERR"
run "$PANDO" serve --pool embedded:64M --threads 0
[[ $RC == 2 ]] || fail "--threads 0: $RC"
echo "serve_examples: ok"
