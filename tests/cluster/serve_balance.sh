#!/usr/bin/env bash
# Two servers with engine dex on one pool, all of the load on one of them: it gives keys to the other, and
# nothing is lost.
source "$(dirname "$0")/lib.sh"
for tool in redis-cli redis-benchmark; do
    command -v "$tool" > /dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
done

start_pool
PORTS=()
for i in 1 2; do
    start "server$i" "$PANDO" serve --pool "$POOL" --secret-file "$SECRET" --engine dex \
        --listen 127.0.0.1:0 --log-level info
    wait_for ready "$DIR/server$i.out"
    PORTS+=("$(sed -n 's/.* ready at 127.0.0.1:\([0-9]*\).*/\1/p' "$DIR/server$i.out" | head -1)")
done
redis-cli -p "${PORTS[0]}" set first 1 > /dev/null
[[ $(redis-cli -p "${PORTS[1]}" get first) == 1 ]] || fail "the second server does not see the first's key"
timeout 30 redis-benchmark -p "${PORTS[0]}" -t set -r 50000 -n 100000000 -P 16 -c 8 -q > /dev/null 2>&1 &
LOAD=$!
for _ in $(seq 250); do
    grep -q 'gave keys .*status=ok' "$DIR/server1.err" && break
    sleep 0.1
done
kill "$LOAD" 2> /dev/null || true
wait "$LOAD" 2> /dev/null || true
grep -q 'gave keys .*status=ok' "$DIR/server1.err" || fail "no keys were given away in 25 s"
run "$PANDO" table list --pool "$POOL" --secret-file "$SECRET"
grep -q '^db0 .* member [0-9]* [^,]*: [0-9]* range.*, member [0-9]* [^,]*: [0-9]* range' <<< "$OUT" ||
    fail "not two owners: $OUT $ERR"
ONE=$(redis-cli -p "${PORTS[0]}" dbsize)
TWO=$(redis-cli -p "${PORTS[1]}" dbsize)
[[ $ONE == "$TWO" && $ONE -gt 1000 ]] || fail "the servers have $ONE and $TWO keys"
[[ $(redis-cli -p "${PORTS[1]}" get first) == 1 ]] || fail "a key is lost"
echo "balance: ok, $ONE keys"
