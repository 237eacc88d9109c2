#!/usr/bin/env bash
# Every workload of `pando bench` runs on an embedded pool and on a small simulated cluster, without an
# error, and says what it did; two processes share a run; wrong options get one clear line.
source "$(dirname "$0")/lib.sh"

SMALL=(--records 2000 --scan-length 20 --cache 1M)
WORKLOADS="a b c d e f load search insert update delete scan write-only write-intensive
           read-intensive range-only range-write dex-read-only dex-read-intensive dex-write-intensive
           insert-intensive scan-intensive locks"

# field FILE EXPRESSION: of the JSON text in FILE, whose value is called d.
field() {
    python3 -c "import json, sys; d = json.load(open(sys.argv[1])); print($2)" "$1"
}

# expect EXPRESSION: true of the JSON of the last run.
expect() {
    [[ $(field "$DIR/run.json" "$1") == True ]] ||
        fail "$TITLE: not so: $1: $(cat "$DIR/run.json")"
}

bench() {
    TITLE="$*"
    run "$PANDO" bench --json "$DIR/run.json" "$@"
    [[ $RC == 0 ]] || fail "exit status $RC: $TITLE: $ERR"
    [[ $(wc -l <<< "$OUT") == 1 ]] || fail "not one line: $OUT"
    expect "d['errors'] == 0 and d['ops'] > 0 and d['mops'] > 0 and d['p50_us'] <= d['max_us']"
}

for workload in $WORKLOADS; do
    bench --pool embedded:256M "${SMALL[@]}" --workload "$workload" --seconds 0.1 --warmup 0.05 \
        --coroutines 4
    expect "d['simulated'] is False and d['fabric'] == 'embedded'"
    bench --pool sim:compute=2,memory=2 "${SMALL[@]}" --workload "$workload" --seconds 0.001 \
        --warmup 0.0002 --threads 2
    expect "d['simulated'] is True and d['compute_nodes'] == 2"
    grep -q 'virtual time' <<< "$OUT" || fail "does not say that time is virtual: $OUT"
done

# --- what the numbers should be ---
bench --pool sim:compute=2,memory=2 "${SMALL[@]}" --engine sherman --workload search --seconds 0.001 --threads 2
expect "d['per_op']['memory']['reads'] == 1 and d['per_op']['memory']['round_trips'] == 1"
expect "d['not_found'] == 0 and d['cache_hit_ratio'] == 1 and d['of_limit'] > 0.3"
bench --pool sim:compute=1,memory=2 "${SMALL[@]}" --engine sherman --workload update --seconds 0.001
expect "d['distribution']['write_round_trips']['share'] == {'2': 1}"
expect "d['distribution']['write_bytes']['max'] <= 40"
bench --pool sim:compute=1,memory=2 "${SMALL[@]}" --engine sherman --workload update --seconds 0.001 \
    --without lockread
expect "d['distribution']['write_round_trips']['share'] == {'3': 1}"
bench --pool sim:compute=1,memory=2 "${SMALL[@]}" --workload update --seconds 0.001 --engine fg+
expect "d['distribution']['write_round_trips']['share'] == {'4': 1}"
bench --pool embedded:256M "${SMALL[@]}" --workload delete --ops 2000 --coroutines 8
expect "d['ops'] == 2000 and d['not_found'] == 0"
bench --pool sim:compute=2,memory=1 "${SMALL[@]}" --ops 5 --threads 2 --no-limit
expect "d['ops'] == 5"
bench --pool embedded:64M "${SMALL[@]}" --ops 23 --threads 2 --coroutines 3 --no-limit
expect "d['ops'] == 23"
bench --pool sim:compute=1,memory=2 "${SMALL[@]}" --without cache --ops 100 --no-limit
expect "d['ops'] == 100 and d['cache_hit_ratio'] == 0"
bench --pool embedded:256M "${SMALL[@]}" --workload update --key-size 100 --value-size 5000 --ops 500
bench --pool embedded:256M --records 500 --workload insert --key-size 64 --span 32 --ops 500
expect "d['node_size'] >= 32 * 80 and d['not_found'] == 0"

# --- engines whose compute nodes have keys of their own ---
DEX=(--pool sim:nic=cx5-dex,compute=3,memory=2 "${SMALL[@]}" --seconds 0.002 --threads 2 --engine dex)
bench "${DEX[@]}" --workload dex-read-only
expect "d['routed'] is True and d['engine_per_op']['forwarded'] == 0 and d['not_found'] == 0"
expect "d['per_op']['compute']['calls'] == 0 and d['engine_per_op']['cache_misses'] < 0.5"
bench "${DEX[@]}" --workload dex-read-only --routed no
expect "d['routed'] is False and 0.5 < d['engine_per_op']['forwarded'] < 0.8"
expect "abs(d['per_op']['compute']['calls'] - d['engine_per_op']['forwarded']) < 0.01"
bench "${DEX[@]}" --workload dex-write-intensive --without log
expect "d['per_op']['memory']['atomics'] == 0 and d['not_found'] == 0"
bench "${DEX[@]}" --workload dex-write-intensive --seconds 0.06 --join-at 0.02
expect "len(d['series']['mops']) == 60 and min(d['series']['mops']) > 0"
expect "sum(d['series']['mops'][50:]) > 1.2 * sum(d['series']['mops'][5:15])"
bench "${DEX[@]}" --engine p-sherman --workload insert-intensive
expect "d['with'] == 'alone' and d['without'] == ''"
expect "d['routed'] is True and d['per_op']['memory']['atomics'] < 0.05 and d['not_found'] == 0"
expect "d['per_op']['memory']['reads'] < 1.1"
bench "${DEX[@]}" --engine p-sherman --workload update
expect "d['per_op']['memory']['atomics'] == 0 and 0.9 < d['per_op']['memory']['writes'] < 1.01"

# --- one seed, one result ---
SAME=(--pool sim:compute=2,memory=2 "${SMALL[@]}" --workload a --seconds 0.001 --threads 2 --seed 7)
bench "${SAME[@]}"
FIRST=$(field "$DIR/run.json" "d['ops'], d['p99_us'], d['max_us']")
bench "${SAME[@]}"
[[ $(field "$DIR/run.json" "d['ops'], d['p99_us'], d['max_us']") == "$FIRST" ]] ||
    fail "two runs of one seed differ"

# --- two processes, and a pool that is as empty afterwards as before ---
start_memory node --shm "$PREFIX" --size 256M
BOTH=(bench --pool "shm:$PREFIX" "${SMALL[@]}" --workload a --seconds 0.5 --warmup 0.1 --processes 2)
start first "$PANDO" "${BOTH[@]}" --json "$DIR/first.json"
ONE=$PID
start second "$PANDO" "${BOTH[@]}" --json "$DIR/second.json"
TWO=$PID
for pid in $ONE $TWO; do
    wait "$pid" || fail "one of two processes: $(cat "$DIR"/first.err "$DIR"/second.err)"
done
[[ $(($(field "$DIR/first.json" "d['process']") + $(field "$DIR/second.json" "d['process']"))) == 1 ]] ||
    fail "processes are not 0 and 1"
BOTH=(bench --pool "shm:$PREFIX" "${SMALL[@]}" --engine dex --workload a --seconds 0.5 --warmup 0.1
      --processes 2)
start first "$PANDO" "${BOTH[@]}" --json "$DIR/first.json"
ONE=$PID
start second "$PANDO" "${BOTH[@]}" --json "$DIR/second.json"
TWO=$PID
for pid in $ONE $TWO; do
    wait "$pid" || fail "one of two processes, dex: $(cat "$DIR"/first.err "$DIR"/second.err)"
done
for name in first second; do
    [[ $(field "$DIR/$name.json" "d['ops'] > 0 and d['engine_per_op']['forwarded'] < 0.01") == True ]] ||
        fail "a process works on keys of the other: $(cat "$DIR/$name.json")"
done
SHARED=(bench --pool "shm:$PREFIX" "${SMALL[@]}" --ops 11 --threads 2 --no-limit --processes 2)
start first "$PANDO" "${SHARED[@]}" --json "$DIR/first.json"
ONE=$PID
run "$PANDO" "${SHARED[@]}" --json "$DIR/second.json"
[[ $RC == 0 ]] && wait "$ONE" || fail "11 operations of two processes: $ERR $(cat "$DIR/first.err")"
[[ $(($(field "$DIR/first.json" "d['ops']") + $(field "$DIR/second.json" "d['ops']"))) == 11 ]] ||
    fail "two processes did not share 11 operations"
run "$PANDO" bench --pool "shm:$PREFIX" "${SMALL[@]}" --ops 100
[[ $RC == 0 ]] || fail "the name of the table was not given back: $ERR"

# --- a memory node that dies is not waited for again by each block that it has ---
start_memory gone --shm "$PREFIX-gone" --size 256M
GONE=$PID
start orphan "$PANDO" bench --pool "shm:$PREFIX-gone" --records 200000 --seconds 10
ORPHAN=$PID
# 24 grants of memory for the table, 26 for the blocks of the limit.
grants() {
    "$PANDO" status --pool "shm:$PREFIX-gone" | sed -n 's/.*; \([0-9]*\) grants,.*/\1/p'
}
until [[ $(grants) -gt 45 ]]; do
    kill -0 "$ORPHAN" || fail "the benchmark ended: $(cat "$DIR/orphan.err")"
    sleep 0.05
done
kill -KILL "$GONE"
RC=0
wait "$ORPHAN" || RC=$?
[[ $RC == 1 ]] || fail "exit status $RC without a memory node: $(cat "$DIR/orphan.err")"

# --- wrong options ---
refuse() {
    local pattern=$1
    shift
    run "$PANDO" bench "$@"
    [[ $RC == 2 ]] || fail "exit status $RC, not 2: $* ($ERR)"
    [[ $(wc -l < "$DIR/run.err") == 1 ]] || fail "not one line: $*: $ERR"
    grep -q -- "$pattern" <<< "$ERR" || fail "no '$pattern' from: $*: $ERR"
}
refuse "no workload" --pool embedded:64M --workload frobnicate
refuse "no engine" --pool embedded:64M --engine frobnicate
refuse "no distribution" --pool embedded:64M --dist zipf
refuse "--fill" --pool embedded:64M --fill 5
refuse "--key-size" --pool embedded:64M --key-size 4
refuse "--seconds" --pool embedded:64M --seconds soon
refuse "neither yes nor no" --pool embedded:64M --routed perhaps
refuse "would destroy them" --pool embedded:64M --engine p-sherman --routed no
refuse "--join-at" --pool embedded:64M --engine dex --join-at 1
refuse "cannot hold such pairs" --pool embedded:64M --key-size 1024 --node-size 1024
refuse "for no cache use --without cache" --pool embedded:64M --cache 0
for option in ops span node-size memory-threads; do
    refuse "--$option: 0 is too small" --pool sim: "--$option" 0
done
refuse "--ops and --seconds" --pool embedded:64M --ops 5 --seconds 1
refuse "--span and --node-size" --pool embedded:64M --span 32 --node-size 1K
refuse "only on a simulated pool" --pool embedded:64M --memory-threads 2
refuse "only on a simulated pool" --pool "shm:$PREFIX" --memory-threads 2
refuse "others cannot come" --pool sim:compute=2 --processes 2
refuse "others cannot come" --pool embedded:64M --processes 2
refuse "dex has no technique 'frob'; it has partition, .*, balance$" --pool embedded:64M --without log,frob
refuse "sherman has no technique 'writeunlock'; it has combine, .*, merge$" --pool embedded:64M --engine fg+ \
    --without writeunlock
refuse "locks has no technique 'frob'; it has onchip, .*, writeunlock$" --pool embedded:64M --workload locks \
    --without frob
refuse "--without: '+offload-only' switches something on; use --with offload-only$" --pool embedded:64M \
    --without log,+offload-only
refuse "--with: 'cache' is on anyway; --without switches it off$" --pool embedded:64M --with cache
refuse "--with: dex has no technique 'alone' to switch on; it has offload-leaves, .*, join-eagerly$" \
    --pool embedded:64M --with alone
refuse "--with: the workload locks has nothing to switch on$" --pool embedded:64M --workload locks --with alone
bench --pool sim:compute=2,memory=1 --workload locks --seconds 0.001 --threads 2 \
    --without onchip,hierarchical,queue,handover,backoff,writeunlock
expect "d['per_op']['memory']['writes'] == 0 and d['per_op']['memory']['atomics'] >= 1.9"
run "$PANDO" bench --help
for technique in twolevel cooling-map writeunlock; do
    grep -qw -- "$technique" <<< "$OUT" || fail "--help does not name the technique $technique"
done
run "$PANDO" bench --pool embedded:64M --engine p-sherman --without hierarchical --records 10
[[ $RC == 1 ]] && grep -q "needs hierarchical" <<< "$ERR" || fail "no locks at all: $RC: $ERR"
run "$PANDO" bench --pool embedded:32M --records 10000000
[[ $RC == 1 ]] && grep -q "pool is full" <<< "$ERR" || fail "a full pool: $RC: $ERR"
echo "bench: ok"
