#!/usr/bin/env bash
# The systemd units: ones that systemd understands, restarted for ever with pauses that grow, reloaded by SIGHUP,
# and with what RDMA needs; and the file for logrotate.
source "$(dirname "$0")/lib.sh"
UNITS=$(dirname "$PANDO")/systemd
PAUSE=$(cd "$(dirname "$0")/../../contrib/systemd" && pwd)/restart-pause
ETC=$(cd "$(dirname "$0")/../../contrib/etc" && pwd)

for unit in pando-memory@.service pando-serve.service; do
    for line in 'Restart=always' 'StartLimitIntervalSec=0' 'LimitMEMLOCK=infinity' 'DevicePolicy=closed' \
        'DeviceAllow=char-infiniband_verbs rw' 'DeviceAllow=/dev/infiniband/rdma_cm rw' \
        '#DeviceAllow=char-dax rw' 'ExecReload=/bin/kill -HUP $MAINPID' 'LogsDirectory=pando' 'RuntimeDirectoryPreserve=restart'; do
        grep -qxF -- "$line" "$UNITS/$unit" || fail "$unit does not say $line"
    done
    # These would hide the devices again, or end the trying.
    ! grep -q '^PrivateDevices=yes' "$UNITS/$unit" || fail "$unit hides /dev/infiniband"
    awk -F= '$1 == "RestartSec" && $2 >= 1 && $2 <= 60 { found = 1 } END { exit !found }' "$UNITS/$unit" ||
        fail "$unit has no sensible RestartSec"
    grep -q '^ExecStart=/[^ ]*/pando ' "$UNITS/$unit" || fail "$unit does not start pando"
    grep -q '^RuntimeDirectory=pando-' "$UNITS/$unit" || fail "$unit has nowhere to count its restarts"
    grep -q '^ExecStopPost=/[^ ]*/restart-pause ended$' "$UNITS/$unit" || fail "$unit does not count its restarts"
    grep -q '^ExecStartPre=-/[^ ]*/restart-pause wait$' "$UNITS/$unit" || fail "$unit does not pause between restarts"
    # The longest pause is no reason for systemd to end the start.
    awk -F= '$1 == "TimeoutStartSec" && $2 > 60 { found = 1 } END { exit !found }' "$UNITS/$unit" ||
        fail "$unit has no time for its longest pause"
done

# ---- the pauses, with a sleep that only says for how long ----
mkdir "$DIR/bin" "$DIR/run"
printf '#!/bin/sh\necho "$1" >>"%s/slept"\n' "$DIR" > "$DIR/bin/sleep"
chmod +x "$DIR/bin/sleep"
pause() { # runs it as systemd does; prints for how long it slept
    : > "$DIR/slept"
    RUNTIME_DIRECTORY=$DIR/run PATH=$DIR/bin:$PATH "$PAUSE" wait || fail "restart-pause wait ended with $?"
    head -1 "$DIR/slept"
}
ended() {
    RUNTIME_DIRECTORY=$DIR/run SERVICE_RESULT=$1 "$PAUSE" ended || fail "restart-pause ended: $?"
}
expect_pause() { # a second may pass between an end and the start
    local slept
    slept=$(pause)
    ((${slept:-0} == $1 || ${slept:-0} == $1 - 1)) || fail "a pause of ${slept:-0} s for $1 s, $2"
}
uptime_less() { read -r up _ < /proc/uptime && echo $((${up%%.*} - $1)); }
expect_pause 0 "at the first start"
for seconds in 5 10 20 40 60 60 60; do
    ended exit-code
    expect_pause "$seconds" "one failure after the other"
done
uptime_less 10 > "$DIR/run/ended"
expect_pause 50 "ten seconds after the last end"
uptime_less 61 > "$DIR/run/ended"
expect_pause 0 "a minute after the last end"
uptime_less 60 > "$DIR/run/began"
ended signal
expect_pause 5 "of one that had run for a minute"
ended exit-code
expect_pause 10 "after that"
ended success
expect_pause 0 "of one that was told to end"
ended exit-code
expect_pause 5 "after that"
echo nonsense > "$DIR/run/count"
ended exit-code
expect_pause 5 "with a file that has no number"
if command -v logrotate > /dev/null; then
    logrotate --debug --state "$DIR/state" "$ETC/logrotate.conf" > "$DIR/logrotate.out" 2>&1 ||
        fail "logrotate: $(cat "$DIR/logrotate.out")"
fi

command -v systemd-analyze > /dev/null || { echo "SKIP: no systemd-analyze to verify the units with"; exit 77; }
mkdir "$DIR/units"
for unit in pando-memory@.service pando-serve.service; do
    sed "s|^ExecStart=[^ ]*|ExecStart=$PANDO|; s|=\(-*\)/[^ ]*/restart-pause|=\1$PAUSE|; s|^User=.*|User=root|; s|^Group=.*|Group=root|" \
        "$UNITS/$unit" > "$DIR/units/$unit"
done
cp "$DIR/units/pando-memory@.service" "$DIR/units/pando-memory@0.service"
verify() {
    systemd-analyze verify --man=no "$DIR/units/pando-memory@0.service" "$DIR/units/pando-serve.service" \
        > "$DIR/verify.out" 2>&1 && ! grep -q "$DIR/units" "$DIR/verify.out"
}
verify || fail "systemd-analyze: $(cat "$DIR/verify.out")"
# It does see what is wrong.
sed -i 's/^Restart=always/Restart=perhaps/' "$DIR/units/pando-serve.service"
! verify || fail "systemd-analyze says nothing of Restart=perhaps: nothing was tested"
echo "units: ok"
