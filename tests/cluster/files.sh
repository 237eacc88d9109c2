#!/usr/bin/env bash
# Files that pando writes or trusts: a window and a dump take the place of nothing that is not theirs, a
# client does not believe another user's server, and secrets and keys that others may read are refused.
source "$(dirname "$0")/lib.sh"
umask 022
SKIPPED=

# refused STATUS PATTERN COMMAND...: that exit status, and one line on stderr that matches.
refused() {
    local status=$1 pattern=$2
    shift 2
    run "$@"
    [[ $RC == "$status" ]] || fail "exit status $RC, not $status: $* ($OUT$ERR)"
    [[ $(wc -l < "$DIR/run.err") == 1 ]] || fail "not one line: $*: $ERR"
    grep -Eq -- "$pattern" <<< "$ERR" || fail "no '$pattern' from: $*: $ERR"
}

# What a path is, and what is in it or where it leads.
picture() {
    stat --format '%F %i %a %u %g %s %t:%T %h' "$1"
    if [[ -L $1 ]]; then readlink "$1"; elif [[ -f $1 ]]; then sha256sum < "$1"; fi
}

# kept PATH STATUS PATTERN COMMAND...: refused, and the path is what it was.
kept() {
    local path=$1 before
    shift
    before=$(picture "$path")
    refused "$@"
    [[ $(picture "$path") == "$before" ]] || fail "$path was changed: $before: $(picture "$path")"
}

mkdir "$DIR/there"
THERE=$DIR/there
printf 'root:x:0:0:root:/root:/bin/bash\n' > "$THERE/passwd"
(umask 077 && cp "$THERE/passwd" "$THERE/passwd-0600")
head -c 100000 /dev/urandom > "$THERE/large"
: > "$THERE/target"
ln -s target "$THERE/link"
mkfifo "$THERE/fifo"
KINDS=(link fifo)
if [[ $(id -u) == 0 ]] && mknod -m 600 "$THERE/null" c 1 3 2> /dev/null; then
    mknod -m 600 "$THERE/disk" b 7 200
    KINDS+=(null disk)
else
    SKIPPED="devices and other users need root"
fi

# --- windows ---
memory() { echo "$PANDO" memory --size 64M --shm "$@"; }
for name in passwd passwd-0600 large; do
    kept "$THERE/$name" 1 "$name: it holds something else than a window; it is left as it is" $(memory "$THERE/$name")
done
kept "$THERE/link" 1 "symbolic link" $(memory "$THERE/link")
kept "$THERE/target" 1 "symbolic link" $(memory "$THERE/link")
kept "$THERE/fifo" 1 "no regular file" $(memory "$THERE/fifo")
refused 1 "is a folder" $(memory "$THERE/../there")
if [[ -z $SKIPPED ]]; then
    kept "$THERE/null" 1 "no DAX device" $(memory "$THERE/null")
    kept "$THERE/null" 1 "no DAX device" $(memory "$THERE/null") --dax
    kept "$THERE/disk" 1 "no regular file" $(memory "$THERE/disk") --dax
    refused 1 "no DAX device" $(memory "$THERE/null") --listen 127.0.0.1:0 --secret-file "$SECRET"
fi
refused 2 "path of the device" $(memory name) --dax

# --- beside windows ---
(umask 077 && echo 'my notes' > "$THERE/w.attached")
kept "$THERE/w.attached" 1 "w.attached: it holds something else" $(memory "$THERE/w")
[[ ! -e $THERE/w ]] || fail "a refused start leaves a window"
echo 'my notes' > "$THERE/notes"
ln -s "$THERE/notes" "$THERE/l.attached"
kept "$THERE/l.attached" 1 "l.attached: it is a symbolic link" $(memory "$THERE/l")
kept "$THERE/notes" 1 "l.attached: it is a symbolic link" $(memory "$THERE/l")
(umask 077 && head -c 20000 /dev/urandom > "$THERE/o.attached")
kept "$THERE/o.attached" 1 "o.attached: it holds something else" $(memory "$THERE/o")

# The record of another window names processes of this machine: nobody is ended for it. Longer than a record
# it is none.
start_memory other --shm "$THERE/other" --size 64M
start client "$PANDO" serve --pool "shm:$THERE/other" --listen 127.0.0.1:0
CLIENT=$PID
wait_for ready "$DIR/client.out"
cp -p "$THERE/other.attached" "$THERE/longer.attached"
cp -p "$THERE/other.attached" "$THERE/stale.attached"
echo more >> "$THERE/longer.attached"
kept "$THERE/longer.attached" 1 "longer.attached: it holds something else" $(memory "$THERE/longer")
start_memory stale --shm "$THERE/stale" --size 64M
run "$PANDO" table create users --pool "shm:$THERE/stale"
[[ $RC == 0 ]] || fail "no table in the window beside another one's record: $ERR"
kill -0 "$CLIENT" || fail "another window's record ends a member"

# Another program that listens there, and then is killed.
start used python3 -c '
import socket, sys, time
used = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
used.bind(sys.argv[1])
used.listen(64)
print("listening", flush=True)
time.sleep(600)' "$THERE/used.sock"
USED=$PID
wait_for listening "$DIR/used.out"
kept "$THERE/used.sock" 1 "used.sock: another program uses this socket" $(memory "$THERE/used")
kill -KILL "$USED"
wait "$USED" || true
start_memory used --shm "$THERE/used" --size 64M

: > "$THERE/window" # of mode 0644, as a shell makes it
start_memory window --shm "$THERE/window" --size 64M
grep -q ', new$' "$DIR/window.out" || fail "an empty file is no new window: $(cat "$DIR/window.out")"
[[ $(stat --format %a "$THERE/window" "$THERE/window.sock" | xargs) == "600 600" ]] || fail "others may open the window"
run "$PANDO" table create users --pool "shm:$THERE/window"
[[ $RC == 0 ]] || fail "no table in it: $ERR"
NODE=$PID

# --- dumps ---
dump() { echo "$PANDO" dump --table users --pool "shm:$THERE/window" "$@"; }
for name in "${KINDS[@]}"; do
    kept "$THERE/$name" 1 "it exists and is no regular file" $(dump "$THERE/$name")
done
kept "$THERE/target" 1 "it exists and is no regular file" $(dump "$THERE/link")
refused 1 "it exists and is no regular file" $(dump "$DIR/there")
for name in new passwd; do # nothing was there, and a regular file was
    run $(dump "$THERE/$name")
    [[ $RC == 0 ]] || fail "dump to $name: $ERR"
    [[ $(stat --format %a "$THERE/$name") == 600 ]] || fail "others may read a dump: $(ls -l "$THERE/$name")"
    run "$PANDO" load "$THERE/$name" --table "again-$name" --pool "shm:$THERE/window"
    [[ $RC == 0 ]] || fail "the dump cannot be loaded: $ERR"
done
! ls "$THERE" | grep -q part- || fail "a refused dump leaves something: $(ls "$THERE")"

# --- JSON ---
for command in "status" "table list"; do
    json() { echo "$PANDO" $command --pool "shm:$THERE/window" --json "$@"; }
    for name in "${KINDS[@]}"; do
        kept "$THERE/$name" 1 "$THERE/$name: cannot write it: it exists and is no regular file" $(json "$THERE/$name")
    done
    exec 4<> "$THERE/fifo" # somebody reads from it
    kept "$THERE/fifo" 1 "it exists and is no regular file" $(json "$THERE/fifo")
    exec 4>&-
    kept "$THERE/target" 1 "it exists and is no regular file" $(json "$THERE/link")
    refused 1 "it exists and is no regular file" $(json "$DIR/there")
    printf 'something longer than all of the JSON: %100000s\n' > "$THERE/json"
    chmod 640 "$THERE/json"
    for name in json new.json; do # a regular file was there, and nothing was
        run $(json "$THERE/$name")
        [[ $RC == 0 ]] || fail "JSON to $name: $ERR"
        python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$THERE/$name" || fail "no JSON: $(cat "$THERE/$name")"
    done
    [[ $(stat --format %a "$THERE/json" "$THERE/new.json" | xargs) == "640 644" ]] || fail "modes: $(ls -l "$THERE")"
done

kill -TERM "$NODE"
wait "$NODE" || fail "the memory node did not stop in order"
chmod 640 "$THERE/window"
kept "$THERE/window" 1 "its mode is 0640, but a window's is 0600" $(memory "$THERE/window")
chmod 600 "$THERE/window"

# --- other users ---
if [[ -z $SKIPPED ]] && command -v setpriv > /dev/null && id nobody > /dev/null 2>&1; then
    chown nobody "$THERE/window"
    kept "$THERE/window" 1 "belongs to user [0-9]+, not to user 0" $(memory "$THERE/window")
    cp "$PANDO" "$DIR/pando"
    chmod 755 "$DIR" "$DIR/pando"
    mkdir -m 777 "$DIR/theirs"
    # The socket says whose it is, although root may open all that there is.
    start theirs setpriv --reuid nobody --clear-groups "$DIR/pando" memory --shm "$DIR/theirs/window" --size 64M
    wait_for ready "$DIR/theirs.out"
    run "$PANDO" status --pool "shm:$DIR/theirs/window"
    [[ $RC == 1 ]] || fail "a client believes another user's server: $OUT"
    grep -q 'no permission; run as the user who runs the memory node' <<< "$ERR" || fail "another user's server: $ERR"
else
    SKIPPED="devices and other users need root"
fi

# --- secrets, passwords and keys ---
if command -v openssl > /dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
        -addext "subjectAltName=IP:127.0.0.1" -keyout "$DIR/key" -out "$DIR/cert" 2> /dev/null
    NET=(--listen 127.0.0.1:0 --size 64M --secret-file "$SECRET" --tls-cert "$DIR/cert")
    SERVE=("$PANDO" serve --pool embedded:64M --listen 127.0.0.1:0)
    chmod 644 "$DIR/key"
    refused 1 "private key $DIR/key: others may read it" "$PANDO" memory "${NET[@]}" --tls-key "$DIR/key"
    refused 1 "private key $DIR/key: others may read it" "${SERVE[@]}" \
        --serve-tls 127.0.0.1:0 --serve-tls-cert "$DIR/cert" --serve-tls-key "$DIR/key"
    chmod 620 "$DIR/key"
    refused 1 "private key $DIR/key: others may change it" "$PANDO" memory "${NET[@]}" --tls-key "$DIR/key"
    refused 1 "private key .*not a regular file" "$PANDO" memory "${NET[@]}" --tls-key "$THERE/fifo"
    chmod 600 "$DIR/key"
    (umask 077 && cp "$DIR/cert" "$DIR/no-key")
    refused 1 "cannot use private key" "$PANDO" memory "${NET[@]}" --tls-key "$DIR/no-key"
    start_memory tls "${NET[@]}" --tls-key "$DIR/key"
else
    SKIPPED="no openssl"
fi
cp "$SECRET" "$DIR/public"
chmod 640 "$DIR/public"
refused 1 "others may read it" "$PANDO" memory --listen 127.0.0.1:0 --size 64M --secret-file "$DIR/public"
for option in password-file readonly-password-file; do
    refused 1 "others may read it" "$PANDO" serve --pool embedded:64M --listen 127.0.0.1:0 \
        --password-file "$SECRET" --"$option" "$DIR/public"
done
refused 1 "not a regular file" "$PANDO" memory --listen 127.0.0.1:0 --size 64M --secret-file "$THERE/fifo"
# Root may read a file of anybody's, who may change it at any time.
if [[ -z $SKIPPED ]]; then
    cp "$SECRET" "$DIR/foreign"
    chmod 600 "$DIR/foreign"
    chown nobody "$DIR/foreign"
    refused 1 "secret file $DIR/foreign: it belongs to user [0-9]+, not to user 0; run: chown" \
        "$PANDO" memory --listen 127.0.0.1:0 --size 64M --secret-file "$DIR/foreign"
    refused 1 "$DIR/foreign: it belongs to user" "$PANDO" serve --pool embedded:64M --listen 127.0.0.1:0 \
        --password-file "$DIR/foreign"
    if [[ -f $DIR/key ]]; then
        chown nobody "$DIR/key"
        refused 1 "private key $DIR/key: it belongs to user" "$PANDO" memory "${NET[@]}" --tls-key "$DIR/key"
    fi
    # Somebody else may have one of root's, that his group may read; and nobody else's.
    if command -v setpriv > /dev/null && id nobody > /dev/null 2>&1; then
        THEIRS=(setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups "$DIR/pando")
        cp "$SECRET" "$DIR/roots"
        chown "root:$(id -g nobody)" "$DIR/roots"
        chmod 640 "$DIR/roots"
        start roots "${THEIRS[@]}" memory --listen 127.0.0.1:0 --size 64M --secret-file "$DIR/roots"
        wait_for ready "$DIR/roots.out"
        chown "daemon:$(id -g nobody)" "$DIR/roots"
        refused 1 "$DIR/roots: it belongs to user [0-9]+, not to user" \
            "${THEIRS[@]}" memory --listen 127.0.0.1:0 --size 64M --secret-file "$DIR/roots"
    fi
fi

[[ -z $SKIPPED ]] || { echo "SKIP: $SKIPPED; the rest passed"; exit 77; }
echo "files: ok"
