#!/usr/bin/env bash
# A program built without libibverbs: everything else is there, and it says in one line what is not. It is
# linked from the objects of the build at hand, with the stand-in for the backend.
source "$(dirname "$0")/lib.sh"
SOURCES=$(cd "$(dirname "$0")/../.." && pwd)
OBJECTS=$(cd "$BUILD" && pwd)/CMakeFiles

# Objects of sources that are gone may lie around.
mapfile -t objects < <(cd "$OBJECTS" && for room in "$SOURCES"/src/*/; do
    room=$(basename "$room")
    find "pando_$room.dir/src/$room" -name '*.o' ! -path '*/fabric/verbs/*'
done | while read -r object; do
    source=${object#*.dir/}
    [[ ! -f $SOURCES/${source%.o} ]] || echo "$OBJECTS/$object"
done; ls "$OBJECTS/pando.dir/src/cmd/main.c.o")
[[ ${#objects[@]} -gt 100 ]] || { echo "SKIP: no objects of a build in $OBJECTS"; exit 77; }
cc -std=gnu17 -D_GNU_SOURCE -I"$SOURCES/include" -I"$SOURCES/src" -o "$DIR/pando" \
    "$SOURCES/src/fabric/verbs/absent.c" "${objects[@]}" -lssl -lcrypto -lm -lpthread
if ldd "$DIR/pando" | grep -q ibverbs; then fail "it needs libibverbs all the same"; fi

LINE="built without RDMA; install libibverbs-dev"
run "$DIR/pando" status --pool verbs:127.0.0.1:7000 --secret-file "$SECRET"
[[ $RC == 1 && $ERR == *"$LINE"* && $(wc -l <<<"$ERR") == 1 ]] || fail "status said ($RC): $ERR"
run "$DIR/pando" memory --listen 127.0.0.1:0 --verbs rxe0 --secret-file "$SECRET" --size 64M
[[ $RC == 1 && $ERR == *"$LINE"* && $(wc -l <<<"$ERR") == 1 ]] || fail "memory said ($RC): $ERR"
run "$DIR/pando" status --pool embedded:64M
[[ $RC == 0 ]] || fail "an embedded pool does not work: $ERR"
echo "$LINE: said by memory and status"
