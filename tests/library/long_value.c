/*
 * A value of PANDO_VALUE_MAX, put whole and in pieces, and read by parts, in a pool of another process: what the library
 * needs for it beside the caller's memory is bounded.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/check.h"

enum { MIB = 1 << 20, BESIDE_MIB = 32, PATIENCE_S = 60, PART = MIB + 12345, WORD = 8 };

static struct {
    char folder[64], secret[96], place[64];
    pid_t pid;
} memory;

/* ---- a memory node --------------------------------------------------------------------------- */

static void stop(void)
{
    if (memory.pid > 0) {
        kill(memory.pid, SIGKILL);
        waitpid(memory.pid, NULL, 0);
    }
    unlink(memory.secret);
    rmdir(memory.folder);
}

static void write_secret(void)
{
    snprintf(memory.folder, sizeof(memory.folder), "/tmp/pando-long-value-XXXXXX");
    CHECK(mkdtemp(memory.folder) != NULL);
    snprintf(memory.secret, sizeof(memory.secret), "%s/secret", memory.folder);
    FILE *file = fopen(memory.secret, "w");
    CHECK(file != NULL && fchmod(fileno(file), 0600) == 0);
    CHECK(fputs("a secret of more than sixteen bytes\n", file) >= 0 && fclose(file) == 0);
}

/* The program that was built beside this one. */
static void program_path(char *out, size_t out_bytes)
{
    ssize_t size = readlink("/proc/self/exe", out, out_bytes - 16);
    CHECK(size > 0);
    out[size] = '\0';
    for (int i = 0; i < 2; i++)
        *strrchr(out, '/') = '\0';
    strcat(out, "/pando");
}

static void start(void)
{
    char program[1024], line[256] = "";
    int ends[2];
    program_path(program, sizeof(program));
    if (access(program, X_OK) != 0) {
        printf("SKIP: %s is not built\n", program);
        exit(77);
    }
    write_secret();
    CHECK(atexit(stop) == 0 && pipe(ends) == 0);
    memory.pid = fork();
    if (memory.pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(program, program, "memory", "--listen", "127.0.0.1:0", "--size", "700M",
              "--secret-file", memory.secret, (char *)NULL);
        _exit(127);
    }
    CHECK(memory.pid > 0);
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    CHECK(said != NULL && fgets(line, sizeof(line), said) != NULL);
    const char *at = strstr(line, " ready at tcp:");
    if (at == NULL || sscanf(at, " ready at tcp:%63[0-9.:]", memory.place) != 1)
        CHECK_FAIL("the memory node said: %s", line);
}

/* ---- how much memory this process had -------------------------------------------------------- */

static uint64_t peak_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "VmHWM: %llu kB", &kib);
    fclose(file);
    return kib * 1024;
}

/* From now on. */
static void peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    CHECK(file != NULL && fputs("5", file) >= 0 && fclose(file) == 0);
}

static void peak_check(const char *what, uint64_t own_bytes)
{
    uint64_t peak = peak_bytes(), most = own_bytes + (uint64_t)BESIDE_MIB * MIB;
    printf("%s: %.1f MiB, the caller's memory is %.1f\n", what, (double)peak / MIB,
           (double)own_bytes / MIB);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)most; /* what shadows memory counts, too */
#else
    if (peak > most)
        CHECK_FAIL("%s took more than %d MiB beside", what, BESIDE_MIB);
#endif
}

/* ---- the value ------------------------------------------------------------------------------- */

static uint8_t byte_at(uint64_t at)
{
    uint64_t word = (at / WORD + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint8_t)(word >> at % WORD * 8);
}

static void put_whole(struct pando_table *table)
{
    uint8_t *value = malloc(PANDO_VALUE_MAX);
    CHECK(value != NULL);
    for (uint64_t i = 0; i < PANDO_VALUE_MAX; i++)
        value[i] = byte_at(i);
    peak_reset();
    /* The pool has room for one, when the grace period of the last one's memory is over. */
    enum pando_status status;
    for (int i = 0; (status = pando_put(table, "k", 1, value, PANDO_VALUE_MAX)) == PANDO_FULL &&
                    i < PATIENCE_S;
         i++)
        sleep(1);
    CHECK_OK(status);
    peak_check("put", PANDO_VALUE_MAX);
    free(value);
}

static enum pando_status write_pieces(struct pando_writer *writer, uint8_t *piece)
{
    enum pando_status status = PANDO_OK;
    for (uint64_t at = 0; at < PANDO_VALUE_MAX && status == PANDO_OK; at += PART) {
        uint64_t left = PANDO_VALUE_MAX - at;
        size_t bytes = left < PART ? (size_t)left : PART;
        for (uint64_t i = 0; i < bytes; i++)
            piece[i] = byte_at(at + i);
        status = pando_writer_add(writer, piece, bytes);
    }
    return status;
}

static void put_pieces(struct pando_table *table)
{
    struct pando_writer *writer;
    uint8_t *piece = malloc(PART);
    CHECK(piece != NULL);
    peak_reset();
    enum pando_status status = PANDO_FULL;
    for (int i = 0; status == PANDO_FULL && i < PATIENCE_S; i++) {
        if (i > 0)
            sleep(1);
        CHECK_OK(pando_writer_open(table, "k", 1, PANDO_VALUE_MAX, &writer));
        status = write_pieces(writer, piece);
        if (status != PANDO_OK)
            pando_writer_close(writer);
    }
    CHECK_OK(status);
    CHECK_OK(pando_writer_commit(writer, 0));
    pando_writer_close(writer);
    peak_check("put in pieces", PART);
    free(piece);
}

static void get_parts(struct pando_table *table)
{
    uint8_t *part = malloc(PART);
    CHECK(part != NULL);
    peak_reset();
    for (uint64_t at = 0; at < PANDO_VALUE_MAX; at += PART) {
        uint64_t left = PANDO_VALUE_MAX - at, bytes = left < PART ? left : PART;
        size_t size;
        CHECK_OK(pando_get_part(table, "k", 1, at, part, PART, &size));
        CHECK_EQ_U64(size, PANDO_VALUE_MAX);
        for (uint64_t i = 0; i < bytes; i++) {
            if (part[i] != byte_at(at + i))
                CHECK_FAIL("the byte at %llu is wrong", (unsigned long long)(at + i));
        }
    }
    peak_check("get by parts", PART);
    free(part);
}

int main(void)
{
    char uri[96], error[256];
    struct pando_pool *pool;
    struct pando_table *table;

    start();
    snprintf(uri, sizeof(uri), "tcp:%s", memory.place);
    struct pando_options options = {
        .size = sizeof(options), .uri = uri, .secret_file = memory.secret};
    if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s: %s", uri, error);
    for (int i = 0; i < 2; i++) {
        struct pando_table_options shape = {.size = sizeof(shape),
                                            .engine = i == 0 ? "dex" : "sherman"};
        CHECK_OK(pando_table_create(pool, "t", &shape));
        CHECK_OK(pando_table_open(pool, "t", &table));
        put_whole(table);
        get_parts(table);
        CHECK_OK(pando_delete(table, "k", 1));
        put_pieces(table);
        get_parts(table);
        CHECK_OK(pando_delete(table, "k", 1));
        CHECK_OK(pando_table_close(table));
        CHECK_OK(pando_table_drop(pool, "t"));
    }
    CHECK_OK(pando_close(pool));
    return 0;
}
