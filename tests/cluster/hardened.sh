#!/usr/bin/env bash
# What the compiler and the linker can do against the use of a fault is in the program and in the
# library: addresses that nobody knows, tables that nobody can write to, guards on stacks, checked
# copies, and no memory that is both writable and executable.
source "$(dirname "$0")/lib.sh"

for tool in readelf objdump; do
    command -v "$tool" > /dev/null || { echo "SKIP: no $tool; install binutils"; exit 77; }
done

# check FILE WHAT PATTERN READELF-OPTIONS...: the pattern is in what readelf says of it.
check() {
    local file=$1 what=$2 pattern=$3
    shift 3
    LC_ALL=C readelf --wide "$@" "$file" > "$DIR/readelf" 2> /dev/null || fail "readelf $* $file"
    grep -Eq -- "$pattern" "$DIR/readelf" || fail "$(basename "$file"): $what: no '$pattern' in readelf $*"
}

check_not() {
    local file=$1 what=$2 pattern=$3
    shift 3
    LC_ALL=C readelf --wide "$@" "$file" > "$DIR/readelf" 2> /dev/null || fail "readelf $* $file"
    ! grep -Eq -- "$pattern" "$DIR/readelf" || fail "$(basename "$file"): $what: '$pattern' in readelf $*"
}

# guarded FILE LEAST NAMES...: at least so many functions check a guard before they return. NAMES are "A|B|C", where A
# may be inlined into B, and that into C: the first that is there is one of them.
guarded() {
    local file=$1 least=$2 count names name
    shift 2
    LC_ALL=C objdump --disassemble --no-show-raw-insn "$file" > "$DIR/code" 2> "$DIR/objdump" ||
        fail "objdump $file: $(cat "$DIR/objdump")"
    awk '/^[0-9a-f]+ <.*>:$/ { function_ = $2 }
         /<__stack_chk_fail/ { if (function_ !~ /__stack_chk_fail/) guarded[function_] = 1 }
         END { for (function_ in guarded) print substr(function_, 2, length(function_) - 3) }' \
        "$DIR/code" | sed 's/[.].*//' | sort -u > "$DIR/guarded"
    count=$(wc -l < "$DIR/guarded")
    echo "$(basename "$file"): $count guarded functions"
    ((count >= least)) || fail "$(basename "$file"): only $count functions are guarded, not $least"
    for names in "$@"; do
        for name in ${names//|/ } ""; do
            ! grep -Eq "^[0-9a-f]+ <$name([.].*)?>:" "$DIR/code" || break
        done
        [[ -n $name ]] || fail "$(basename "$file") has none of $names"
        grep -qx -- "$name" "$DIR/guarded" || fail "$(basename "$file"): no guard on the stack of $name"
    done
}

LIBRARY=$(readlink -f "$BUILD/libpando.so")
for file in "$PANDO" "$LIBRARY"; do
    check "$file" "loaded at any address" '^ *Type: +DYN ' --file-header
    check "$file" "relocations end read-only" '^ +GNU_RELRO ' --program-headers
    check "$file" "symbols are bound at once" 'BIND_NOW|FLAGS_1.* NOW' --dynamic
    check "$file" "no code on stacks" '^ +GNU_STACK .* RW +' --program-headers
    check_not "$file" "nothing writable and executable" ' RWE ' --program-headers
    check_not "$file" "no relocations in code" 'TEXTREL' --dynamic
    check "$file" "guards on stacks" '__stack_chk_fail' --dyn-syms
    check "$file" "checked copies" '__(memcpy|snprintf|vsnprintf|read|memset)_chk' --dyn-syms
done
# What reads strangers' bytes into arrays: the handshake, its proofs, and requests of Redis clients.
HANDSHAKE=("handshake_get_welcome" "secret_proof" "make_proof")
guarded "$PANDO" 300 "${HANDSHAKE[@]}" "resp_parse|next_request|requests_run_co|serve_co" "command_hello_co" "authenticate_co"
guarded "$LIBRARY" 80 "${HANDSHAKE[@]}"
check "$PANDO" "a position independent program" 'FLAGS_1.* PIE' --dynamic
echo "hardened: ok"
