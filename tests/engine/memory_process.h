/*
 * memory_process.h - memory nodes as processes of their own, served over TCP or RDMA: this program
 * started again.
 */
#ifndef ENGINE_MEMORY_PROCESS_H
#define ENGINE_MEMORY_PROCESS_H

#include <stddef.h>

struct memory_processes;

/* Starts `count` on "tcp" or "verbs" and waits until they serve. */
struct memory_processes *memory_processes_start(const char *fabric, unsigned count);

/* "tcp:..." or "verbs:..." and the file with their secret; both live as long as they do. */
const char *memory_processes_uri(const struct memory_processes *memory);
const char *memory_processes_secret(const struct memory_processes *memory);

/* They have to end in good order. */
void memory_processes_stop(struct memory_processes *memory);

/* The main function of such a process: argv is what follows "--memory". */
int memory_process_main(int argc, char **argv);

#endif
