#!/usr/bin/env bash
# Every command has --help with an example, a manual page that groff has nothing to say against, and
# completion, of engines and of the tables of a pool as well.
source "$(dirname "$0")/lib.sh"
SHARE=$(dirname "$PANDO")/share
[[ -f $SHARE/man/pando.1 ]] || { echo "SKIP: no manual pages; build the target 'pages'"; exit 77; }

# --- help and manual ---
COUNT=0
while IFS=$'\t' read -r command summary; do
    read -ra words <<< "$command"
    page=$SHARE/man/pando-${command// /-}.1
    plain=$(tr -d '\\' < "$page")
    run "$PANDO" "${words[@]}" --help
    [[ $RC == 0 && -z $ERR ]] || fail "pando $command --help: exit status $RC: $ERR"
    grep -q "^Usage: pando $command " <<< "$OUT" || fail "pando $command --help: no usage: $OUT"
    grep -q '^Example:' <<< "$OUT" || fail "pando $command --help: no example"
    # Every option of --help is in the manual page and in the completion.
    flags=$("$PANDO" "${words[@]}" --help=flags | cut -f1)
    options=$(sed -n '/^Options:/,/^$/s/^  --\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/--\2/p' <<< "$OUT")
    [[ -n $options ]] || fail "pando $command --help: no options"
    for option in $options; do
        grep -qx -- "$option" <<< "$flags" || fail "pando $command: no completion of $option"
        name=${option#--}
        grep -q "^fB--\(\[no-\]\)\{0,1\}${name}fR" <<< "$plain" ||
            fail "$page: nothing about $option"
    done
    [[ -n $summary ]] || fail "pando $command: no summary"
    ((++COUNT))
done < <("$PANDO" --help=commands)
((COUNT >= 10)) || fail "only $COUNT commands"
[[ $(ls "$SHARE"/man/*.1 | wc -l) == $((COUNT + 1)) ]] || fail "pages: $(ls "$SHARE/man")"
command -v groff > /dev/null || { echo "SKIP: no groff"; exit 77; }
for page in "$SHARE"/man/*.1; do
    groff -man -ww -Tutf8 -z "$page" 2> "$DIR/groff.err" || fail "$page: $(cat "$DIR/groff.err")"
    [[ ! -s $DIR/groff.err ]] || fail "$page: $(cat "$DIR/groff.err")"
done

# --- completion, as bash does it ---
bash -n "$SHARE/completion/pando" || fail "the bash completion is no shell script"
complete_bash() { # LINE: what bash offers for its last word
    PATH=$(dirname "$PANDO"):$PATH bash --norc -c '
        source "$1"
        COMP_LINE=$2 COMP_POINT=${#2}
        read -ra COMP_WORDS <<< "$2"
        COMP_WORDS[0]=pando
        _pando
        printf "%s\n" "${COMPREPLY[@]}"' complete "$SHARE/completion/pando" "$1" 2> /dev/null
}
offered() { # LINE WORD...: each is offered; not at once where a pool has a second to answer in
    local line=$1 got
    shift
    for _ in $(seq 20); do
        got=$(complete_bash "$line")
        ! grep -qx -- "$1" <<< "$got" || break
    done
    for word in "$@"; do
        grep -qx -- "$word" <<< "$got" || fail "'$line<TAB>' does not offer $word: $got"
    done
}
touch "$DIR/afile.conf"
offered 'pando ' memory status table dump load
offered 'pando mem' memory
offered 'pando table ' list create drop verify
offered 'pando table cr' create
offered 'pando table create --key' --key-max --key-size
offered 'pando memory --' --listen --shm --size --config --help
offered 'pando bench --no-k' --no-keep
offered 'pando memory --log-level ' error warn info debug
offered "pando memory --config $DIR/afi" "$DIR/afile.conf"
offered 'pando status --pool emb' embedded:
offered 'pando serve --engine ' dex sherman
offered 'pando table create --engine d' dex
offered 'pando memory --log-format ' text json

# Tables, of a pool that is named on the line or by PANDO_POOL. What others chose as a name is not run.
start_memory tables --shm "$PREFIX" --size 128M
for table in users orders 'u$(touch ran)'; do
    run "$PANDO" table create "$table" --pool "shm:$PREFIX"
    [[ $RC == 0 || $table == u\$* ]] || fail "cannot create $table: $ERR"
done
cd "$DIR"
touch "/dev/shm/pando-$PREFIX-\$(touch ran)"
offered "pando table drop --pool shm:$PREFIX u" users
offered "pando table verify --pool=shm:$PREFIX " users orders
offered "pando dump file --pool shm:$PREFIX --table o" orders
PANDO_POOL=shm:$PREFIX offered 'pando table spread ' users orders
# What stands before a colon is a word of its own to readline.
offered "pando status --pool shm:$PREFIX" "$PREFIX"
[[ -z $(complete_bash 'pando table drop ' | tr -d '\n') ]] || fail "offers tables of no pool"
[[ ! -e ran ]] || fail "completion runs what stands in a name"
BEGIN=$SECONDS
[[ -z $(complete_bash "pando table drop --pool tcp:127.0.0.1:9 --secret-file $SECRET " | tr -d '\n') ]] ||
    fail "offers tables of a pool that is not there"
((SECONDS - BEGIN < 10)) || fail "waits $((SECONDS - BEGIN)) s for a pool that is not there"
cd - > /dev/null
[[ -z $(complete_bash 'pando nonesuch --' | tr -d '\n') ]] || fail "completes a command that is none"
for shell in zsh fish; do
    script=$SHARE/completion/_pando
    [[ $shell == zsh ]] || script=$SHARE/completion/pando.fish
    [[ -s $script ]] || fail "no completion for $shell"
    if command -v "$shell" > /dev/null; then
        "$shell" -n "$script" || fail "the completion for $shell is no script of it"
    else
        echo "not checked: $script, for want of $shell"
    fi
done

echo "manual: $COUNT commands: ok"
