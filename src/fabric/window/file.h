/*
 * file.h - which file may be a window: opened, checked and, for who serves it, locked.
 *
 * What is checked is what was opened, by its descriptor, so that nobody can put another file in its
 * place meanwhile. That matters in folders that others may write to, such as /dev/shm and /tmp.
 *
 *   a regular file      must belong to this process's user and have mode 0600: whoever else could
 *                       open it could read and change all that is stored
 *     empty             becomes a window; one of a looser mode is replaced by a new file first,
 *                       since another process may have it open
 *     half made         the same: its magic says so, or it has that one's size and no byte yet
 *     a window          is kept
 *     anything else     is refused and left as it is, and so is a file of several names
 *   a DAX device        with WINDOW_CREATE_DAX; ATTACH maps one that its server told about
 *   anything else       is refused: links, other devices, fifos, folders
 */
#ifndef FABRIC_WINDOW_FILE_H
#define FABRIC_WINDOW_FILE_H

#include "fabric/window/window.h"

struct window_file {
    int fd;
    bool device; /* a DAX device; otherwise a regular file */
    bool huge;   /* on hugetlbfs */
    bool there;  /* it is a window: `header` is its header */
    struct window_header header;
};

/* On success the descriptor is the caller's, with the lock when it is to be served. Errors as those
 * of window_map_file. */
PANDO_MUST_CHECK enum pando_status window_file_open(struct window_file *file, const char *path,
                                                    enum window_open how, char *error,
                                                    size_t error_bytes);

/* Gives a file that is no window yet `bytes` bytes, with the mark that it is being made: should this
 * process be killed, the next may go on. `reserve`: with the memory for them. False: errno says why,
 * and the file is empty again. */
PANDO_MUST_CHECK bool window_file_grow(const struct window_file *file, uint64_t bytes,
                                       bool reserve);

/* One line for a person, and the status for an errno or of the caller's choice. */
enum pando_status window_file_fail(char *error, size_t error_bytes, enum pando_status status,
                                   const char *path, const char *what);
enum pando_status window_file_fail_errno(char *error, size_t error_bytes, const char *path,
                                         const char *doing);

#endif
