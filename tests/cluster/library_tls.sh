#!/usr/bin/env bash
# The C library over TLS: with the right authority it works, with another or without TLS it is refused and
# says so.
source "$(dirname "$0")/lib.sh"
CLIENT=$(dirname "$PANDO")/tests/cluster_library_client
[[ -x $CLIENT ]] || { echo "SKIP: $CLIENT is not built"; exit 77; }
command -v openssl > /dev/null || { echo "SKIP: no openssl"; exit 77; }
RUN_SECONDS=40

certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=IP:127.0.0.1" -keyout "$DIR/$1.key" -out "$DIR/$1.pem" 2> /dev/null
    chmod 600 "$DIR/$1.key"
}
certificate right
certificate wrong
start_memory memory --listen 127.0.0.1:0 --size 256M --secret-file "$SECRET" \
    --tls-cert "$DIR/right.pem" --tls-key "$DIR/right.key"

LIBRARY_CLIENT_CA=$DIR/right.pem run "$CLIENT" "tcp:$ADDRESS" "$SECRET" 1
[[ $RC == 0 && $OUT == *" 0 lost"* ]] || fail "with TLS: exit $RC: $ERR $OUT"
GOOD=${OUT##*$'\n'}
LIBRARY_CLIENT_CA=$DIR/wrong.pem run "$CLIENT" "tcp:$ADDRESS" "$SECRET" 1
[[ $RC == 1 && $ERR == *"memory node 0"* ]] || fail "another authority: exit $RC: $ERR"
run "$CLIENT" "tcp:$ADDRESS" "$SECRET" 1
[[ $RC == 1 && $ERR == *"memory node 0"* ]] || fail "without TLS: exit $RC: $ERR"
LIBRARY_CLIENT_CA=$DIR/none.pem run "$CLIENT" "tcp:$ADDRESS" "$SECRET" 1
[[ $RC == 1 && $ERR == *none.pem* ]] || fail "no such file: exit $RC: $ERR"
run "$CLIENT" "tcp:$ADDRESS" "$DIR/nothing" 1
[[ $RC == 1 && $ERR == *nothing* ]] || fail "no secret: exit $RC: $ERR"
echo "$GOOD"
