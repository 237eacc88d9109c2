/*
 * session_int.h - the steps of a client's handshake, which the fuzzer of the client's side takes one by one.
 */
#ifndef FABRIC_SESSION_SESSION_INT_H
#define FABRIC_SESSION_SESSION_INT_H

#include "base/parse.h"
#include "fabric/session/connect.h"
#include "fabric/stream/credentials.h"

/* One connection in the making. */
struct client_attempt {
    struct client_connect *connect;
    struct credential_set *credentials;
    struct handshake handshake;
    struct stream stream;
    uint64_t deadline_ns;
    struct host_port host;
    struct socket_address address;
    enum pando_status resolved;
    char error[256];
};

/* HELLO, and the server's CHALLENGE; then PROOF, and its WELCOME, which is in connect->welcome. Errors as
 * client_connect_co, whose trouble is told in connect->trouble. */
PANDO_MUST_CHECK enum pando_status client_hello_co(struct client_attempt *attempt);
PANDO_MUST_CHECK enum pando_status client_prove_co(struct client_attempt *attempt);

#endif
