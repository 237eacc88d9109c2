/*
 * parse.h - numbers, sizes, durations and addresses as people write them.
 *
 * Strict: no surrounding space, no sign, nothing left over. PANDO_INVALID says the text is not of
 * the form, PANDO_RANGE that it is but the number does not fit. Outputs are set only on success.
 */
#ifndef BASE_PARSE_H
#define BASE_PARSE_H

#include <stddef.h>
#include <stdint.h>

#include "pando/pando.h"

/* Decimal digits. */
PANDO_MUST_CHECK enum pando_status parse_u64(const char *text, uint64_t *out);

/*
 * "4096", "64M", "1.5G", "8GiB", "512B": K, M, G and T in either case are powers of 1024, with or
 * without "iB" or "B". A fraction (up to nine digits) needs such a unit; the result is rounded
 * down.
 */
PANDO_MUST_CHECK enum pando_status parse_size(const char *text, uint64_t *out_bytes);

/* "100ns", "3us", "10ms", "5s", "1.5s", "2m", "1h"; the unit may be left out of "0" only. */
PANDO_MUST_CHECK enum pando_status parse_duration_ns(const char *text, uint64_t *out_ns);

#define HOST_PORT_HOST_MAX 253 /* the longest name DNS knows */

struct host_port {
    char host[HOST_PORT_HOST_MAX + 1]; /* without brackets */
    char port_text[6];                 /* as getaddrinfo(3) wants it, no leading zeros */
    uint16_t port;
};

/*
 * "host:port", "10.0.0.1:port" or "[::1]:port", the latter with an optional zone
 * ("[fe80::1%eth0]"). Port 0 is accepted: a listener takes it as "any". The name is not looked up.
 */
PANDO_MUST_CHECK enum pando_status parse_host_port(const char *text, struct host_port *out);

/* What is wrong with such a text, by what came of parsing it: "is not host:port", or "has a port over
 * 65535". */
const char *parse_host_port_fault(enum pando_status status);

#define FORMAT_SIZE_MAX 16

/* "8.0 GiB", "512 B": one decimal, up to EiB. Returns `out`, of at least FORMAT_SIZE_MAX bytes. */
char *format_size(char *out, size_t out_size, uint64_t bytes);

#endif
