/*
 * channel.h - a stream used by one task: nothing here is hot. Every wait has a deadline.
 */
#ifndef FABRIC_SESSION_CHANNEL_H
#define FABRIC_SESSION_CHANNEL_H

#include "fabric/session/wire.h"
#include "fabric/stream/stream.h"
#include "rt/io.h"

/* Waits until the socket is ready for `events` (EPOLLIN, EPOLLOUT), or broken. */
PANDO_MUST_CHECK enum pando_status channel_wait_co(int fd, uint32_t events, uint64_t deadline_ns);

/* All of it, or BROKEN or TIMEOUT. */
PANDO_MUST_CHECK enum pando_status channel_send_co(struct stream *stream, const void *bytes,
                                                   size_t size, uint64_t deadline_ns);
PANDO_MUST_CHECK enum pando_status channel_receive_co(struct stream *stream, void *bytes,
                                                      size_t size, uint64_t deadline_ns);

/* Goes on with a TLS handshake until it is done: OK, DENIED, TIMEOUT, BROKEN. */
PANDO_MUST_CHECK enum pando_status channel_tls_co(struct stream *stream, uint64_t deadline_ns);

/* One frame: its header is written here. */
PANDO_MUST_CHECK enum pando_status channel_send_frame_co(struct stream *stream, enum wire_type type,
                                                         const uint8_t *body, uint32_t size,
                                                         uint64_t deadline_ns);

/* A frame of at most `capacity` bytes; DENIED for anything else. */
PANDO_MUST_CHECK enum pando_status channel_receive_frame_co(struct stream *stream,
                                                            struct wire_frame *frame, uint8_t *body,
                                                            uint32_t capacity,
                                                            uint64_t deadline_ns);

#endif
