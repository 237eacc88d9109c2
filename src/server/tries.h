/*
 * tries.h - how often a command tries again when other clients change its key meanwhile.
 *
 * Each try that fails is one in which another client succeeded, so some work gets done; what is bounded is how long
 * one command may lose. After that it answers that it timed out.
 */
#ifndef SERVER_TRIES_H
#define SERVER_TRIES_H

enum {
    TRIES_TO_READ = 8, /* of a value that was replaced between two reads of it */
    TRIES_TO_CHANGE =
        16, /* of a key that was changed between a look at it and the change: that takes longer */
};

#endif
