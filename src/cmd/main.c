/*
 * main.c - `pando COMMAND [OPTION]...`
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/backup.h"
#include "cmd/bench.h"
#include "cmd/check.h"
#include "cmd/cmd.h"
#include "cmd/completion.h"
#include "cmd/dump.h"
#include "cmd/table.h"
#include "cmd/top.h"
#include "fabric/stream/private_file.h"
#include "store/engines.h"

const char *cmd_program = "pando";

/* A name of two words is a command of a group: `pando table list`. */
static const struct cmd commands[] = {
    {"serve", "serve a pool to Redis clients", cmd_serve},
    {"memory", "run a memory node", cmd_memory},
    {"status", "show what is in a pool and whether its memory nodes can be reached", cmd_status},
    {"top", "show live what servers do and how their pool is", cmd_top},
    {"table list", "list the tables of a pool", cmd_table_list},
    {"table create", "create a table", cmd_table_create},
    {"table drop", "remove a table", cmd_table_drop},
    {"table spread", "share a table's keys out to the servers that have it open", cmd_table_spread},
    {"table verify", "check tables, also while they are used", cmd_table_verify},
    {"dump", "write a table to a file", cmd_dump},
    {"load", "load such a file into a table", cmd_load_file},
    {"backup create", "write all tables of a pool to a directory", cmd_backup_create},
    {"backup verify", "check such a directory", cmd_backup_verify},
    {"backup restore", "make the tables of such a directory anew in a pool", cmd_backup_restore},
    {"shell", "read and write the words of a pool by hand", cmd_shell},
    {"bench", "measure an engine", cmd_bench},
    {"completion", "print the completion of commands and options for a shell", cmd_completion},
    {"fabric-bench", "measure raw operations on a pool", cmd_fabric_bench},
    {"check", "attack an engine in a simulated cluster and check what its clients saw", cmd_check},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* All commands, or those of a group. */
static void print_help(FILE *out, const char *group)
{
    size_t size = group == NULL ? 0 : strlen(group);
    fprintf(out,
            "Usage: pando %s%sCOMMAND [OPTION]...\n\n"
            "Pando is an ordered key-value store on disaggregated memory.\n\nCommands:\n",
            group == NULL ? "" : group, group == NULL ? "" : " ");
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strncmp(commands[i].name, group == NULL ? "" : group, size) == 0)
            fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out, "\n`pando COMMAND --help` describes a command; `pando --version` says which "
                 "release this is.\n\n"
                 "Example:\n  pando fabric-bench --pool embedded:1G\n");
}

/* The command that the arguments begin with, and how many words its name has. */
static const struct cmd *find_command(int argc, char **argv, int *words)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        const char *name = commands[i].name, *space = strchr(name, ' ');
        size_t first = space == NULL ? strlen(name) : (size_t)(space - name);
        if (strlen(argv[1]) != first || strncmp(argv[1], name, first) != 0)
            continue;
        if (space != NULL && (argc < 3 || strcmp(argv[2], space + 1) != 0))
            continue;
        *words = space == NULL ? 1 : 2;
        return &commands[i];
    }
    return NULL;
}

static bool is_group(const char *word)
{
    size_t size = strlen(word);
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strncmp(commands[i].name, word, size) == 0 && commands[i].name[size] == ' ')
            return true;
    }
    return false;
}

static int run_group(int argc, char **argv)
{
    bool help = argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
    if (help || argc < 3) {
        print_help(help ? stdout : stderr, argv[1]);
        return help ? EXIT_OK : EXIT_USAGE;
    }
    fprintf(stderr, "pando %s: %.64s: no such command; `pando %s --help` lists them\n", argv[1],
            argv[2], argv[1]);
    return EXIT_USAGE;
}

/* pando(1), in the language of man(7). */
static void print_man(void)
{
    printf(".TH PANDO 1 \"\" \"pando %s\" \"User Commands\"\n.SH NAME\n"
           "pando \\- an ordered key-value store on disaggregated memory\n"
           ".SH SYNOPSIS\n.B pando\n.I COMMAND\n[\\fIOPTION\\fR]...\n"
           ".SH DESCRIPTION\nMemory nodes hold the bytes; every other process reaches them by "
           "one-sided READ, WRITE and CAS over shared memory or TCP.\n.SH COMMANDS\n",
           PANDO_RELEASE);
    for (size_t i = 0; i < COMMANDS; i++)
        printf(".TP\n.B %s\n%s\n", commands[i].name, commands[i].summary);
    printf(".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR\nList the commands; "
           "\\fBpando\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR describes one.\n"
           ".TP\n\\fB\\-\\-version\\fR\nSay which release this is.\n"
           ".SH FILES\nEvery command reads its options also from the environment and from the "
           "file that \\fB\\-\\-config\\fR names; the pages of the commands say how.\n"
           ".SH SEE ALSO\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        printf(".BR pando\\-");
        for (const char *p = commands[i].name; *p != '\0'; p++)
            fputs(*p == ' ' || *p == '-' ? "\\-" : (char[]){*p, '\0'}, stdout);
        printf(" (1)%s\n", i + 1 < COMMANDS ? "," : "");
    }
}

/* One a line. */
static void print_engines(void)
{
    for (const char *p = store_engine_names(); *p != '\0'; p++) {
        if (*p != ' ')
            putchar(*p == ',' ? '\n' : *p);
    }
    putchar('\n');
}

/* What manual pages and completions are made from. */
static int print_for_machines(const char *what)
{
    if (strcmp(what, "man") == 0) {
        print_man();
        return EXIT_OK;
    }
    if (strcmp(what, "engines") == 0) {
        print_engines();
        return EXIT_OK;
    }
    if (strcmp(what, "commands") != 0) {
        fprintf(stderr,
                "pando: --help=%.32s: there is --help, --help=man, --help=commands and "
                "--help=engines\n",
                what);
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        printf("%s\t%s\n", commands[i].name, commands[i].summary);
    return EXIT_OK;
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
    private_openssl_memory();
    if (argc > 0 && argv[0][0] != '\0')
        cmd_program = argv[0];
    if (argc < 2) {
        print_help(stderr, NULL);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout, NULL);
        return EXIT_OK;
    }
    if (strncmp(argv[1], "--help=", 7) == 0)
        return print_for_machines(argv[1] + 7);
    if (strcmp(argv[1], "--version") == 0) {
        printf("pando %s\n", PANDO_RELEASE);
        return EXIT_OK;
    }
    int words;
    const struct cmd *found = find_command(argc, argv, &words);
    if (found != NULL)
        return found->run(argc - words, argv + words);
    if (is_group(argv[1]))
        return run_group(argc, argv);
    return unknown_command(argv[1]);
}
