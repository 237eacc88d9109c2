#include "cmd/daemon.h"

#include <fcntl.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

enum { TEXT_BYTES = 640 };

/* /dev/tty is the terminal of the session, and cannot be opened any more once that was hung up. */
static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

void daemon_begin(struct daemon *daemon, const char *command, const struct cmd_log *log)
{
    struct sigaction hangup;
    *daemon = (struct daemon){.command = command, .log = log};
    sigemptyset(&daemon->signals);
    sigaddset(&daemon->signals, SIGTERM);
    sigaddset(&daemon->signals, SIGINT);
    sigaddset(&daemon->signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &daemon->signals, NULL);
    bool nohup = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
    daemon->terminal = !nohup && has_terminal();
}

enum daemon_wish daemon_wish(const struct daemon *daemon, int signal)
{
    if (signal != SIGHUP || (daemon->terminal && !has_terminal()))
        return DAEMON_STOP;
    return DAEMON_RELOAD;
}

void daemon_say(const struct daemon *daemon, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    cmd_error(daemon->command, "%s", text);
    if (daemon->log->file != NULL)
        log_error(text);
}

void daemon_reload(const struct daemon *daemon, daemon_reload_fn reload, void *context)
{
    char text[TEXT_BYTES] = "";
    const char *path = daemon->log->file;
    bool logs = path == NULL || log_open_file(path, text, sizeof(text)) == PANDO_OK;
    if (!logs)
        daemon_say(daemon, "SIGHUP: %.500s; the former stays in use", text);
    text[0] = '\0';
    enum pando_status status = reload(context, text, sizeof(text));
    if (status != PANDO_OK && status != PANDO_UNSUPPORTED)
        daemon_say(daemon, "SIGHUP: %.500s; the former stays in use",
                   text[0] != '\0' ? text : pando_status_text(status));
    else if (logs || status == PANDO_OK)
        daemon_say(daemon, "SIGHUP: read its files again%s%.500s", text[0] != '\0' ? ": " : "",
                   text);
}

static enum pando_status reload_nothing(void *context, char *text, size_t text_bytes)
{
    (void)context;
    (void)text;
    (void)text_bytes;
    return PANDO_UNSUPPORTED;
}

bool daemon_pause(const struct daemon *daemon, uint64_t ns)
{
    struct timespec pause = {.tv_sec = (time_t)(ns / RT_NS_PER_S),
                             .tv_nsec = (long)(ns % RT_NS_PER_S)};
    int signal = sigtimedwait(&daemon->signals, NULL, &pause);
    if (signal <= 0)
        return true;
    if (daemon_wish(daemon, signal) == DAEMON_STOP)
        return false;
    daemon_reload(daemon, reload_nothing, NULL);
    return true;
}
