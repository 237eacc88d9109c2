/*
 * socket_options.h - how a process opens its part of a fabric whose connections begin as sockets: tcp,
 * verbs.
 */
#ifndef FABRIC_SOCKET_OPTIONS_H
#define FABRIC_SOCKET_OPTIONS_H

#include "fabric/fabric.h"
#include "fabric/stream/credentials.h"

struct fabric_socket_options {
    uint16_t node;
    enum fabric_target target;
    const char *listen;      /* "host:port", port 0 for any; NULL: a client only */
    const char *advertise;   /* what others are told; NULL: the listening address itself */
    unsigned threads;        /* of the server; 0 for one */
    const char *secret_file; /* both sides prove that they know its contents */
    struct fabric_tls tls;   /* of the sockets; RDMA itself is never encrypted */
    uint64_t timeout_ns; /* no answer for that long breaks an endpoint; 0 for the default of 5 s */

    /* The window: a file kept over restarts, or NULL for memory of this process. Of verbs all of it is
     * pinned. */
    const char *window_path;
    bool window_dax;      /* the path is a DAX device, all of which becomes the window */
    bool window_reserved; /* all of its memory is taken at open: NO_MEMORY, or there is enough */
    uint64_t host_bytes;
    uint64_t device_bytes;

    /* verbs: "NAME", "NAME/PORT" or either with ",gid=INDEX"; NULL or "": the first device with an
     * active port, and of its GIDs the best. */
    const char *device;
    bool always_fence; /* verbs: treat the device as one that may run a READ before a CAS */
};

#endif
