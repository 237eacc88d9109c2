/*
 * owners_int.h - what the files of this folder share.
 */
#ifndef OWNERS_OWNERS_INT_H
#define OWNERS_OWNERS_INT_H

#include "owners/call_fmt.h"
#include "owners/owners.h"
#include "pool/intent.h"

/* Room for a call; taken from and given back to the thread's handle. */
struct owners_scratch {
    struct owners_scratch *next;
    uint8_t *bytes; /* POOL_INTENT_BYTES */
    uint8_t *blob;  /* a long value, when one was fetched */
};

/* NULL: no memory. */
struct owners_scratch *owners_scratch_take(struct owners_handle *self);
void owners_scratch_give(struct owners_handle *self, struct owners_scratch *scratch);

static inline void owners_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Puts a new view in the place of the old one, which is freed when every operation that might see it
 * has ended: this waits for them. */
void owners_map_publish_co(struct owners_handle *self, struct map *map);

/* Whether a member is gone for good: fenced everywhere, what it left half done finished. */
PANDO_MUST_CHECK enum pando_status owners_member_gone_co(struct owners_handle *self,
                                                         uint64_t member, bool *gone);

/* Whether a map needs this process's log. */
bool owners_log_named(const struct owners *owners, const struct map *map);

/* One change of ownership at a time. Restarts: another has lasted for a lease, and goes on: a
 * take-over, or one that waits for the pool; when the process is to end, at once. FENCED. */
PANDO_MUST_CHECK struct step owners_change_begin_co(struct owners *owners);
void owners_change_end(struct owners *owners);

/* Replaces the map by a changed one and makes that the view; restarts: another has changed it, or it
 * is changed and not the view yet. FULL, NO_MEMORY: it is as it was. Frees both in the end. */
PANDO_MUST_CHECK struct step owners_map_replace_co(struct owners_handle *self, struct map *from,
                                                   struct map *to);

/* Makes a map that counts in the pool the view. Consumes it. */
PANDO_MUST_CHECK enum pando_status owners_map_install_co(struct owners_handle *self,
                                                         struct map *map);

/* Makes one partition of neighbouring ones of this process, if the map is crowded: join.c. */
void owners_join_partitions_co(struct owners_handle *self);

/* As owners_give_co, to one that looks for them by itself: it is not told. */
PANDO_MUST_CHECK struct step owners_give_quietly_co(struct owners_handle *self,
                                                    const struct owners_range *range, uint64_t to);

/* Asks a member that takes over from a dead owner for one of its keys, which the caller is not told. CORRUPT: it
 * cannot take over, because of damage. */
PANDO_MUST_CHECK enum pando_status owners_ask_taker_co(struct owners_handle *self, uint64_t taker,
                                                       struct slice key);

/* Asks an owner to give keys to a member. */
PANDO_MUST_CHECK struct step owners_forward_give_co(struct owners_handle *self, uint64_t owner,
                                                    const struct owners_range *range, uint64_t to);

/* A part of maintenance: gives keys to a process that has less to do, if this one has much more than most. Begins to
 * ask the others if that is due, and decides in a later round. */
void owners_balance_co(struct owners_handle *self, bool due);

/* ---- spread.c -------------------------------------------------------------------------------- */

struct slice owners_bounds_at(const struct owners_bounds *bounds, size_t i);
void owners_bounds_free(struct owners_bounds *bounds);

/* From a key to where its partition ends. */
struct owners_range owners_rest_of_part(struct owners_handle *self, struct slice key,
                                        uint8_t high[ENGINE_KEY_MAX]);

/* ---- survey.c -------------------------------------------------------------------------------- */

enum { OWNERS_PARTICIPANTS_MAX = 64 };

/* Asks all members who has the table open, side by side, and this process too unless `others`. It goes on by itself,
 * in the handle's session, which is held; the handle, and the table, may go meanwhile. */
PANDO_MUST_CHECK enum pando_status owners_survey_start_co(struct owners_handle *self, bool others,
                                                          struct owners_survey **out);

/* Whether all have answered, or will not any more; and waits for that: seconds, if one swallows what is sent to it. */
bool owners_survey_done(const struct owners_survey *survey);
void owners_survey_wait_co(struct owners_survey *survey);

/* Who has answered so far, and how much each had to do in the last lease, by its own count. Returns how many. */
unsigned owners_survey_answers(const struct owners_survey *survey, uint64_t members[],
                               uint64_t loads[], unsigned capacity);

/* Any thread; NULL is none. Who has not been asked yet is not asked any more. */
void owners_survey_release(struct owners_survey *survey);

#endif
