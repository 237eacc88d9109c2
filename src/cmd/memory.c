/*
 * memory.c - `pando memory`: a memory node, until it is told to stop.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/daemon.h"
#include "cmd/memory_metrics.h"
#include "fabric/shm/shm.h"
#include "fabric/tcp/tcp.h"
#include "fabric/verbs/verbs.h"
#include "pool/memnode.h"
#include "store/engines.h"

enum { NODE_MAX = 0x7fff, THREADS_MAX = 16, ERROR_BYTES = 512, FILES = 16384 };

struct settings {
    const char *listen, *advertise;
    const char *shm, *verbs;
    bool dax;
    uint64_t size, node, threads;
    const char *replace;
    const char *secret_file, *tls_cert, *tls_key, *tls_ca;
    bool require_tls, insecure_tcp;
    const char *metrics;
    struct cmd_log log;
};

static const struct config_option options[] = {
    {.name = "listen",
     .metavar = "HOST:PORT",
     .help = "Serve over TCP on this address; port 0 takes any that is free.",
     CONFIG_TEXT_INTO(struct settings, listen)},
    {.name = "advertise",
     .metavar = "HOST:PORT",
     .help = "The address others are told, where it is not the listening one.",
     CONFIG_TEXT_INTO(struct settings, advertise)},
    {.name = "shm",
     .metavar = "NAME",
     .help = "Keep the memory under this name (or path), over restarts. Without --listen, serve "
             "processes of this machine that map it. An existing file must be empty or a window of "
             "this user's that nobody else may open.",
     CONFIG_TEXT_INTO(struct settings, shm)},
    {.name = "dax",
     .help = "Allow --shm to be a DAX device. What it holds is lost unless that is a window.",
     CONFIG_BOOL_INTO(struct settings, dax)},
    {.name = "verbs",
     .metavar = "DEVICE",
     .help = "Serve over RDMA with this device: NAME, NAME/PORT or either with ,gid=INDEX. Clients "
             "set it up over --listen. All of the memory is pinned.",
     CONFIG_TEXT_INTO(struct settings, verbs)},
    {.name = "size",
     .metavar = "SIZE",
     .help = "Memory to offer.",
     .default_text = "1G",
     CONFIG_SIZE_INTO(struct settings, size)},
    {.name = "node",
     .metavar = "N",
     .help = "Which memory node of the pool this is, counted from 0.",
     .default_text = "0",
     CONFIG_U64_INTO(struct settings, node)},
    {.name = "replace",
     .metavar = "N",
     .help =
         "Be memory node N in place of one whose memory is lost for good, with an empty window. "
         "The pool takes it when the next client joins; tables that had memory in the lost one "
         "answer CORRUPT until they are dropped, the others go on. Node 0 cannot be replaced. "
         "For example: pando memory --replace 1 --shm fresh --size 8G",
     CONFIG_TEXT_INTO(struct settings, replace)},
    {.name = "threads",
     .metavar = "N",
     .help = "Server threads, with --listen.",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, threads)},
    {.name = "secret-file",
     .metavar = "FILE",
     .help = "What clients must know to be let in, with --listen; readable by its owner only. Each "
             "line is a secret; all are accepted. Off loopback it is the key of TLS, too.",
     CONFIG_TEXT_INTO(struct settings, secret_file)},
    {.name = "tls-cert",
     .metavar = "FILE",
     .help = "Clients connect by TLS 1.3 and are shown this certificate (PEM).",
     CONFIG_TEXT_INTO(struct settings, tls_cert)},
    {.name = "tls-key",
     .metavar = "FILE",
     .help = "Its private key (PEM).",
     CONFIG_TEXT_INTO(struct settings, tls_key)},
    {.name = "tls-ca",
     .metavar = "FILE",
     .help = "Let in only clients with a certificate of this authority (PEM).",
     CONFIG_TEXT_INTO(struct settings, tls_ca)},
    {.name = "require-tls",
     .help = "Take no plain TCP on loopback either; elsewhere it is refused in any case.",
     CONFIG_BOOL_INTO(struct settings, require_tls)},
    {.name = "insecure-tcp",
     .help =
         "Take plain TCP also off loopback, from clients with the same option. Who is on the path "
         "can then read and write all of the pool.",
     CONFIG_BOOL_INTO(struct settings, insecure_tcp)},
    CMD_METRICS_OPTION(struct settings, metrics),
    CMD_LOG_OPTIONS(struct settings, log, "warn"),
};

static const struct config_command command = {
    .name = "memory",
    .summary =
        "Runs a memory node: offers memory to a pool until it gets SIGTERM or SIGINT. SIGHUP makes "
        "it read its secret and certificates again, and open its log file again.",
    .example = "pando memory --listen 127.0.0.1:7000 --size 8G --secret-file pando.secret",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

/* --replace says which node this is. */
static bool replaced_node(const char *text, uint64_t *node)
{
    if (parse_u64(text, node) == PANDO_OK)
        return true;
    (void)cmd_usage("memory", "--replace: '%.32s' is not a node's number; use for example 1", text);
    return false;
}

/* ---- what can be seen to be wrong before anything is opened ---------------------------------- */

static int check_size(const struct settings *settings)
{
    char asked[FORMAT_SIZE_MAX], least[FORMAT_SIZE_MAX];
    format_size(asked, sizeof(asked), settings->size);
    if (settings->size < memnode_bytes_min()) {
        format_size(least, sizeof(least), memnode_bytes_min());
        return cmd_usage("memory", "--size: %s is too small; a memory node needs at least %s",
                         asked, least);
    }
    if (settings->size >= FABRIC_DEVICE)
        return cmd_usage("memory", "--size: %s is too large; use less than 128T", asked);
    return EXIT_OK;
}

/* NULL is fine: it was not given. */
static bool check_address(const char *option, const char *text, const char *example)
{
    struct host_port parts;
    enum pando_status status = text == NULL ? PANDO_OK : parse_host_port(text, &parts);
    if (status != PANDO_OK)
        (void)cmd_usage("memory", "%s: '%.64s' %s; use for example %s", option, text,
                        parse_host_port_fault(status), example);
    return status == PANDO_OK;
}

static int check(const struct settings *settings)
{
    if (settings->listen == NULL && settings->shm == NULL)
        return cmd_usage("memory",
                         "where to serve? use --listen HOST:PORT, --shm NAME or both, for "
                         "example --shm demo");
    if (!check_address("--listen", settings->listen, "127.0.0.1:7000") ||
        !check_address("--advertise", settings->advertise, "10.0.0.1:7000"))
        return EXIT_USAGE;
    if (settings->replace != NULL && settings->node == 0)
        return cmd_usage("memory",
                         "--replace: node 0 has the pool's members and tables and cannot be "
                         "replaced; to begin anew, start every node with a new --shm name (the "
                         "old windows stay as they are)");
    if (settings->node > NODE_MAX)
        return cmd_usage("memory", "--node: %llu is too large; use 0 to %d",
                         (unsigned long long)settings->node, NODE_MAX);
    if (settings->threads == 0 || settings->threads > THREADS_MAX)
        return cmd_usage("memory", "--threads: %llu is not from 1 to %d",
                         (unsigned long long)settings->threads, THREADS_MAX);
    if ((settings->tls_cert == NULL) != (settings->tls_key == NULL))
        return cmd_usage("memory", "--tls-cert and --tls-key belong together; give both");
    if (settings->dax && (settings->shm == NULL || strchr(settings->shm, '/') == NULL))
        return cmd_usage("memory", "--dax: --shm has to be the path of the device, for example "
                                   "--shm /dev/dax0.0");
    if (settings->tls_ca != NULL && settings->tls_cert == NULL)
        return cmd_usage("memory", "--tls-ca needs --tls-cert and --tls-key; give all three");
    if (settings->listen == NULL && settings->verbs != NULL)
        return cmd_usage("memory",
                         "--verbs: clients set RDMA up over a socket; add --listen HOST:PORT");
    if (settings->listen == NULL && (settings->secret_file != NULL || settings->tls_cert != NULL ||
                                     settings->require_tls || settings->insecure_tcp))
        return cmd_usage("memory",
                         "--secret-file, --tls-*, --require-tls and --insecure-tcp are for "
                         "TCP; add --listen HOST:PORT");
    return check_size(settings);
}

/* Memory that is promised but not there would end the process at its first use. */
static bool check_room(const struct settings *settings, const char *path)
{
    char asked[FORMAT_SIZE_MAX], there[FORMAT_SIZE_MAX], folder[FABRIC_LOCATION_MAX];
    struct sysinfo machine;
    struct statvfs volume;
    uint64_t room_bytes = UINT64_MAX;
    const char *where = "this machine";

    if (path == NULL) {
        if (sysinfo(&machine) == 0)
            room_bytes = (uint64_t)machine.totalram * machine.mem_unit;
    } else if (access(path, F_OK) != 0) {
        snprintf(folder, sizeof(folder), "%s", path);
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash == folder)
            return true;
        *slash = '\0';
        where = folder;
        if (statvfs(folder, &volume) == 0)
            room_bytes = (uint64_t)volume.f_bavail * volume.f_frsize;
        if (room_bytes == 0) /* hugetlbfs without a limit of its own says that */
            return true;
    }
    if (settings->size <= room_bytes)
        return true;
    cmd_error("memory", "--size: %s is more than the %s that %s has; use a smaller --size",
              format_size(asked, sizeof(asked), settings->size),
              format_size(there, sizeof(there), room_bytes), where);
    return false;
}

/* ---- the node -------------------------------------------------------------------------------- */

struct node {
    const struct settings *settings;
    char path[FABRIC_LOCATION_MAX]; /* of the window; "" for private memory */
    struct fabric *fabric;
    struct memnode *memnode;
    struct memory_metrics *metrics; /* NULL: not asked for */
    char error[ERROR_BYTES];
};

static enum pando_status open_fabric(struct node *node)
{
    const struct settings *settings = node->settings;
    uint64_t bytes = settings->size & ~(uint64_t)4095;

    if (settings->listen == NULL) {
        struct fabric_shm_options shm = {
            .node = (uint16_t)settings->node,
            .target = FABRIC_MEMORY,
            .path = node->path,
            .dax = settings->dax,
            .host_bytes = bytes,
            .device_bytes = MEMNODE_DEVICE_BYTES,
        };
        return fabric_shm_open(&shm, &node->fabric, node->error, sizeof(node->error));
    }
    struct fabric_tls tls = {.required = settings->require_tls,
                             .insecure = settings->insecure_tcp,
                             .cert_file = settings->tls_cert,
                             .key_file = settings->tls_key,
                             .ca_file = settings->tls_ca};
    const char *path = node->path[0] == '\0' ? NULL : node->path;
    struct fabric_socket_options sockets = {
        .node = (uint16_t)settings->node,
        .target = FABRIC_MEMORY,
        .device = settings->verbs,
        .listen = settings->listen,
        .advertise = settings->advertise,
        .threads = (unsigned)settings->threads,
        .secret_file = settings->secret_file,
        .tls = tls,
        .window_path = path,
        .window_dax = settings->dax,
        .host_bytes = bytes,
        .device_bytes = MEMNODE_DEVICE_BYTES,
    };
    return settings->verbs != NULL
               ? fabric_verbs_open(&sockets, &node->fabric, node->error, sizeof(node->error))
               : fabric_tcp_open(&sockets, &node->fabric, node->error, sizeof(node->error));
}

static enum pando_status start_fabric(struct node *node)
{
    const struct settings *settings = node->settings;
    enum pando_status status = settings->listen == NULL  ? fabric_shm_start(node->fabric)
                               : settings->verbs != NULL ? fabric_verbs_start(node->fabric)
                                                         : fabric_tcp_start(node->fabric);
    if (status != PANDO_OK)
        snprintf(node->error, sizeof(node->error), "%s: cannot start to serve: %s",
                 fabric_location(node->fabric), pando_status_text(status));
    return status;
}

static memory_served_fn served_of(const struct node *node)
{
    if (node->settings->verbs != NULL)
        return NULL;
    return node->settings->listen != NULL ? fabric_tcp_served : fabric_shm_served;
}

static void print_ready(const struct node *node)
{
    char size[FORMAT_SIZE_MAX];
    bool listens = node->settings->listen != NULL, verbs = node->settings->verbs != NULL;
    bool reused = verbs     ? fabric_verbs_reused(node->fabric)
                  : listens ? fabric_tcp_reused(node->fabric)
                            : fabric_shm_reused(node->fabric);

    format_size(size, sizeof(size), fabric_window_bytes(node->fabric));
    printf("pando memory: node %llu ready at %s:%s, %s", (unsigned long long)node->settings->node,
           verbs     ? "verbs"
           : listens ? "tcp"
                     : "shm",
           fabric_location(node->fabric), size);
    if (node->path[0] != '\0')
        printf(" in %s, %s", node->path, reused ? "contents kept" : "new");
    if (verbs)
        printf(", %s, lock table %s", fabric_verbs_device(node->fabric),
               fabric_verbs_on_chip(node->fabric) ? "on the card" : "in host memory");
    if (node->metrics != NULL)
        printf(", metrics at %s", memory_metrics_address(node->metrics));
    printf("\n");
    fflush(stdout);
}

static bool find_path(struct node *node)
{
    const struct settings *settings = node->settings;
    if (settings->shm == NULL)
        return true;
    if (settings->shm[0] != '\0' &&
        fabric_shm_path(settings->shm, settings->size + MEMNODE_DEVICE_BYTES, node->path,
                        sizeof(node->path)) == PANDO_OK)
        return true;
    cmd_error("memory",
              "--shm: '%.64s' is not a name; use letters, digits, '.', '_' and '-', or a "
              "path with a '/', for example demo",
              settings->shm);
    return false;
}

static enum pando_status reload(void *context, char *text, size_t text_bytes)
{
    struct node *node = context;
    return fabric_reload(node->fabric, text, text_bytes);
}

static void serve_until_stopped(struct node *node, const struct daemon *daemon)
{
    int signal = 0;
    for (;;) {
        if (sigwait(&daemon->signals, &signal) != 0)
            continue;
        if (daemon_wish(daemon, signal) == DAEMON_STOP)
            return;
        daemon_reload(daemon, reload, node);
    }
}

static int serve(struct node *node)
{
    struct memnode_options memory = {.work = store_memory_pushdown,
                                     .level_at = store_level_at,
                                     .replace = node->settings->replace != NULL};
    struct daemon daemon;

    daemon_begin(&daemon, "memory", &node->settings->log);
    (void)cmd_files(FILES); /* fewer connections otherwise */
    enum pando_status status = open_fabric(node);
    if (status == PANDO_OK)
        status =
            memnode_open(node->fabric, &memory, &node->memnode, node->error, sizeof(node->error));
    if (status == PANDO_OK)
        status = start_fabric(node);
    if (status == PANDO_OK && node->settings->metrics != NULL)
        status =
            memory_metrics_start(node->settings->metrics, node->fabric, served_of(node),
                                 node->memnode, &node->metrics, node->error, sizeof(node->error));
    if (status == PANDO_OK) {
        print_ready(node);
        serve_until_stopped(node, &daemon);
    } else {
        cmd_error("memory", "%s", node->error[0] != '\0' ? node->error : pando_status_text(status));
    }
    if (node->metrics != NULL)
        memory_metrics_stop(node->metrics);
    if (node->fabric != NULL)
        fabric_close(node->fabric);
    if (node->memnode != NULL)
        memnode_close(node->memnode);
    return status == PANDO_OK ? EXIT_OK : EXIT_FAILED;
}

int cmd_memory(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct node node = {.settings = &settings};
    int result;

    if (!cmd_load(&config, &command, argc, argv, &settings, &result))
        goto out;
    result = EXIT_USAGE;
    if (!cmd_log_begin("memory", &settings.log))
        goto out;
    if (settings.replace != NULL && !replaced_node(settings.replace, &settings.node))
        goto out;
    result = check(&settings);
    if (result != EXIT_OK)
        goto out;
    result = EXIT_USAGE;
    if (!find_path(&node) || !check_room(&settings, node.path[0] == '\0' ? NULL : node.path))
        goto out;
    result = serve(&node);
out:
    config_fini(&config);
    return result;
}
