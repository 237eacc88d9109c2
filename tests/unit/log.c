/* stderr is a pipe for the test's length: what was logged is read back from it. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/check.h"

#define THREADS 4
#define LINES   50

static int pipe_read_fd, real_stderr;
static char captured[1 << 20];

static void capture_begin(void)
{
    int fds[2];
    CHECK(pipe2(fds, O_NONBLOCK) == 0);
    CHECK(fcntl(fds[1], F_SETPIPE_SZ, 1 << 20) >= 0);
    real_stderr = dup(STDERR_FILENO);
    CHECK(dup2(fds[1], STDERR_FILENO) == STDERR_FILENO);
    close(fds[1]);
    pipe_read_fd = fds[0];
}

/* Checks come after this one, so that their own messages reach the real stderr. */
static const char *capture_end(void)
{
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    size_t size = 0;
    for (;;) {
        ssize_t got = read(pipe_read_fd, captured + size, sizeof(captured) - 1 - size);
        if (got <= 0)
            break;
        size += (size_t)got;
    }
    close(pipe_read_fd);
    captured[size] = '\0';
    return captured;
}

/* "2026-01-02T03:04:05.678Z " is checked for its form and skipped. */
static const char *after_time(const char *line)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ ";
    for (size_t i = 0; form[i] != '\0'; i++) {
        if (form[i] == 'd')
            CHECK(line[i] >= '0' && line[i] <= '9');
        else
            CHECK(line[i] == form[i]);
    }
    return line + sizeof(form) - 1;
}

static void test_fields(void)
{
    capture_begin();
    log_info("memory node ready", log_text("listen", "127.0.0.1:7000"), log_u64("size", 1073741824),
             log_status("status", PANDO_AGAIN), log_i64("delta", -5), log_hex("at", 0xbeef),
             log_errno("error", EACCES));
    const char *text = capture_end();
    CHECK_EQ_TEXT(after_time(text), "level=info msg=\"memory node ready\" listen=127.0.0.1:7000 "
                                    "size=1073741824 status=\"try again later\" delta=-5 "
                                    "at=0xbeef error=\"Permission denied\"\n");
}

static void test_quoting(void)
{
    capture_begin();
    log_error("bare", log_text("a", "x"), log_text("b", ""), log_text("c", NULL),
              log_text("d", "say \"hi\"\\"), log_text("e", "\r\n\t\x01\x7f\x1b[0m"),
              log_text("f", "k=v"), log_text("g", "\xc3\xa9"));
    const char *text = capture_end();
    CHECK_EQ_TEXT(after_time(text),
                  "level=error msg=bare a=x b=\"\" c=\"\" d=\"say \\\"hi\\\"\\\\\" "
                  "e=\"\\r\\n\\t\\x01\\x7f\\x1b[0m\" f=\"k=v\" g=\"\\xc3\\xa9\"\n");
}

/* One object a line; numbers are numbers, and bytes beyond ASCII characters. */
static void test_json(void)
{
    static const char head[] = "{\"time\":\"";
    enum log_format format = LOG_FORMAT_TEXT;
    CHECK_STATUS(log_format_parse("yaml", &format), PANDO_INVALID);
    CHECK(format == LOG_FORMAT_TEXT);
    CHECK_OK(log_format_parse("json", &format));

    capture_begin();
    log_set_format(format);
    log_warn("say \"hi\"\\", log_text("a", "\n\x01\xc3"), log_u64("size", UINT64_MAX),
             log_i64("delta", -5), log_hex("at", 0xbeef), log_text("none", NULL));
    log_set_format(LOG_FORMAT_TEXT);
    const char *text = capture_end();
    CHECK(strncmp(text, head, sizeof(head) - 1) == 0);
    text += sizeof(head) - 1 + strlen("2026-01-02T03:04:05.678Z");
    CHECK_EQ_TEXT(
        text, "\",\"level\":\"warn\",\"msg\":\"say \\\"hi\\\"\\\\\",\"a\":\"\\n\\u0001\\u00c3\","
              "\"size\":18446744073709551615,\"delta\":-5,\"at\":\"0xbeef\","
              "\"none\":\"\"}\n");
}

/* Whatever is cut, what is left is an object. */
static void test_json_truncation(void)
{
    static char value[2 * LOG_LINE_MAX];
    static const char mark[] = ",\"truncated\":true}\n";

    for (size_t size = LOG_LINE_MAX - 150; size < LOG_LINE_MAX + 100; size++) {
        memset(value, '"', size);
        value[size] = '\0';
        capture_begin();
        log_set_format(LOG_FORMAT_JSON);
        log_warn("m", log_text("value", value + size / 2), log_u64("number", UINT64_MAX));
        log_set_format(LOG_FORMAT_TEXT);
        const char *text = capture_end();
        size_t length = strlen(text);
        CHECK(length <= LOG_LINE_MAX);
        bool whole = strstr(text, "\"number\":18446744073709551615}\n") != NULL;
        CHECK(whole || strcmp(text + length - (sizeof(mark) - 1), mark) == 0);
        /* The value's quotes come in pairs, and what is behind it begins with a comma or the end. */
        const char *p = strstr(text, "\"value\":\"") + strlen("\"value\":\"");
        while (p[0] == '\\' && p[1] == '"')
            p += 2;
        CHECK(p[0] == '"' && p[1] == ',');
    }
}

static size_t file_bytes(const char *path, char *out, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, out, capacity - 1);
    if (fd >= 0)
        close(fd);
    got = got < 0 ? 0 : got;
    out[got] = '\0';
    return (size_t)got;
}

/* As logrotate does it: the file is renamed, and opened again under its name. stderr comes last: from
 * there on there is no way back. */
static void test_file(void)
{
    char folder[] = "/tmp/pando-log-XXXXXX", path[64], moved[64], error[256] = "";
    char text[2 * LOG_LINE_MAX];

    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/log", folder);
    snprintf(moved, sizeof(moved), "%s/log.1", folder);
    CHECK_STATUS(log_open_file(folder, error, sizeof(error)), PANDO_IO);
    CHECK(strstr(error, folder) != NULL);

    CHECK_OK(log_open_file(path, error, sizeof(error)));
    log_info("first");
    CHECK(rename(path, moved) == 0);
    log_info("second");
    CHECK_OK(log_open_file(path, error, sizeof(error)));
    log_info("third");
    CHECK_STATUS(log_open_file("/nonesuch/log", error, sizeof(error)), PANDO_IO);
    log_info("fourth");

    file_bytes(moved, text, sizeof(text));
    CHECK(strstr(text, "msg=first\n") != NULL && strstr(text, "msg=second\n") != NULL);
    CHECK(strstr(text, "msg=third\n") == NULL);
    file_bytes(path, text, sizeof(text));
    CHECK(strstr(text, "msg=third\n") != NULL && strstr(text, "msg=fourth\n") != NULL);
    CHECK(strstr(text, "msg=second\n") == NULL);
    unlink(path);
    unlink(moved);
    rmdir(folder);
}

/* A line nobody takes is lost without a trace, also in errno. */
static void test_lost_line(void)
{
    real_stderr = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = ENOSPC;
    log_info("lost");
    int errno_after = errno;
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    CHECK(errno_after == ENOSPC);
}

static int evaluations;

static uint64_t evaluated(void)
{
    return (uint64_t)++evaluations;
}

static void test_levels(void)
{
    enum log_level level = LOG_LEVEL_WARN;

    CHECK_OK(log_level_parse("error", &level));
    CHECK(level == LOG_LEVEL_ERROR);
    CHECK_OK(log_level_parse("debug", &level));
    CHECK(level == LOG_LEVEL_DEBUG);
    CHECK_STATUS(log_level_parse("DEBUG", &level), PANDO_INVALID);
    CHECK_STATUS(log_level_parse("", &level), PANDO_INVALID);
    CHECK(level == LOG_LEVEL_DEBUG);

    capture_begin();
    log_debug("hidden", log_u64("n", evaluated()));
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("hidden", log_u64("n", evaluated()));
    log_info("hidden");
    int hidden = evaluations;
    log_error("shown", log_u64("n", evaluated()));
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown");
    log_set_level(LOG_LEVEL_INFO);
    const char *text = capture_end();

    CHECK(hidden == 0);
    text = after_time(text);
    CHECK(strncmp(text, "level=error msg=shown n=1\n", 26) == 0);
    CHECK_EQ_TEXT(after_time(text + 26), "level=debug msg=shown\n");
}

/* A value of every length around the limit: the line is never longer, and stays well formed. */
static void test_truncation(void)
{
    static char value[2 * LOG_LINE_MAX];
    static const char mark[] = " truncated=true\n";

    for (int quoted = 0; quoted < 2; quoted++) {
        size_t longest_whole = 0;
        for (size_t size = LOG_LINE_MAX - 100; size < LOG_LINE_MAX + 100; size++) {
            memset(value, quoted ? '"' : 'v', size);
            value[size] = '\0';
            const char *shown = quoted ? value + size / 2 : value;
            capture_begin();
            log_warn("m", log_text("value", shown), log_text("last", "x"));
            const char *text = capture_end();

            size_t length = strlen(text);
            CHECK(length <= LOG_LINE_MAX);
            CHECK(strchr(text, '\n') == text + length - 1);
            bool whole = strcmp(text + length - 8, " last=x\n") == 0;
            if (whole) {
                longest_whole = length;
                continue;
            }
            CHECK_EQ_TEXT(text + length - (sizeof(mark) - 1), mark);
            const char *start = strstr(text, "value=");
            CHECK(start != NULL);
            if (quoted) {
                /* value="\"\"...\"" : an even number of characters between the outer quotes */
                const char *end = text + length - sizeof(mark);
                CHECK(start[6] == '"' && *end == '"' && end[-1] == '"' && end[-2] == '\\');
                CHECK_EQ_U64((uint64_t)(end - start - 7) % 2, 0);
            }
        }
        /* Nothing that fits is cut. */
        CHECK(longest_whole >= LOG_LINE_MAX - sizeof(mark) - 1);
    }

    capture_begin();
    memset(value, 'm', sizeof(value) - 1);
    log_info(value);
    const char *text = capture_end();
    CHECK_EQ_U64(strlen(text), LOG_LINE_MAX);
}

static void *log_lines(void *argument)
{
    for (int i = 0; i < LINES; i++)
        log_info("line", log_text("thread", argument), log_i64("i", i));
    return NULL;
}

static void test_threads(void)
{
    static char *const names[THREADS] = {"alpha", "beta", "gamma", "delta"};
    int next[THREADS] = {0};
    pthread_t threads[THREADS];

    capture_begin();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, log_lines, names[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    capture_end();

    int lines = 0;
    for (char *rest = captured, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        char name[16];
        int i, end = 0;
        CHECK(sscanf(after_time(line), "level=info msg=line thread=%15s i=%d%n", name, &i, &end) ==
              2);
        CHECK(after_time(line)[end] == '\0');
        for (int t = 0; t < THREADS; t++) {
            if (strcmp(names[t], name) == 0)
                CHECK(i == next[t]++);
        }
        lines++;
    }
    CHECK_EQ_U64((uint64_t)lines, (uint64_t)THREADS * LINES);
}

int main(void)
{
    test_fields();
    test_quoting();
    test_lost_line();
    test_levels();
    test_truncation();
    test_json();
    test_json_truncation();
    test_threads();
    test_file();
    return 0;
}
