/*
 * check.h - what a test program needs: a check that fails stops the program with exit status 1 and
 * one line saying where and what; a test that cannot run here exits with 77.
 */
#ifndef TESTS_LIB_CHECK_H
#define TESTS_LIB_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pando/pando.h"

#define CHECK_FAIL(format, ...)                                                                    \
    do {                                                                                           \
        fprintf(stderr, "%s:%d: " format "\n", __FILE__, __LINE__, ##__VA_ARGS__);                 \
        exit(1);                                                                                   \
    } while (0)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            CHECK_FAIL("%s", #condition);                                                          \
    } while (0)

/* Each argument of the following is evaluated once. */
#define CHECK_STATUS(actual, expected)                                                             \
    do {                                                                                           \
        enum pando_status check_actual_ = (actual), check_expected_ = (expected);                  \
        if (check_actual_ != check_expected_)                                                      \
            CHECK_FAIL("%s is '%s', not '%s'", #actual, pando_status_text(check_actual_),          \
                       pando_status_text(check_expected_));                                        \
    } while (0)

#define CHECK_OK(status) CHECK_STATUS(status, PANDO_OK)

#define CHECK_EQ_U64(actual, expected)                                                             \
    do {                                                                                           \
        uint64_t check_actual_ = (actual), check_expected_ = (expected);                           \
        if (check_actual_ != check_expected_)                                                      \
            CHECK_FAIL("%s is %" PRIu64 " (0x%" PRIx64 "), not %" PRIu64 " (0x%" PRIx64 ")",       \
                       #actual, check_actual_, check_actual_, check_expected_, check_expected_);   \
    } while (0)

#define CHECK_EQ_TEXT(actual, expected)                                                            \
    do {                                                                                           \
        const char *check_actual_ = (actual), *check_expected_ = (expected);                       \
        if (strcmp(check_actual_, check_expected_) != 0)                                           \
            CHECK_FAIL("%s is\n  %s\nnot\n  %s", #actual, check_actual_, check_expected_);         \
    } while (0)

#define SKIP(reason)                                                                               \
    do {                                                                                           \
        printf("SKIP: %s\n", reason);                                                              \
        exit(77);                                                                                  \
    } while (0)

#endif
