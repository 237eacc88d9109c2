/*
 * seal.c - what node 0 says about a member, in a form that other processes of the pool can check
 * without asking it: an HMAC over what it is about, the pool's id, and the identity.
 *
 * The key is the pool's secret. Where there is none (shm, the simulator) it is a constant: whoever is
 * let in there is trusted like the process itself, and a seal keeps only mistakes out.
 */
#include "base/log.h"
#include "fabric/fabric_int.h"
#include "fabric/stream/credentials.h"

static const struct secret NO_SECRET = {.size = 16, .bytes = "pando: no secret"};

/* What a seal says. */
struct sealed {
    const char *label;
    struct fabric_identity who;
    uint32_t table; /* of a drop; 0 in the others, which do not have it */
};

static struct sealed about_member(enum fabric_seal about, struct fabric_identity who)
{
    static const char *const LABELS[] = {
        [FABRIC_SEAL_FENCE] = "pando fence", [FABRIC_SEAL_MEMBER] = "pando member"};
    return (struct sealed){.label = LABELS[about], .who = who};
}

static struct sealed about_drop(struct fabric_identity who, uint32_t table)
{
    return (struct sealed){.label = "pando drop", .who = who, .table = table};
}

static enum pando_status prove(const struct fabric *fabric, const struct secret *secret,
                               const struct sealed *sealed, uint8_t proof[SECRET_PROOF_BYTES])
{
    uint64_t pool = atomic_load_explicit(&fabric->pool, memory_order_acquire);
    uint32_t packed = (uint32_t)sealed->who.incarnation << 16 | sealed->who.member;
    const struct slice parts[] = {
        slice_of_text(sealed->label),
        slice_of(&pool, sizeof(pool)),
        slice_of(&packed, sizeof(packed)),
        slice_of(&sealed->table, sizeof(sealed->table)),
    };
    return secret_proof(secret, parts, sealed->table == 0 ? 3 : 4, proof);
}

void fabric_set_pool(struct fabric *fabric, uint64_t pool)
{
    atomic_store_explicit(&fabric->pool, pool, memory_order_release);
}

static enum pando_status make(const struct fabric *fabric, const struct sealed *sealed,
                              struct fabric_ticket *out)
{
    uint8_t proof[SECRET_PROOF_BYTES];
    struct credential_set *set =
        fabric->credentials == NULL ? NULL : credentials_hold(fabric->credentials);
    enum pando_status status =
        prove(fabric, set == NULL ? &NO_SECRET : &set->secrets->all[0], sealed, proof);
    if (set != NULL)
        credentials_release(set);
    if (status != PANDO_OK)
        return status;
    out->who = sealed->who;
    memcpy(out->seal, proof, sizeof(out->seal));
    return PANDO_OK;
}

enum pando_status fabric_seal_make(const struct fabric *fabric, enum fabric_seal about,
                                   struct fabric_identity who, struct fabric_ticket *out)
{
    const struct sealed sealed = about_member(about, who);
    return make(fabric, &sealed, out);
}

enum pando_status fabric_seal_make_drop(const struct fabric *fabric, struct fabric_identity who,
                                        uint32_t table, struct fabric_ticket *out)
{
    const struct sealed sealed = about_drop(who, table);
    return table == 0 ? PANDO_INVALID : make(fabric, &sealed, out);
}

/* In constant time, as every comparison of proofs. */
static enum pando_status check_one(const struct fabric *fabric, const struct secret *secret,
                                   const struct sealed *sealed, const uint8_t *seal)
{
    uint8_t proof[SECRET_PROOF_BYTES], given[SECRET_PROOF_BYTES];
    enum pando_status status = prove(fabric, secret, sealed, proof);
    if (status != PANDO_OK)
        return status;
    memcpy(given, proof, sizeof(given));
    memcpy(given, seal, FABRIC_SEAL_BYTES);
    return secret_proof_equal(given, proof) != 0 ? PANDO_OK : PANDO_DENIED;
}

/* By any of the secrets: while they are changed, the maker's first may be another one's second. */
static enum pando_status check(const struct fabric *fabric, const struct sealed *sealed,
                               const uint8_t *seal)
{
    enum pando_status status = PANDO_DENIED;
    if (fabric->credentials == NULL)
        return check_one(fabric, &NO_SECRET, sealed, seal);
    struct credential_set *set = credentials_hold(fabric->credentials);
    for (unsigned i = 0; i < set->secrets->count && status == PANDO_DENIED; i++)
        status = check_one(fabric, &set->secrets->all[i], sealed, seal);
    credentials_release(set);
    return status;
}

enum pando_status fabric_seal_check(const struct fabric *fabric, enum fabric_seal about,
                                    const struct fabric_ticket *ticket)
{
    const struct sealed sealed = about_member(about, ticket->who);
    return check(fabric, &sealed, ticket->seal);
}

enum pando_status fabric_seal_check_drop(const struct fabric *fabric, uint32_t table,
                                         const struct fabric_ticket *ticket)
{
    const struct sealed sealed = about_drop(ticket->who, table);
    return table == 0 ? PANDO_DENIED : check(fabric, &sealed, ticket->seal);
}

/* The first, the second, the fourth and so on: what refuses a storm must not fill the log. */
static void log_refusal(struct fabric *fabric, const struct fabric_ticket *ticket)
{
    uint64_t refused = atomic_fetch_add_explicit(&fabric->refused, 1, memory_order_relaxed) + 1;
    if ((refused & (refused - 1)) != 0)
        return;
    log_warn(
        "refused to fence a member: the request has no ticket of memory node 0; update or stop "
        "the client that sends it",
        log_u64("member", ticket->who.member), log_u64("incarnation", ticket->who.incarnation),
        log_u64("refused", refused));
}

enum pando_status fabric_fence_check(struct fabric *fabric, const struct fabric_ticket *ticket)
{
    if (ticket->who.member == 0 || ticket->who.member >= FABRIC_MEMBERS_MAX)
        return PANDO_INVALID;
    enum pando_status status = fabric_seal_check(fabric, FABRIC_SEAL_FENCE, ticket);
    if (status == PANDO_DENIED)
        log_refusal(fabric, ticket);
    return status;
}
