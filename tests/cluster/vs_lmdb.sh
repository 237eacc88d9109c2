#!/usr/bin/env bash
# bench/vs-lmdb runs at a small size and finds on both sides what it should; no time is judged. It leaves
# nothing behind, and wrong options get one clear line.
source "$(dirname "$0")/lib.sh"

VS=$(cd "$(dirname "$0")/../../bench" && pwd)/vs-lmdb
if [[ ! -x $BUILD/bench/vs_lmdb ]]; then
    echo "SKIP: liblmdb-dev was not there when $BUILD was configured: bench/vs-lmdb is not built"
    exit 77
fi
SMALL=(--operations 10000 --rounds 5)
RUN_SECONDS=120

mkdir "$DIR/lmdb"
run "$VS" "$BUILD" 100000 sherman "${SMALL[@]}" --batch 64 --lmdb-directory "$DIR/lmdb" --json "$DIR/run.json"
[[ $RC == 0 ]] || fail "exit status $RC: $ERR"
for what in '^search ' '^scan of 100' '^update ' '^search, 16 in flight'; do
    grep -q -- "$what.*x .*target" <<< "$OUT" || fail "no line '$what': $OUT"
done
[[ -z $(ls -A "$DIR/lmdb") ]] || fail "left behind: $(ls -A "$DIR/lmdb")"
python3 - "$DIR/run.json" << 'PYTHON' || fail "JSON: $(cat "$DIR/run.json")"
import json, sys
data = json.load(open(sys.argv[1]))
lines = {line["name"]: line for line in data["comparisons"]}
assert data["records"] == 100000 and data["batch"] == 64 and data["engine"] == "sherman"
assert set(lines) == {"search", "scan", "update", "batch_search"}
assert lines["batch_search"]["other"] == "bare tree" and lines["search"]["other"] == "LMDB"
for line in lines.values():
    assert line["engine_per_second"] > 0 and line["other_per_second"] > 0
    assert line["ratio_least"] <= line["ratio"] <= line["ratio_most"]
PYTHON

# Records that fill no level of any tree evenly, an engine without its techniques, a cache too small.
run "$VS" "$BUILD" 12345 sherman "${SMALL[@]}" --batch 17 --bare-node 384 --without cache,lockread --cache 1M --fill 100
[[ $RC == 0 ]] || fail "odd numbers: exit status $RC: $ERR"
run "$VS" "$BUILD" 2000000 "${SMALL[@]}" --pool-size 32M
[[ $RC == 1 ]] && grep -q "the pool is full" <<< "$ERR" || fail "a full pool: $RC: $ERR"
run "$VS" "$BUILD" 10000 "${SMALL[@]}" --lmdb-directory "$DIR/none"
[[ $RC == 1 ]] && grep -q "cannot make a directory" <<< "$ERR" || fail "no directory: $RC: $ERR"

refuse() {
    local pattern=$1
    shift
    run "$VS" "$BUILD" "$@"
    [[ $RC == 2 ]] || fail "exit status $RC, not 2: $* ($ERR)"
    [[ $(wc -l < "$DIR/run.err") == 1 ]] || fail "not one line: $*: $ERR"
    grep -q -- "$pattern" <<< "$ERR" || fail "no '$pattern' from: $*: $ERR"
}
refuse "RECORDS" many
refuse "RECORDS" 10
refuse "no engine 'frobnicate'" 100000 frobnicate
refuse "--rounds" 100000 --rounds 1
refuse "--bare-node" 100000 --bare-node 100
refuse "--batch" 100000 --batch 1
run "$VS" "$BUILD" --help
[[ $RC == 0 ]] && grep -q "bench/vs-lmdb build" <<< "$OUT" || fail "--help has no example: $OUT"
echo "vs_lmdb: ok"
