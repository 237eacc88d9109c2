#!/usr/bin/env bash
# What `pando check` is told is what it does: wrong options get one clear line, and nothing runs.
source "$(dirname "$0")/lib.sh"

refuse() {
    local pattern=$1
    shift
    run "$PANDO" check "$@"
    [[ $RC == 2 ]] || fail "exit status $RC, not 2: $* ($ERR)"
    [[ -z $OUT && $(wc -l < "$DIR/run.err") == 1 ]] || fail "not one line: $*: $OUT $ERR"
    grep -q -- "$pattern" <<< "$ERR" || fail "no '$pattern' from: $*: $ERR"
}

# COUNT repetitions of WORD, with commas.
list() {
    local words
    printf -v words "%0$1d" 0
    echo "${words//0/$2,}"
}

# --- switches ---
refuse "sherman has no 'frob' to break; it has fencing, recovery, .*, cells, fences, intents, .*, repair, guards$" --engine sherman --break frob
refuse "dex has no 'fences' to break; it has fencing, .*, serve-lease$" --engine dex --break cells,fences
refuse "sherman has no technique 'frob'; it has combine, .*, merge$" --engine sherman --without queue,frob
refuse "dex has no technique 'combine'; it has partition, .*, balance$" --engine dex --without combine
refuse "'+alone' switches something on; use --with alone$" --engine sherman --without merge,+alone
refuse "'offload-only' is off anyway; --with switches it on$" --without offload-only
refuse "'cache' is on anyway; --without switches it off$" --with offload-leaves,cache
refuse "dex has no technique 'frob' to switch on; it has offload-leaves, .*, join-eagerly$" --with frob
refuse "sherman has no technique 'break-frob' to switch on; it has alone$" --engine sherman --with break-frob
refuse "--with: longer than 511 characters" --with "$(list 128 small-log)"
run "$PANDO" check --engine dex --with offload-only,small-log --seeds 1..2 --workers 1
[[ $RC == 0 ]] && grep -q '^check dex: 2 of 2 seeds, 0 violated' <<< "$OUT" || fail "--with: $RC: $OUT $ERR"
refuse "--without: longer than 511 characters" --engine sherman --without "$(list 128 merge)"
refuse "--break: longer than 511 characters" --engine sherman --break "$(list 128 cells)"
refuse "--break: with --without longer than 511 characters" --engine sherman --without "$(list 80 merge)" \
    --break "$(list 20 cells)"

# --- engines ---
refuse "no engine 'frob'; use dex, sherman or fg+" --engine frob
refuse "p-sherman is right only if" --engine p-sherman
refuse "sherman has no technique 'frob'" --engine fg+ --without frob
run "$PANDO" check --engine fg+ --seeds 1..5 --workers 1
[[ $RC == 0 ]] && grep -q '^check fg+: 5 of 5 seeds, 0 violated; .* 0 merges' <<< "$OUT" || fail "fg+: $RC: $OUT $ERR"

# --- what is said while clients die ---
# Of operations that wait for one another in a process that has no pool any more nothing is said: no error.
run "$PANDO" check --engine dex --seeds 28 --faults crash,answers
[[ $RC == 0 && -z $ERR ]] || fail "dead clients: $RC: $OUT $ERR"

# --- numbers ---
refuse "--ops: 2 are too few for 4 compute nodes" --ops 2 --nodes 4
run "$PANDO" check --ops 4 --nodes 4 --seeds 1 --faults none
[[ $RC == 0 ]] && grep -q '1 of 1 seeds, 0 violated' <<< "$OUT" || fail "an operation each: $RC: $OUT $ERR"
echo "check: ok"
