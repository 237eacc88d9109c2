#!/usr/bin/env bash
# The window that `pando serve` and `pando bench` give to others (--window): its memory is taken at start, and
# what cannot be had is refused in one line.
source "$(dirname "$0")/lib.sh"
own_shm "$@"

# expect STATUS PATTERN COMMAND...: that exit status, and one line on stderr that matches.
expect() {
    local status=$1 pattern=$2
    shift 2
    run "$@"
    [[ $RC == "$status" ]] || fail "exit status $RC, not $status: $* ($ERR)"
    [[ $(wc -l < "$DIR/run.err") == 1 ]] || fail "not one line: $*: $ERR"
    grep -Eq -- "$pattern" <<< "$ERR" || fail "no '$pattern' from: $*: $ERR"
}

SERVE=(serve --listen 127.0.0.1:0 --pool-wait 0)
start_memory tcp --listen 127.0.0.1:0 --size 64M --secret-file "$SECRET"
TCP=(--pool "tcp:$ADDRESS" --secret-file "$SECRET")
start_memory shm --shm "$PREFIX" --size 64M
SHM=(--pool "shm:$PREFIX")

# --- what makes no sense ---
expect 2 "'much' is not a size" "$PANDO" "${SERVE[@]}" "${TCP[@]}" --window much
expect 2 "window of 64.0 KiB is too small; ask for at least 128K" "$PANDO" "${SERVE[@]}" "${TCP[@]}" --window 64K
expect 2 "too small" "$PANDO" bench "${SHM[@]}" --window 1
expect 2 "no other process can join; ask for none" "$PANDO" "${SERVE[@]}" --pool embedded:64M --window 1M
expect 2 "nobody can reach; ask for none, or .*--peer-listen" \
    "$PANDO" "${SERVE[@]}" "${TCP[@]}" --window 1M --peer-listen none
expect 2 "too large; ask for less than 128T" "$PANDO" "${SERVE[@]}" "${TCP[@]}" --window 128T

# --- more than there is ---
expect 1 "window of 100.0 TiB is more than the .* this machine.* has free; ask for a smaller one" \
    "$PANDO" "${SERVE[@]}" "${TCP[@]}" --window 100T
expect 1 "window of 100.0 TiB is more than the .* has free" "$PANDO" bench "${SHM[@]}" --window 100T
expect 1 "6 windows of 30.0 TiB are more than the .* has free; .* fewer compute nodes" \
    "$PANDO" bench --pool sim:compute=6,memory=1 --records 1000 --window 30T
if [[ -n ${OWN_SHM:-} ]]; then
    USED=$(df -k --output=used /dev/shm | tail -1)
    mount -o "remount,size=$((USED + 8192))k" /dev/shm
    expect 1 "window of 64.0 MiB is more than the .* that /dev/shm has free; .*remount,size=SIZE" \
        "$PANDO" "${SERVE[@]}" "${SHM[@]}" --window 64M
    ! ls /dev/shm/pando-peer-* > /dev/null 2>&1 || fail "a window that was not made is left"
    mount -o remount,size=1G /dev/shm
else
    echo "/dev/shm was not made small: no mount namespace to be had"
fi
# A file that may not become so large: said by the system in the last moment, and nothing is left.
run bash -c "trap '' XFSZ; ulimit -f 1024; exec '$PANDO' serve --listen 127.0.0.1:0 --pool shm:$PREFIX --window 16M"
[[ $RC == 1 && $ERR == *"is there room for its size?"* ]] || fail "ulimit -f: exit $RC: $ERR"
# As much address space as the process has without the window.
run bash -c "ulimit -v 4000000; exec '$PANDO' serve --listen 127.0.0.1:0 ${TCP[*]} --window 6G"
[[ $RC == 1 && $ERR == *"window of 6.0 GiB is more than"* || $ERR == *"cannot map"* ]] ||
    fail "ulimit -v: exit $RC: $ERR"

# --- what there is is taken at once ---
start served "$PANDO" "${SERVE[@]}" "${SHM[@]}" --window 40M < /dev/null
wait_for ready "$DIR/served.out"
FILE=$(find /dev/shm -name 'pando-peer-*' ! -name '*.sock' -newer "$DIR/shm.out" -size +20000k | head -1)
[[ -n $FILE ]] || fail "no window of 40M: $(ls -ls /dev/shm)"
[[ $(($(stat -c '%b * %B' "$FILE"))) -ge $((40 << 20)) ]] || fail "its memory is not there yet: $(stat "$FILE")"
kill -TERM "$PID" && wait "$PID" || fail "serve: $(cat "$DIR/served.err")"
[[ ! -e $FILE ]] || fail "the window outlives its process"

resident() { awk '/^VmRSS/ {print $2}' "/proc/$1/status"; }
start plain "$PANDO" "${SERVE[@]}" "${TCP[@]}" < /dev/null
wait_for ready "$DIR/plain.out"
PLAIN=$(resident "$PID")
kill -TERM "$PID" && wait "$PID" || fail "serve: $(cat "$DIR/plain.err")"
start window "$PANDO" "${SERVE[@]}" "${TCP[@]}" --window 100M < /dev/null
wait_for ready "$DIR/window.out"
[[ $(resident "$PID") -ge $((PLAIN + 90 * 1024)) ]] ||
    fail "its memory is not there yet: $(resident "$PID") KiB, without a window $PLAIN"
kill -TERM "$PID" && wait "$PID" || fail "serve: $(cat "$DIR/window.err")"

# --- the benchmark has it, too, and says so ---
RUN_SECONDS=60 run "$PANDO" bench --pool sim:compute=2,memory=1 --records 1000 --seconds 0.001 --window 4M --json -
[[ $RC == 0 ]] || fail "bench with a window: $ERR"
grep -Eq '"window_bytes": *4194304' <<< "$OUT" || fail "the report does not say the window: $OUT"
echo "windows: ok"
