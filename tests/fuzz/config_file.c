/*
 * Arbitrary bytes as a configuration file, for a command with options of every kind. Whatever it holds,
 * it is taken as a whole or refused in one line that does not show what a secret option was given.
 *
 * The first byte of the input chooses what is on the command line besides, the rest is the file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct settings {
    const char *listen, *password;
    uint64_t count, size, wait_ns, positive;
    bool verify, fast;
};

static const struct config_option options[] = {
    {.name = "listen",
     .metavar = "ADDRESS",
     .help = "An address.",
     .default_text = "127.0.0.1:7000",
     CONFIG_TEXT_INTO(struct settings, listen)},
    {.name = "password",
     .metavar = "TEXT",
     .help = "A secret.",
     .secret = true,
     CONFIG_TEXT_INTO(struct settings, password)},
    {.name = "count", .metavar = "N", .help = "A number.", CONFIG_U64_INTO(struct settings, count)},
    {.name = "size",
     .metavar = "SIZE",
     .help = "A size, never shown.",
     .secret = true,
     CONFIG_SIZE_INTO(struct settings, size)},
    {.name = "wait",
     .metavar = "TIME",
     .help = "A duration.",
     .default_text = "1s",
     CONFIG_DURATION_INTO(struct settings, wait_ns)},
    {.name = "positive",
     .metavar = "N",
     .help = "A number that is not 0.",
     .positive = true,
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, positive)},
    {.name = "verify", .help = "Yes or no.", CONFIG_BOOL_INTO(struct settings, verify)},
    {.name = "fast",
     .help = "Yes or no.",
     .default_text = "yes",
     CONFIG_BOOL_INTO(struct settings, fast)},
};

static const struct config_command command = {
    .name = "memory",
    .summary = "Reads a file.",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .positionals = "FILE",
    .positionals_max = 1,
};

static const struct settings untouched = {.listen = "untouched", .count = 4711, .fast = true};

/* A file without a name; reused, so that its path stays the same. */
static const char *file_of(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("config", MFD_CLOEXEC);
        pando_assert(fd >= 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    pando_assert(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

static void check_line(const char *error)
{
    size_t length = strlen(error);
    pando_assert(length > 0 && length < CONFIG_ERROR_MAX);
    for (size_t i = 0; i < length; i++)
        pando_assert((unsigned char)error[i] >= 0x20 && error[i] != 0x7f);
}

/* Every text is a whole one inside the arena, and what was parsed is in its bounds. */
static void check_settings(const struct settings *settings, const struct config *config)
{
    pando_assert(config->error[0] == '\0');
    pando_assert(settings->listen != NULL && strlen(settings->listen) <= CONFIG_FILE_MAX);
    pando_assert(settings->password == NULL || strlen(settings->password) <= CONFIG_FILE_MAX);
    pando_assert(settings->positive > 0);
    pando_assert((int)settings->verify <= 1 && (int)settings->fast <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *arguments[8] = {"pando", "--config"};
    struct settings settings = untouched;
    struct config config;
    int count = 2;

    if (size == 0)
        return 0;
    arguments[count++] = (char *)(uintptr_t)file_of(data + 1, size - 1);
    if ((data[0] & 1) != 0)
        arguments[count++] = "--count=5";
    if ((data[0] & 2) != 0)
        arguments[count++] = "--no-fast";
    if ((data[0] & 4) != 0)
        arguments[count++] = "positional";
    enum pando_status status = config_load(&config, &command, count, arguments, &settings);
    if (status == PANDO_OK) {
        check_settings(&settings, &config);
        pando_assert((data[0] & 1) == 0 || settings.count == 5);
        pando_assert((data[0] & 2) == 0 || !settings.fast);
    } else {
        pando_assert(status == PANDO_INVALID || status == PANDO_IO);
        pando_assert(memcmp(&settings, &untouched, sizeof(settings)) == 0);
        check_line(config.error);
    }
    config_fini(&config);
    return 0;
}
