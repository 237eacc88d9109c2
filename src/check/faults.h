/*
 * faults.h - faults of a seed that begin at a time.
 */
#ifndef CHECK_FAULTS_H
#define CHECK_FAULTS_H

#include "check/check_int.h"

/* Chooses the kinds of this seed, and what the cluster has to be like for them. */
void check_faults_choose(struct cluster *cluster);

/* And their times, once it is built. */
void check_faults_plan(struct cluster *cluster);

/* The next time that a memory node loses its lock table. */
void check_plan_lock_loss(struct cluster *cluster, struct check_memory *memory, uint64_t since_ns);

/* What is due since the table was ready. */
void check_faults_tend(struct cluster *cluster, uint64_t since_ns);

/* None is left or under way. */
bool check_faults_over(const struct cluster *cluster);

/* A client has joined: some of its allocations will fail. */
void check_faults_joined(struct cluster *cluster, const struct check_slot *slot, struct pool *pool);

/* A memory node has lost what it had: errors are answers, and nobody else can join. */
bool check_lost(const struct cluster *cluster);

/* CORRUPT is an answer. */
bool check_damaged(const struct cluster *cluster);

#endif
