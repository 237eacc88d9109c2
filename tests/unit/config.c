#include "base/config.h"

#include <fcntl.h>
#include <unistd.h>

#include "lib/check.h"

struct settings {
    const char *listen, *secret_file;
    uint64_t threads, size, timeout_ns, pin;
    bool verify, quiet;
};

static const struct config_option options[] = {
    {.name = "listen",
     .metavar = "ADDRESS",
     .help = "Address to serve on; port 0 lets the system choose one, which is then logged.",
     .default_text = "127.0.0.1:7000",
     CONFIG_TEXT_INTO(struct settings, listen)},
    {.name = "secret-file",
     .metavar = "FILE",
     .help = "File with the pool's secret.",
     CONFIG_TEXT_INTO(struct settings, secret_file)},
    {.name = "threads",
     .metavar = "N",
     .help = "Threads to run.",
     .default_text = "2",
     .positive = true,
     CONFIG_U64_INTO(struct settings, threads)},
    {.name = "size",
     .metavar = "SIZE",
     .help = "Memory to offer.",
     .default_text = "64M",
     CONFIG_SIZE_INTO(struct settings, size)},
    {.name = "timeout",
     .metavar = "TIME",
     .help = "How long to wait.",
     .default_text = "10ms",
     CONFIG_DURATION_INTO(struct settings, timeout_ns)},
    {.name = "verify",
     .help = "Verify checksums.",
     .default_text = "true",
     CONFIG_BOOL_INTO(struct settings, verify)},
    {.name = "quiet", .help = "Say less.", CONFIG_BOOL_INTO(struct settings, quiet)},
    {.name = "pin",
     .metavar = "PIN",
     .help = "A secret number.",
     .default_text = "9876",
     .secret = true,
     CONFIG_U64_INTO(struct settings, pin)},
};

static const struct config_command command = {
    .name = "memory",
    .summary = "Offer memory to the pool.",
    .positionals = "NAME [OTHER]",
    .example = "pando memory --listen 0.0.0.0:7000 --size 8G node1",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .positionals_min = 0,
    .positionals_max = 2,
};

static struct config config;
static struct settings settings;
static char file_path[] = "/tmp/pando-test-config-XXXXXX";

#define UNTOUCHED 0xa5

static bool settings_untouched(void)
{
    for (size_t i = 0; i < sizeof(settings); i++) {
        if (((const unsigned char *)&settings)[i] != UNTOUCHED)
            return false;
    }
    return true;
}

static enum pando_status load_command(const struct config_command *of, char **arguments)
{
    char *argv[32] = {"memory"};
    int argc = 1;
    for (; arguments[argc - 1] != NULL; argc++)
        argv[argc] = arguments[argc - 1];
    memset(&settings, UNTOUCHED, sizeof(settings));
    return config_load(&config, of, argc, argv, &settings);
}

/* LOAD("--size", "8G") as a command line would have it. */
#define LOAD(...) load_command(&command, (char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

#define CHECK_ERROR(expected, ...)                                                                 \
    do {                                                                                           \
        CHECK_STATUS(LOAD(__VA_ARGS__), PANDO_INVALID);                                            \
        CHECK_EQ_TEXT(config.error, expected);                                                     \
        CHECK(settings_untouched());                                                               \
        config_fini(&config);                                                                      \
    } while (0)

static void write_file_bytes(const char *text, size_t size)
{
    int fd = open(file_path, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && write(fd, text, size) == (ssize_t)size);
    close(fd);
}

static void write_file(const char *text)
{
    write_file_bytes(text, strlen(text));
}

static void test_defaults(void)
{
    CHECK_OK(LOAD());
    CHECK_EQ_TEXT(settings.listen, "127.0.0.1:7000");
    CHECK(settings.secret_file == NULL);
    CHECK_EQ_U64(settings.threads, 2);
    CHECK_EQ_U64(settings.size, 64 << 20);
    CHECK_EQ_U64(settings.timeout_ns, 10000000);
    CHECK(settings.verify && !settings.quiet);
    CHECK_EQ_U64(config.positional_count, 0);
    CHECK(!config.help);
    CHECK_EQ_TEXT(config.error, "");
    config_fini(&config);
}

static void test_flags(void)
{
    char secret[] = "a/b";
    CHECK_OK(LOAD("one", "--size", "8G", "--threads=4", "--no-verify", "--quiet", "--timeout=5s",
                  "--secret-file", secret, "--size=1.5K", "--", "--listen"));
    secret[0] = 'X'; /* texts are the config's own */
    CHECK_EQ_TEXT(settings.secret_file, "a/b");
    CHECK_EQ_U64(settings.size, 1536);
    CHECK_EQ_U64(settings.threads, 4);
    CHECK_EQ_U64(settings.timeout_ns, UINT64_C(5000000000));
    CHECK(!settings.verify && settings.quiet);
    CHECK_EQ_U64(config.positional_count, 2);
    CHECK_EQ_TEXT(config.positionals[0], "one");
    CHECK_EQ_TEXT(config.positionals[1], "--listen");
    config_fini(&config);

    CHECK_OK(
        LOAD("--verify=off", "--no-quiet", "--quiet", "--listen=", "--secret-file=--x=y", "-"));
    CHECK(!settings.verify && settings.quiet);
    CHECK_EQ_TEXT(settings.listen, "");
    CHECK_EQ_TEXT(settings.secret_file, "--x=y");
    CHECK_EQ_TEXT(config.positionals[0], "-");
    config_fini(&config);
}

static void test_precedence(void)
{
    write_file("size = 1K\nthreads = 11\ntimeout = 1s\nlisten = common # a comment\n"
               "[index]\nthreads = 99\nno such thing here\n"
               "[ memory ]\r\n# a comment\n  threads=12\r\n\n\tlisten = own#1\nquiet = yes");
    setenv("PANDO_TIMEOUT", "2s", 1);
    setenv("PANDO_SIZE", "2K", 1);
    setenv("PANDO_SECRET_FILE", "from-environment", 1);
    setenv("PANDO_VERIFY", "", 1);

    CHECK_OK(LOAD("--config", file_path, "--size", "3K"));
    CHECK_EQ_U64(settings.size, 3072);
    CHECK_EQ_U64(settings.timeout_ns, 2000000000);
    CHECK_EQ_TEXT(settings.secret_file, "from-environment");
    CHECK_EQ_U64(settings.threads, 12);
    CHECK_EQ_TEXT(settings.listen, "own#1");
    CHECK(settings.verify && settings.quiet);
    config_fini(&config);

    /* The file may be named by the environment too. */
    unsetenv("PANDO_SIZE");
    unsetenv("PANDO_TIMEOUT");
    unsetenv("PANDO_SECRET_FILE");
    setenv("PANDO_CONFIG", file_path, 1);
    CHECK_OK(LOAD());
    CHECK_EQ_U64(settings.size, 1024);
    CHECK_EQ_U64(settings.timeout_ns, 1000000000);
    config_fini(&config);

    /* A bad value that does not count is not looked at. */
    setenv("PANDO_SIZE", "junk", 1);
    CHECK_OK(LOAD("--size=5"));
    config_fini(&config);
    unsetenv("PANDO_SIZE");
    unsetenv("PANDO_CONFIG");
    unsetenv("PANDO_VERIFY");
}

static void test_bad_values(void)
{
    CHECK_ERROR("--size: '12Q' is not a size; use for example 8G", "--size", "12Q");
    CHECK_ERROR("--size: '99999999999T' is too large; use for example 8G", "--size=99999999999T");
    CHECK_ERROR("--threads: '' is not a number; use for example 42", "--threads=");
    CHECK_ERROR("--timeout: '5' is not a duration; use for example 10ms", "--timeout", "5");
    CHECK_ERROR("--quiet: 'maybe' is not yes or no; use for example true or false",
                "--quiet=maybe");
    CHECK_ERROR("--size: 'a?b' is not a size; use for example 8G", "--size=a\nb");
    CHECK_ERROR("--threads: 0 is too small; use at least 1, or leave it out", "--threads=0");

    setenv("PANDO_SIZE", "12Q", 1);
    CHECK_ERROR("PANDO_SIZE: '12Q' is not a size; use for example 8G");
    unsetenv("PANDO_SIZE");
}

static void test_bad_flags(void)
{
    CHECK_ERROR("--sice: no such option; did you mean --size?", "--sice=3");
    CHECK_ERROR("--secretfile: no such option; did you mean --secret-file?", "--secretfile", "x");
    CHECK_ERROR("--lisetn: no such option; did you mean --listen?", "--lisetn");
    CHECK_ERROR("--isez: no such option; did you mean --size?", "--isez");
    CHECK_ERROR("--hlep: no such option; did you mean --help?", "--hlep");
    CHECK_ERROR("--conifg: no such option; did you mean --config?", "--conifg");
    CHECK_ERROR("--no-verfy: no such option; did you mean --no-verify?", "--no-verfy");
    CHECK_ERROR("--no-quit: no such option; did you mean --no-quiet?", "--no-quit");
    CHECK_ERROR("--frobnicate: no such option; see --help", "--frobnicate");
    CHECK_ERROR("--x: no such option; see --help", "--x");
    CHECK_ERROR("--: no such option; see --help", "--=1");
}

static void test_bad_usage(void)
{
    static const struct config_option required_options[] = {
        {.name = "size",
         .metavar = "SIZE",
         .help = "Memory.",
         .required = true,
         CONFIG_SIZE_INTO(struct settings, size)},
    };
    static const struct config_command strict = {
        .name = "put",
        .summary = "Put a pair.",
        .positionals = "KEY VALUE",
        .options = required_options,
        .option_count = 1,
        .positionals_min = 2,
        .positionals_max = 2,
    };

    CHECK_ERROR("--size: the value is missing; use --size SIZE", "--size");
    CHECK_ERROR("--listen: the value is missing; use --listen ADDRESS, or --listen=ADDRESS if it "
                "begins with --",
                "--listen", "--size", "8G");
    CHECK_ERROR("--config: the value is missing; use --config FILE", "--config");
    CHECK_ERROR("--no-verify: takes no value; use --no-verify or --verify=VALUE", "--no-verify=1");
    CHECK_ERROR("'c': one argument too many; see --help", "a", "b", "c");
    CHECK_ERROR(
        "-s: there are no short options but -h; write --name, or -- before an argument that "
        "begins with a dash",
        "-s");

    char *one[] = {"key", NULL}, *two[] = {"key", "value", NULL};
    CHECK_STATUS(load_command(&strict, one), PANDO_INVALID);
    CHECK_EQ_TEXT(config.error, "an argument is missing; use pando put KEY VALUE, see --help");
    config_fini(&config);
    CHECK_STATUS(load_command(&strict, two), PANDO_INVALID);
    CHECK_EQ_TEXT(config.error, "--size: is required; use --size SIZE or set PANDO_SIZE");
    config_fini(&config);
}

static void check_file_error(const char *text, const char *expected_after_path)
{
    char expected[CONFIG_ERROR_MAX];

    write_file(text);
    snprintf(expected, sizeof(expected), "%s%s", file_path, expected_after_path);
    CHECK_ERROR(expected, "--config", file_path);
}

static void test_bad_files(void)
{
    char expected[CONFIG_ERROR_MAX];

    check_file_error("\n# x\nsize = 12Q\n", ":3: size: '12Q' is not a size; use for example 8G");
    check_file_error("[memory]\nsice = 1\n", ":2: sice: no such option; did you mean size?");
    check_file_error("[memory]\nfrobnicate = 1\n",
                     ":2: frobnicate: no such option; see pando memory --help");
    check_file_error("frobnicate = 1\n", ":1: frobnicate: pando memory has no such option; move it "
                                         "to its command's [section]");
    check_file_error("size 8G\n", ":1: neither 'name = value' nor '[command]'");
    check_file_error("[memory\n", ":1: neither 'name = value' nor '[command]'");
    check_file_error("= 8G\n", ":1: : pando memory has no such option; move it to its command's "
                               "[section]");

    CHECK_STATUS(LOAD("--config", "/nonexistent/pando.conf"), PANDO_IO);
    CHECK_EQ_TEXT(config.error, "--config: cannot read '/nonexistent/pando.conf': No such file or "
                                "directory; name a file that can be read");
    config_fini(&config);
    CHECK_STATUS(LOAD("--config", "/tmp"), PANDO_IO);
    config_fini(&config);
    CHECK_STATUS(LOAD("--config", "/dev/zero"), PANDO_IO);
    CHECK(strstr(config.error, "larger than 1 MiB") != NULL);
    config_fini(&config);

    write_file_bytes("size = 1\0", 9);
    snprintf(expected, sizeof(expected),
             "--config: cannot read '%s': it is not text; name a file that can be read", file_path);
    CHECK_STATUS(LOAD("--config", file_path), PANDO_IO);
    CHECK_EQ_TEXT(config.error, expected);
    config_fini(&config);

    write_file("");
    CHECK_OK(LOAD("--config", file_path));
    config_fini(&config);
}

static void check_silent(char *argument)
{
    CHECK_STATUS(LOAD(argument), PANDO_INVALID);
    CHECK(strstr(config.error, "hunter2") == NULL && config.error[0] != '\0');
    config_fini(&config);
}

static void test_secrets(void)
{
    char help[4096], file_flag[128];

    check_silent("--pin=hunter2");
    check_silent("--pn=hunter2");
    setenv("PANDO_PIN", "hunter2", 1);
    check_silent("--quiet");
    unsetenv("PANDO_PIN");
    snprintf(file_flag, sizeof(file_flag), "--config=%s", file_path);
    write_file("pin = hunter2\n");
    check_silent(file_flag);
    write_file("pin hunter2\n");
    check_silent(file_flag);
    write_file("pn = hunter2\n");
    check_silent(file_flag);

    config_help(&command, help, sizeof(help));
    CHECK(strstr(help, "9876") == NULL);
}

static void test_help(void)
{
    char help[4096], small[32];
    const char *expected =
        "Usage: pando memory [OPTION]... NAME [OTHER]\n"
        "\n"
        "Offer memory to the pool.\n"
        "\n"
        "Options:\n"
        "  --listen ADDRESS        Address to serve on; port 0 lets the system choose\n"
        "                          one, which is then logged. (default: 127.0.0.1:7000)\n"
        "  --secret-file FILE      File with the pool's secret.\n"
        "  --threads N             Threads to run. (default: 2)\n"
        "  --size SIZE             Memory to offer. (default: 64M)\n"
        "  --timeout TIME          How long to wait. (default: 10ms)\n"
        "  --[no-]verify           Verify checksums. (default: true)\n"
        "  --[no-]quiet            Say less. (default: false)\n"
        "  --pin PIN               A secret number.\n"
        "  --config FILE           Read options from FILE: lines 'name = value', for one\n"
        "                          command under '[command]'.\n"
        "  --help                  Print this text.\n"
        "\n"
        "An option may also be set in the environment (PANDO_LISTEN for --listen)\n"
        "or in the file. A flag wins over the environment, and that over the file.\n"
        "\n"
        "Example:\n"
        "  pando memory --listen 0.0.0.0:7000 --size 8G node1\n";

    CHECK_EQ_U64(config_help(&command, help, sizeof(help)), strlen(expected));
    CHECK_EQ_TEXT(help, expected);
    CHECK_EQ_U64(config_help(&command, small, sizeof(small)), strlen(expected));
    CHECK(strncmp(small, expected, sizeof(small) - 1) == 0 && small[sizeof(small) - 1] == '\0');
    CHECK_EQ_U64(config_help(&command, NULL, 0), strlen(expected));

    CHECK_OK(LOAD("--size", "8G", "--help", "--nonsense"));
    CHECK(config.help);
    config_fini(&config);
    CHECK_OK(LOAD("-h"));
    CHECK(config.help);
    config_fini(&config);
    CHECK_OK(LOAD("--", "-h"));
    CHECK(!config.help);
    config_fini(&config);
}

int main(void)
{
    int fd = mkstemp(file_path);
    CHECK(fd >= 0);
    close(fd);
    test_defaults();
    test_flags();
    test_precedence();
    test_bad_values();
    test_bad_flags();
    test_bad_usage();
    test_bad_files();
    test_secrets();
    test_help();
    unlink(file_path);
    return 0;
}
