/*
 * fence_int.h - who is attached to a window and how to end it, and what killed processes leave behind: fence.c,
 * process.c, attached.c, temporary.c.
 */
#ifndef FABRIC_SHM_FENCE_INT_H
#define FABRIC_SHM_FENCE_INT_H

#include "fabric/shm/attached_fmt.h"
#include "fabric/shm/shm_int.h"

/* ---- fence.c, process.c ---------------------------------------------------------------------- */

/* A member's process: what identifies it, and a descriptor of it, -1 when none is to be had. */
struct shm_attached {
    struct window_attachment who; /* process 0: nobody */
    int pidfd;
    bool hearsay; /* by what the window says, which all members can write: not to be killed */
};

enum { SHM_PROCESS_UNSEEN = UINT32_MAX }; /* attached, but this process cannot tell which it is */

/* The machine's boot; zeroes when that is not to be known. */
struct window_boot shm_boot_now(void);

/* Fills in `process`, `start_time` and the descriptor of who connected a socket; false: it has hung
 * up or ended (errno is 0), or cannot be held (errno says why). The descriptor is the caller's. */
bool shm_process_at(int socket, struct shm_attached *out);

enum shm_life { SHM_GONE, SHM_LIVES, SHM_UNKNOWN };

/* Does this very process live? If it does, it has its descriptor afterwards. */
enum shm_life shm_process_look(struct shm_attached *who);

/* Closes the descriptor. */
void shm_process_let_go(struct shm_attached *who);

/* Kills it and waits until it is dead. UNSUPPORTED: it is this process, or not to be killed. */
PANDO_MUST_CHECK enum pando_status shm_process_end_co(struct shm_attached *who);

/*
 * Attachments: what members' processes there are, for a fabric with a window. They are on record in
 * a file of the owner, so that a restarted one still knows whom to end. Only the server's loop
 * touches them, or before there is a server whoever fences.
 */
PANDO_MUST_CHECK enum pando_status shm_attachments_open(struct shm_fabric *fabric, char *error,
                                                        size_t error_bytes);
void shm_attachments_close(struct shm_fabric *fabric);
bool shm_is_attached(const struct shm_fabric *fabric, uint16_t member);

/* Lets a process in as a member; its descriptor is taken from `who` when it is kept. *fresh: it was
 * not attached as that member before. FENCED; BUSY: another process that may be alive is attached
 * as this member. */
PANDO_MUST_CHECK enum pando_status shm_attach(struct shm_fabric *fabric,
                                              struct fabric_identity identity,
                                              struct shm_attached *who, bool *fresh);
void shm_detach(struct shm_fabric *fabric, uint16_t member);

/* Records the fence and ends the member's process, if that is attached. */
PANDO_MUST_CHECK enum pando_status shm_fence_window_co(struct shm_fabric *fabric,
                                                       struct fabric_identity identity);

/* ---- attached.c: used by fence.c and temporary.c --------------------------------------------- */

enum { SHM_ATTACHED_PATH_MAX = 128 };

/* Where the file of a window lies that is open as `window_fd`. */
void shm_attached_path(const char *location, int window_fd, bool huge, uint64_t id,
                       char path[SHM_ATTACHED_PATH_MAX]);

/* Maps the former owner's file as fabric->record, if there is one of this window. One of another window
 * is removed; with anything else at its path the status and `error` say so, and it stays as it is. */
PANDO_MUST_CHECK enum pando_status shm_attached_open(struct shm_fabric *fabric, char *error,
                                                     size_t error_bytes);

/* Removes a record, of whatever window, and nothing else. */
void shm_attached_remove(const char *path);

/* A member's place in it; the file is made when the first member `comes`. NULL: there is none. */
struct window_attachment *shm_attached_record(struct shm_fabric *fabric, uint16_t member,
                                              bool comes);
void shm_attached_close(struct shm_fabric *fabric, bool remove);

/* ---- temporary.c ----------------------------------------------------------------------------- */

/* True when the path still leads to this file. */
bool shm_path_leads_to(const char *path, int fd);

/* Removes what a process that was killed has left at that path. Only a window is, and only by the one who
 * holds its lock while the path leads to it, so that of two who try none removes what the other has just
 * made. */
void shm_leftover_remove(const char *path);

/* The same of a file that was just made and could not become a window. */
void shm_stillborn_remove(const char *path);

#endif
