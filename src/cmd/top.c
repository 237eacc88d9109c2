/*
 * top.c - `pando top`: a live screen of servers and their pool.
 */
#include "cmd/top.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cmd/top_fetch.h"
#include "cmd/top_view.h"
#include "cmd/with_store.h"

enum {
    SERVERS_MAX = 16,
    ERROR_BYTES = 512,
    TITLE_BYTES = 256,
    COLUMNS = 80,
    ROWS = 24,
    TICK_MS = 50,
    INTERVAL_MIN_MS = 100,
    OWNED_MAX = 40, /* tables whose owners are looked up */
};

struct settings {
    struct cmd_pool pool;
    const char *metrics;
    uint64_t interval;
    bool once, tables;
};

static const struct config_option options[] = {
    {.name = "metrics",
     .metavar = "HOST:PORT",
     .help = "Servers to look at, with commas: where they answer GET /metrics.",
     CONFIG_TEXT_INTO(struct settings, metrics)},
    {.name = "interval",
     .metavar = "TIME",
     .help = "Time between two looks.",
     .default_text = "1s",
     CONFIG_DURATION_INTO(struct settings, interval)},
    {.name = "once",
     .help = "Look twice, print what happened between, and end: for scripts. Without a terminal "
             "that is what it does.",
     CONFIG_BOOL_INTO(struct settings, once)},
    {.name = "tables",
     .help = "Begin with the tables of the pool instead of what servers do; with --pool.",
     CONFIG_BOOL_INTO(struct settings, tables)},
    CMD_POOL_OPTIONS_IF(struct settings, false),
};

static const struct config_command command = {
    .name = "top",
    .summary =
        "Shows live what servers do and how their pool is: operations, latencies, round trips, the "
        "cache of the index, memory nodes, members. From servers started with --metrics, from the "
        "pool itself with --pool, or both. h shows the keys, t the tables, q ends it. Colours are "
        "for terminals, unless NO_COLOR is set.",
    .example = "pando top --metrics 127.0.0.1:9380",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

struct top {
    const struct settings *settings;
    struct socket_address servers[SERVERS_MAX];
    char *server_names[SERVERS_MAX];
    unsigned server_count;
    char *names; /* what server_names point into */
    unsigned pool_nodes;
    char title[TITLE_BYTES], problem[ERROR_BYTES];
    struct top_snapshot snapshots[2];
    struct top_tables tables[2];
    unsigned turn; /* the snapshot of the last look, and its tables */
    bool looked;   /* there are two to compare */
    struct top_view view;
    bool terminal, raw;
    struct termios before;
    int result;
};

/* ---- looking --------------------------------------------------------------------------------- */

static void look_at_servers_co(struct top *top, struct top_snapshot *snapshot)
{
    for (unsigned i = 0; i < top->server_count; i++) {
        char error[128], *bytes;
        struct slice body;
        enum pando_status status =
            top_fetch_co(&top->servers[i], &bytes, &body, error, sizeof(error));
        if (status != PANDO_OK) {
            snprintf(top->problem, sizeof(top->problem), "%.64s: %s", top->server_names[i], error);
            continue;
        }
        top_add_metrics(snapshot, body);
        free(bytes);
    }
}

static void look_at_tables_co(struct top *top, struct store_thread *thread,
                              struct top_tables *tables)
{
    free(tables->tables);
    tables->tables = NULL;
    if (thread == NULL || top->view.screen != TOP_TABLES)
        return;
    enum pando_status status = top_tables_look_co(thread, OWNED_MAX, tables);
    if (status != PANDO_OK)
        snprintf(top->problem, sizeof(top->problem), "the tables: %s", pando_status_text(status));
}

static void take_snapshot_co(struct top *top, struct store_thread *thread,
                             struct top_snapshot *snapshot)
{
    *snapshot = (struct top_snapshot){.at_ns = rt_now_ns()};
    top->problem[0] = '\0';
    look_at_servers_co(top, snapshot);
    if (thread == NULL)
        return;
    enum pando_status status = top_add_pool_co(snapshot, thread, top->pool_nodes);
    if (status != PANDO_OK)
        snprintf(top->problem, sizeof(top->problem), "the pool: %s", pando_status_text(status));
    look_at_tables_co(top, thread, &top->tables[snapshot - top->snapshots]);
}

/* ---- the terminal ---------------------------------------------------------------------------- */

static void terminal_begin(struct top *top)
{
    struct termios raw;
    if (!top->terminal)
        return;
    if (isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &top->before) == 0) {
        raw = top->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        top->raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    fputs("\033[?1049h\033[?25l", stdout); /* another screen, no cursor */
    fflush(stdout);
}

static void terminal_end(struct top *top)
{
    if (!top->terminal)
        return;
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (top->raw)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
}

/* https://no-color.org: whatever it is set to, unless that is nothing. */
static bool wants_color(void)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return (no_color == NULL || no_color[0] == '\0') && term != NULL && strcmp(term, "dumb") != 0;
}

/* By the first of these that is set, as the C library does it. */
static bool knows_blocks(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0')
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

/* The last two looks. */
static void draw(struct top *top)
{
    struct winsize size;
    struct top_view *view = &top->view;
    const struct top_tables *tables = &top->tables[top->turn],
                            *before = &top->tables[1 - top->turn];
    view->columns = top->terminal ? COLUMNS : 200;
    view->rows = top->terminal ? ROWS : 1000;
    if (top->terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        view->columns = size.ws_col;
        view->rows = size.ws_row;
    }
    view->title = top->title;
    view->problem = top->problem;
    view->terminal = top->terminal;
    view->color = top->terminal && wants_color();
    view->blocks = knows_blocks();
    view->tables = tables->tables == NULL ? NULL : tables;
    view->tables_before = before->tables == NULL ? NULL : before;
    if (top->terminal)
        fputs("\033[H", stdout);
    top_view_print(view, &top->snapshots[1 - top->turn], &top->snapshots[top->turn], stdout);
    fputs(top->terminal ? "\033[J" : "\n", stdout);
    fflush(stdout);
}

/* What a key does; false: it is to end. */
static bool take_key_co(struct top *top, struct store_thread *thread, char key)
{
    enum top_screen former = top->view.screen, wanted = TOP_OVERVIEW;
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case 'h':
    case 'H':
    case '?':
        wanted = former == TOP_HELP ? TOP_OVERVIEW : TOP_HELP;
        break;
    case 't':
    case 'T':
        wanted = former == TOP_TABLES ? TOP_OVERVIEW : TOP_TABLES;
        break;
    default: /* whatever is pressed leads back from the help */
        wanted = former == TOP_HELP ? TOP_OVERVIEW : former;
    }
    top->view.screen = wanted;
    if (wanted == former || !top->looked)
        return true;
    look_at_tables_co(top, thread, &top->tables[top->turn]);
    draw(top);
    return true;
}

/* False: it is to end. */
static bool pause_co(struct top *top, struct store_thread *thread, uint64_t until_ns)
{
    while (rt_now_ns() < until_ns) {
        char key;
        if (cmd_stopping())
            return false;
        while (top->raw && read(STDIN_FILENO, &key, 1) == 1) {
            if (!take_key_co(top, thread, key))
                return false;
        }
        uint64_t now_ns = rt_now_ns(), tick_ns = TICK_MS * RT_NS_PER_MS;
        uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        rt_sleep_co(left_ns < tick_ns ? left_ns : tick_ns);
    }
    return true;
}

static int run_co(void *context, struct store_thread *thread)
{
    struct top *top = context;
    uint64_t interval_ns = top->settings->interval;
    bool once = top->settings->once || isatty(STDOUT_FILENO) != 1;

    top->terminal = !once;
    top->view.screen = top->settings->tables ? TOP_TABLES : TOP_OVERVIEW;

    take_snapshot_co(top, thread, &top->snapshots[0]);
    if (top->problem[0] != '\0' && (once || top->snapshots[0].servers == 0) && thread == NULL) {
        cmd_error("top", "%s", top->problem);
        return EXIT_FAILED;
    }
    top_view_note(&top->view, &top->snapshots[0]);
    terminal_begin(top);
    while (pause_co(top, thread, top->snapshots[top->turn].at_ns + interval_ns)) {
        take_snapshot_co(top, thread, &top->snapshots[1 - top->turn]);
        top_view_remember(&top->view, &top->snapshots[top->turn], &top->snapshots[1 - top->turn]);
        top->turn = 1 - top->turn;
        top->looked = true;
        draw(top);
        if (once)
            break;
    }
    terminal_end(top);
    return once && top->problem[0] != '\0' ? EXIT_FAILED : EXIT_OK;
}

/* ---- starting -------------------------------------------------------------------------------- */

static bool resolve_servers(struct top *top)
{
    char error[ERROR_BYTES] = "";
    top->names = strdup(top->settings->metrics);
    for (char *next = top->names; next != NULL;) {
        char *name = strsep(&next, ",");
        if (top->server_count == SERVERS_MAX) {
            cmd_error("top", "--metrics: more than %d servers", SERVERS_MAX);
            return false;
        }
        char full[300];
        bool port_only = name[0] != '\0' && name[strspn(name, "0123456789")] == '\0';
        snprintf(full, sizeof(full), "%s%s", port_only ? "127.0.0.1:" : "", name);
        if (socket_resolve(full, false, &top->servers[top->server_count], error, sizeof(error)) !=
            PANDO_OK) {
            cmd_error("top", "--metrics: %s", error);
            return false;
        }
        top->server_names[top->server_count++] = name;
    }
    return top->names != NULL;
}

static void alone_main(void *arg)
{
    struct top *top = arg;
    top->result = run_co(top, NULL);
}

/* Without a pool there is nobody to join, and a loop is enough. */
static int run_alone(struct top *top)
{
    struct rt_thread *thread;
    if (rt_thread_start("pando-top", alone_main, top, &thread) != PANDO_OK) {
        cmd_error("top", "cannot start a thread");
        return EXIT_FAILED;
    }
    rt_thread_join(thread);
    return top->result;
}

static unsigned nodes_of(const char *uri)
{
    unsigned nodes = 1;
    for (const char *p = uri; *p != '\0'; p++)
        nodes += *p == ',';
    return nodes;
}

static int run_top(struct top *top)
{
    const struct settings *settings = top->settings;
    const char *uri = settings->pool.uri, *metrics = settings->metrics;
    if (uri == NULL && metrics == NULL)
        return cmd_usage("top", "what to look at? use --metrics HOST:PORT, --pool URI or both, for "
                                "example --pool shm:demo");
    if (uri != NULL && strncmp(uri, "shm:", 4) != 0 && strncmp(uri, "tcp:", 4) != 0)
        return cmd_usage("top",
                         "--pool: %.64s is a pool of this process alone; use shm: or tcp:", uri);
    if (settings->interval < INTERVAL_MIN_MS * RT_NS_PER_MS)
        return cmd_usage("top", "--interval: too short; use at least 100ms");
    if (settings->tables && uri == NULL)
        return cmd_usage("top", "--tables: only the pool knows of them; add --pool URI");
    snprintf(top->title, sizeof(top->title), "%s%s%s", uri == NULL ? "" : uri,
             uri != NULL && metrics != NULL ? "   " : "", metrics == NULL ? "" : metrics);
    if (metrics != NULL && !resolve_servers(top))
        return EXIT_FAILED;
    cmd_catch_signals();
    if (uri == NULL)
        return run_alone(top);
    top->pool_nodes = nodes_of(uri);
    return cmd_with_store("top", &settings->pool, run_co, top);
}

int cmd_top(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct top *top = calloc(1, sizeof(*top));
    int result = EXIT_FAILED;
    if (top == NULL) {
        cmd_error("top", "out of memory");
        return EXIT_FAILED;
    }
    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        top->settings = &settings;
        result = run_top(top);
    }
    config_fini(&config);
    free(top->names);
    free(top->tables[0].tables);
    free(top->tables[1].tables);
    free(top);
    return result;
}
