/*
 * completion.h - `pando completion SHELL`.
 */
#ifndef CMD_COMPLETION_H
#define CMD_COMPLETION_H

int cmd_completion(int argc, char **argv);

#endif
