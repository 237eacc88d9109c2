/*
 * call_fmt.h - what owners are asked by other members (pool_call_co), with the table's number beside
 * it. Requests come from members that know the secret, and are checked like everything from outside. A
 * callee that does not own the key answers STALE.
 *
 *   GET     request   the key
 *           reply     0 1 1: the value is a blob's reference   1 7 zero   8 the value
 *   MODIFY  request   0 1 what to do if it is absent, 1 1 if it is there (enum engine_change)
 *                     2 1 1: the value is a blob's reference
 *                     3 1 only if it is as follows: 0 no, 1 absent, 2 there, 3 there as a blob
 *                     4 4 key's size   8 4 value's size   12 4 size of what is to be there
 *                     16 key, value, what is to be there
 *           reply     0 1 it was there   1 1 it was not as asked for: nothing was done   2 6 zero
 *   LEAF    request   0 1 1: the leaf with the keys just below   1 7 zero   8 the key
 *           reply     the leaf in the engine's own form (of DEX its page)
 *   FLUSH   request   empty   reply  empty: all that was changed before is in the pool
 *   GIVE    request   0 8 to whom   8 4 size of low   12 4 size of high; the highest bit: no end
 *                     16 low, high
 *           reply     empty
 *   TAKE    request   a key that the callee has just been given: it may look at the map
 *           reply     empty
 *   PING    request   empty   reply  0 8 operations in the last lease
 */
#ifndef OWNERS_CALL_FMT_H
#define OWNERS_CALL_FMT_H

#include <stdint.h>

enum owners_method {
    OWNERS_CALL_GET = 1,
    OWNERS_CALL_MODIFY,
    OWNERS_CALL_LEAF,
    OWNERS_CALL_FLUSH,
    OWNERS_CALL_GIVE,
    OWNERS_CALL_PING,
    OWNERS_CALL_TAKE,
};

enum owners_expect {
    OWNERS_EXPECT_NOTHING,
    OWNERS_EXPECT_ABSENT,
    OWNERS_EXPECT_VALUE,
    OWNERS_EXPECT_BLOB
};

struct owners_get_reply {
    uint8_t blob;
    uint8_t zero[7];
};

struct owners_modify_request {
    uint8_t if_absent, if_present;
    uint8_t blob;
    uint8_t expect;
    uint32_t key_size, value_size, expected_size;
};
_Static_assert(sizeof(struct owners_modify_request) == 16, "format");

struct owners_modify_reply {
    uint8_t was_there;
    uint8_t mismatch;
    uint8_t zero[6];
};

struct owners_leaf_request {
    uint8_t before;
    uint8_t zero[7];
};

struct owners_give_request {
    uint64_t to;
    uint32_t low_size, high_size;
};
_Static_assert(sizeof(struct owners_give_request) == 16, "format");

#define OWNERS_GIVE_NO_HIGH ((uint32_t)1 << 31)

#endif
