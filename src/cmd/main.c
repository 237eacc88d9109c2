/*
 * main.c - `pando COMMAND [OPTION]...`
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/bench_engine.h"
#include "cmd/check.h"
#include "cmd/cmd.h"

const char *cmd_program = "pando";

static const struct cmd commands[] = {
    {"serve", "serve a pool to Redis clients", cmd_serve},
    {"memory", "run a memory node", cmd_memory},
    {"status", "show what is in a pool and whether its memory nodes can be reached", cmd_status},
    {"shell", "read and write the words of a pool by hand", cmd_shell},
    {"bench", "measure an engine", cmd_bench},
    {"fabric-bench", "measure raw operations on a pool", cmd_fabric_bench},
    {"check", "attack an engine in a simulated cluster and check what its clients saw", cmd_check},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *out)
{
    fprintf(out, "Usage: pando COMMAND [OPTION]...\n\n"
                 "Pando is an ordered key-value store on disaggregated memory.\n\nCommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`pando COMMAND --help` describes a command; `pando --version` says which "
                 "release this is.\n\n"
                 "Example:\n  pando fabric-bench --pool embedded:1G\n");
}

/* How many letters at the beginning and at the end two words share. */
static size_t likeness(const char *a, const char *b)
{
    size_t front = 0, back = 0, a_size = strlen(a), b_size = strlen(b);
    size_t shorter = a_size < b_size ? a_size : b_size;
    while (front < shorter && a[front] == b[front])
        front++;
    while (front + back < shorter && a[a_size - 1 - back] == b[b_size - 1 - back])
        back++;
    return front + back;
}

static int unknown_command(const char *name)
{
    const char *nearest = NULL;
    size_t best = 1;
    for (size_t i = 0; i < COMMANDS; i++) {
        size_t alike = likeness(name, commands[i].name);
        if (alike > best && alike * 2 >= strlen(commands[i].name)) {
            best = alike;
            nearest = commands[i].name;
        }
    }
    if (nearest != NULL)
        fprintf(stderr, "pando: %.64s: no such command; did you mean %s?\n", name, nearest);
    else
        fprintf(stderr, "pando: %.64s: no such command; `pando --help` lists them\n", name);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc > 0 && argv[0][0] != '\0')
        cmd_program = argv[0];
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("pando %s\n", PANDO_RELEASE);
        return EXIT_OK;
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    return unknown_command(argv[1]);
}
