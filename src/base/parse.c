#include "base/parse.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define FRACTION_DIGITS_MAX 9

/* `whole` + `fraction` / `fraction_unit` */
struct decimal {
    uint64_t whole, fraction, fraction_unit;
    bool has_fraction;
};

struct unit {
    const char *name;
    uint64_t factor;
};

/* The C library's isdigit and friends depend on the locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Digits at `*text`, which is moved behind all of them even if the number does not fit. */
static enum pando_status scan_u64(const char **text, uint64_t *out)
{
    uint64_t value = 0;
    bool overflow = false;

    if (!is_digit(**text))
        return PANDO_INVALID;
    for (; is_digit(**text); (*text)++) {
        uint64_t digit = (uint64_t)(**text - '0');
        overflow |= __builtin_mul_overflow(value, (uint64_t)10, &value);
        overflow |= __builtin_add_overflow(value, digit, &value);
    }
    *out = value;
    return overflow ? PANDO_RANGE : PANDO_OK;
}

static enum pando_status scan_decimal(const char **text, struct decimal *out)
{
    *out = (struct decimal){.fraction_unit = 1};
    enum pando_status status = scan_u64(text, &out->whole);
    if (status == PANDO_INVALID || **text != '.')
        return status;

    out->has_fraction = true;
    const char *digits = ++*text;
    for (; is_digit(**text); (*text)++) {
        if (*text - digits == FRACTION_DIGITS_MAX)
            return PANDO_INVALID;
        out->fraction = out->fraction * 10 + (uint64_t)(**text - '0');
        out->fraction_unit *= 10;
    }
    return *text == digits ? PANDO_INVALID : status;
}

static enum pando_status scale(const struct decimal *number, uint64_t factor, uint64_t *out)
{
    typedef unsigned __int128 wide;

    if (number->has_fraction && factor == 1)
        return PANDO_INVALID;
    wide product =
        (wide)number->whole * factor + (wide)number->fraction * factor / number->fraction_unit;
    if (product > UINT64_MAX)
        return PANDO_RANGE;
    *out = (uint64_t)product;
    return PANDO_OK;
}

enum pando_status parse_u64(const char *text, uint64_t *out)
{
    uint64_t value;
    enum pando_status status = scan_u64(&text, &value);

    if (*text != '\0')
        return PANDO_INVALID;
    if (status == PANDO_OK)
        *out = value;
    return status;
}

/* "", "B", or one of "KMGT" alone or with "B" or "iB"; the factor is 0 for anything else. */
static uint64_t size_factor(const char *unit)
{
    static const char prefixes[] = "kmgt";
    uint64_t factor = 1;

    if (is_letter(unit[0]) && unit[0] != 'B') {
        const char *prefix = strchr(prefixes, unit[0] | 0x20);
        if (prefix == NULL)
            return 0;
        factor = UINT64_C(1024) << (10 * (prefix - prefixes));
        unit += unit[1] == 'i' && unit[2] == 'B' ? 2 : 1;
    }
    if (unit[0] == 'B')
        unit++;
    return unit[0] == '\0' ? factor : 0;
}

enum pando_status parse_size(const char *text, uint64_t *out_bytes)
{
    struct decimal number;
    enum pando_status status = scan_decimal(&text, &number);
    if (status == PANDO_INVALID)
        return status;

    uint64_t factor = size_factor(text);
    if (factor == 0)
        return PANDO_INVALID;
    return status == PANDO_OK ? scale(&number, factor, out_bytes) : status;
}

enum pando_status parse_duration_ns(const char *text, uint64_t *out_ns)
{
    static const struct unit units[] = {
        {"ns", 1},
        {"us", 1000},
        {"ms", 1000000},
        {"s", 1000000000},
        {"m", UINT64_C(60) * 1000000000},
        {"h", UINT64_C(3600) * 1000000000},
    };
    struct decimal number;

    if (strcmp(text, "0") == 0) {
        *out_ns = 0;
        return PANDO_OK;
    }
    enum pando_status status = scan_decimal(&text, &number);
    if (status == PANDO_INVALID)
        return status;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text, units[i].name) == 0)
            return status == PANDO_OK ? scale(&number, units[i].factor, out_ns) : status;
    }
    return PANDO_INVALID;
}

static bool is_host_name(const char *host)
{
    if (host[0] == '-' || host[0] == '.')
        return false;
    for (const char *p = host; *p != '\0'; p++) {
        if (!is_letter(*p) && !is_digit(*p) && *p != '-' && *p != '.' && *p != '_')
            return false;
        if (p[0] == '.' && p[1] == '.')
            return false;
    }
    return true;
}

static bool is_ipv6(const char *host)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr parsed;
    const char *zone = strchr(host, '%');
    size_t size = zone == NULL ? strlen(host) : (size_t)(zone - host);

    if (size >= sizeof(address) || (zone != NULL && !is_host_name(zone + 1)) ||
        (zone != NULL && zone[1] == '\0'))
        return false;
    memcpy(address, host, size);
    address[size] = '\0';
    return inet_pton(AF_INET6, address, &parsed) == 1;
}

const char *parse_host_port_fault(enum pando_status status)
{
    return status == PANDO_RANGE ? "has a port over 65535" : "is not host:port";
}

enum pando_status parse_host_port(const char *text, struct host_port *out)
{
    bool bracketed = text[0] == '[';
    const char *host = bracketed ? text + 1 : text;
    const char *host_end = strchr(host, bracketed ? ']' : ':');
    if (host_end == NULL)
        return PANDO_INVALID;
    const char *colon = bracketed ? host_end + 1 : host_end;
    size_t host_size = (size_t)(host_end - host);
    if (*colon != ':' || host_size == 0 || host_size > HOST_PORT_HOST_MAX)
        return PANDO_INVALID;

    struct host_port parsed;
    memcpy(parsed.host, host, host_size);
    parsed.host[host_size] = '\0';
    if (bracketed ? !is_ipv6(parsed.host) : !is_host_name(parsed.host))
        return PANDO_INVALID;

    uint64_t port;
    enum pando_status status = parse_u64(colon + 1, &port);
    if (status != PANDO_OK)
        return status;
    if (port > UINT16_MAX)
        return PANDO_RANGE;
    parsed.port = (uint16_t)port;
    snprintf(parsed.port_text, sizeof(parsed.port_text), "%u", (unsigned)parsed.port);
    *out = parsed;
    return PANDO_OK;
}

char *format_size(char *out, size_t out_size, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;

    pando_assert(out_size >= FORMAT_SIZE_MAX);
    /* 1023.95 would be written as 1024.0 */
    while (value >= (unit == 0 ? 1024 : 1023.95)) {
        value /= 1024;
        unit++;
    }
    snprintf(out, out_size, "%.*f %s", unit == 0 ? 0 : 1, value, units[unit]);
    return out;
}
