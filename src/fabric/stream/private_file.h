/*
 * private_file.h - files that hold secrets, passwords and private keys: the one place where their
 * permissions are checked; and where private keys lie in memory.
 */
#ifndef FABRIC_STREAM_PRIVATE_FILE_H
#define FABRIC_STREAM_PRIVATE_FILE_H

#include <stddef.h>

#include "pando/pando.h"

/*
 * Opens a regular file for reading that nobody but its owner may read or write; the owner is this
 * process's user, or root. One that belongs to root may let its group read it, as /etc/ssl/private and /etc/pando do for services. What is
 * checked is what was opened. `kind` names it in messages: "secret file", "private key". The
 * descriptor is the caller's. Errors as one line for a person, without the contents.
 */
PANDO_MUST_CHECK enum pando_status private_file_open(const char *kind, const char *path, int *fd,
                                                     char *error, size_t error_bytes);

/* Has OpenSSL take its memory, with private keys and those of connections in it, from where core
 * dumps do not look. For a program, before anything else uses OpenSSL: it is a setting of the
 * process, which a library leaves to its application. */
void private_openssl_memory(void);

#endif
