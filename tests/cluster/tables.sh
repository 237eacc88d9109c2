#!/usr/bin/env bash
# Tables by hand: list, create, drop and verify; a table to a file and back, on shared memory and over
# tcp, also while somebody writes; damage in a pool and in a file is noticed.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_kv_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }

POOL=shm:$PREFIX
start_memory memory --shm "$PREFIX" --size 256M

expect() { # STATUS PATTERN COMMAND...: the pattern is in what it said
    local status=$1 pattern=$2
    shift 2
    run "$PANDO" "$@"
    [[ $RC == "$status" ]] || fail "pando $*: exit status $RC: $OUT $ERR"
    grep -q -e "$pattern" <<< "$OUT$ERR" || fail "pando $*: no '$pattern': $OUT $ERR"
}

# --- list, create ---
expect 0 '^created users$' table create users --pool "$POOL" --key-max 32
expect 1 'exists already; choose' table create users --pool "$POOL"
expect 1 'too large' table create huge --pool "$POOL" --key-max 1M
expect 2 'an argument is missing' table create --pool "$POOL"
expect 0 '^users  *[a-z]*  *[0-9.]* [KM]*i*B  *32 B' table list --pool "$POOL"
expect 0 '^created other' table create other --pool "$POOL" --engine sherman
expect 0 '^other  *sherman  *[0-9.]* [KM]*i*B  *64 B .* -$' table list --pool "$POOL"
expect 0 '^other: sound: 0 pairs' table verify other --pool "$POOL"
expect 0 '^other: nothing to do' table spread other --pool "$POOL"
expect 0 '^dropped other' table drop other --pool "$POOL"
expect 0 '^created owned' table create owned --pool "$POOL" --engine dex
expect 0 '^owned  *dex  *[0-9.]* [KM]*i*B  *64 B .* nobody: 1 range$' table list --pool "$POOL"
expect 0 '^owned: sound: 0 pairs' table verify owned --pool "$POOL"
expect 0 '^owned: nothing to do' table spread owned --pool "$POOL"
expect 0 '^dropped owned' table drop owned --pool "$POOL"
expect 0 '^users: nothing to do' table spread users --pool "$POOL"
expect 1 'pando table list' table spread nonesuch --pool "$POOL"
expect 1 'there is: dex, sherman' table create strange --pool "$POOL" --engine strange
expect 0 '"name":"users".*"owners":\[' table list --pool "$POOL" --json -
# JSON alone, on stdout and with nothing beside it.
run "$PANDO" status --pool "$POOL" --json -
[[ $RC == 0 && -z $ERR ]] || fail "status --json - says besides: $RC: $ERR"
python3 -c 'import json, sys; assert json.load(sys.stdin)["tables"]' <<< "$OUT" || fail "status --json - is no JSON: $OUT"
# A name is shown so that a terminal does not obey it, and a program that reads lines finds no other name.
STRANGE=$'a\e[2J\n\x01\x7f\xff\xc2\x9bz' KNOWN=$'zw\xc3\xb6lf'
for name in "$STRANGE" "$KNOWN"; do expect 0 '^created' table create "$name" --pool "$POOL"; done
SHOWN='a\\x1b\[2J\\x0a\\x01\\x7f\\xff\\xc2\\x9bz'
expect 0 "^$SHOWN  *[a-z]*  *[0-9.]* " table list --pool "$POOL"
expect 0 "^$KNOWN  *[a-z]*  *[0-9.]* " table list --pool "$POOL"
expect 0 "^$SHOWN: sound: 0 pairs" table verify --pool "$POOL"
expect 0 "^$SHOWN: 0 pairs" backup create "$DIR/strange" --pool "$POOL"
expect 1 "'$SHOWN'.* exists already" table create "$STRANGE" --pool "$POOL"
expect 0 "^$KNOWN$" table list --names --pool "$POOL"
! grep -q 2J <<< "$OUT" || fail "names to type: $OUT"
expect 0 '^  a[?]\[2J[?]' top --once --tables --pool "$POOL"
expect 0 '"a\\u001b\[2J' table list --json - --pool "$POOL"
for command in "table list" "table verify" "top --once --tables"; do
    run "$PANDO" $command --pool "$POOL"
    ! grep -q $'[\x01-\x08\x0b-\x1f\x7f]' <<< "$OUT$ERR" || fail "control characters from $command: $OUT$ERR"
done
for name in "$STRANGE" "$KNOWN"; do expect 0 '^dropped' table drop "$name" --pool "$POOL"; done
expect 1 'there is no table' table drop nonesuch --pool "$POOL"
expect 0 '^created gone' table create gone --pool "$POOL"
expect 0 '^dropped gone' table drop gone --pool "$POOL"
expect 1 'there is no table' table drop gone --pool "$POOL"
expect 1 'pando table list' table verify nonesuch --pool "$POOL"
expect 2 'no such command; `pando table --help`' table frobnicate
expect 0 'table verify' table --help

# --- verify and dump while somebody writes: no false alarm ---
"$CLIENT" "$POOL" /dev/null create || fail "cannot create the table"
start writer "$CLIENT" "$POOL" /dev/null write 0 1 100000000
WRITER=$PID
wait_for '^2000 ' "$DIR/writer.out"
for round in 1 2 3 4 5; do
    expect 0 '^test: sound: .* damaged places 0, unsettled 0$' table verify test --pool "$POOL"
done
expect 0 ' pairs of test' dump "$DIR/moving.dump" --table test --pool "$POOL"
kill -0 "$WRITER" 2>/dev/null || fail "the writer stopped: $(cat "$DIR/writer.err")"
kill -KILL "$WRITER"
wait "$WRITER" 2>/dev/null || true
expect 0 'pairs from' load "$DIR/moving.dump" --table moving --pool "$POOL"

# --- to a file and back ---
expect 0 '^test: sound' table verify test --pool "$POOL"
expect 0 ' pairs of test' dump "$DIR/a.dump" --table test --pool "$POOL"
expect 1 'add --merge' load "$DIR/a.dump" --pool "$POOL"
expect 0 '^copy: .* pairs from' load "$DIR/a.dump" --table copy --pool "$POOL"
expect 0 '^copy: sound' table verify --pool "$POOL"
expect 0 '' dump "$DIR/b.dump" --table copy --pool "$POOL"
cmp -i 128 "$DIR/a.dump" "$DIR/b.dump" || fail "the copy differs"
expect 0 '^moving: ' load "$DIR/a.dump" --table moving --merge --pool "$POOL"
expect 0 '' dump "$DIR/b.dump" --table moving --pool "$POOL"
cmp -i 128 "$DIR/a.dump" "$DIR/b.dump" || fail "the merged table differs"
expect 0 '^dropped moving' table drop moving --pool "$POOL"

# --- long values ---
run "$PANDO" bench --pool "$POOL" --workload load --records 2000 --value-size 5000 --table long --keep --seconds 0.2
[[ $RC == 0 ]] || fail "bench: $ERR"
expect 0 ' 2000 pairs of long' dump "$DIR/long.dump" --table long --pool "$POOL"

# --- and over tcp, to two memory nodes ---
TCP=tcp:
for node in 0 1; do
    start_memory "tcp$node" --listen 127.0.0.1:0 --node "$node" --size 128M --secret-file "$SECRET"
    TCP+=$ADDRESS,
done
TCP=${TCP%,}
expect 0 '^test: ' load "$DIR/a.dump" --pool "$TCP" --secret-file "$SECRET"
expect 0 '^long: 2000 ' load "$DIR/long.dump" --pool "$TCP" --secret-file "$SECRET"
expect 0 '^long: sound: 2000 pairs' table verify --pool "$TCP" --secret-file "$SECRET"
expect 0 '' dump "$DIR/b.dump" --table test --pool "$TCP" --secret-file "$SECRET"
cmp "$DIR/a.dump" "$DIR/b.dump" || fail "over tcp: the table differs"
expect 0 '' dump "$DIR/b.dump" --table long --pool "$TCP" --secret-file "$SECRET"
cmp "$DIR/long.dump" "$DIR/b.dump" || fail "over tcp: long values differ"

# --- files that are not whole, and disks that are full ---
head -c 100000 "$DIR/a.dump" > "$DIR/cut.dump"
expect 1 'cut off at byte 100000; nothing was changed' load "$DIR/cut.dump" --table cut --pool "$POOL"
python3 - "$DIR/a.dump" "$DIR/bad.dump" <<'PYTHON'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[70000] ^= 1
open(sys.argv[2], "wb").write(data)
PYTHON
expect 1 'fails its check' load "$DIR/bad.dump" --table cut --pool "$POOL"
expect 1 'no file of pando dump' load "$SECRET" --table cut --pool "$POOL"
run "$PANDO" table list --pool "$POOL"
! grep -q cut <<< "$OUT" || fail "a damaged file left a table: $OUT"
RC=0
(trap '' XFSZ && ulimit -f 50 && "$PANDO" dump "$DIR/full.dump" --table test --pool "$POOL") \
    > "$DIR/full.out" 2>&1 || RC=$?
[[ $RC == 1 ]] && grep -q 'File too large' "$DIR/full.out" || fail "full disk: $(cat "$DIR/full.out")"
[[ -z $(compgen -G "$DIR/full.dump*") ]] || fail "a full disk left $(compgen -G "$DIR/full.dump*")"

# --- damage in the pool: found, and where ---
python3 - "/dev/shm/pando-$PREFIX" <<'PYTHON' || fail "no pair was found in the window"
import struct, sys
with open(sys.argv[1], "r+b") as window:
    data = window.read()
    at = data.find(struct.pack(">Q", 1234) + struct.pack("<Q", ~1234 & 2**64 - 1))
    if at < 0:
        sys.exit(1)
    window.seek(at + 8)
    window.write(bytes([data[at + 8] ^ 4]))
PYTHON
expect 1 'damaged: memory node 0, offset 0x[0-9a-f]*, keys from ".*": a cell of this leaf' \
    table verify --pool "$POOL"
grep -q 'DAMAGED: .* damaged places 1, ' <<< "$OUT" || fail "verify: $OUT"
[[ $(grep -c ': sound' <<< "$OUT") -ge 3 ]] || fail "the other tables were not verified: $OUT"
echo "tables: ok"
