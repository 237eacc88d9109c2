#!/usr/bin/env bash
# The examples run, print what they should, and the cluster's has its 64 operations in flight on real memory
# nodes over tcp.
source "$(dirname "$0")/lib.sh"
own_shm "$@"
EXAMPLES=$(dirname "$PANDO")/examples
RUN_SECONDS=40
[[ -x $EXAMPLES/example_cluster ]] || { echo "SKIP: $EXAMPLES is not built"; exit 77; }

run "$EXAMPLES/example_embedded"
[[ $RC == 0 && -z $ERR ]] || fail "embedded: exit $RC: $ERR"
[[ $OUT == "earth is number 3
visit 1
mars
mercury
saturn
venus" ]] || fail "embedded prints: $OUT"

run "$EXAMPLES/example_prefix"
[[ $RC == 0 && -z $ERR ]] || fail "prefix: exit $RC: $ERR"
[[ $OUT == "Lem:
  Solaris
  The Cyberiad
Le Guin:
  The Dispossessed
2 index entries deleted
Lem:" ]] || fail "prefix prints: $OUT"
nothing_in_shm "the examples with pools of their own"

POOL=tcp:
for node in 0 1 2; do
    start_memory "memory$node" --listen 127.0.0.1:0 --node "$node" --size 128M --secret-file "$SECRET"
    POOL+=$ADDRESS,
done
for _ in 1 2; do # the second finds the table of the first
    run "$EXAMPLES/example_cluster" "${POOL%,}" "$SECRET"
    [[ $RC == 0 && -z $ERR ]] || fail "cluster: exit $RC: $ERR"
    [[ $OUT == "20000 keys written
20000 keys read" ]] || fail "cluster prints: $OUT"
done
for pid in "${STARTED[@]}"; do
    kill -TERM "$pid"
    wait "$pid" || fail "a memory node ended with $?"
done
STARTED=()
nothing_in_shm "the memory nodes and their clients"
start_memory again --listen 127.0.0.1:0 --size 64M --secret-file "$SECRET"
POOL=tcp:$ADDRESS,

run "$EXAMPLES/example_cluster" tcp:127.0.0.1:1 "$SECRET"
[[ $RC == 1 && $ERR == *"memory node 0"* ]] || fail "nobody there: exit $RC: $ERR"
head -c 32 /dev/urandom | base64 > "$DIR/wrong"
chmod 600 "$DIR/wrong"
run "$EXAMPLES/example_cluster" "${POOL%,}" "$DIR/wrong"
[[ $RC == 1 && $ERR == *denied* ]] || fail "a wrong secret: exit $RC: $ERR"
echo "three examples, twice on tcp"
