/* Builds a daemon's command line, and reads its port file. */
#include "tfctl/local_member.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "rpc/daemon/daemon.h"
#include "rpc/listen.h"

/* Finds a program in the directory of tfctl, else along PATH. */
static const char *find_program(const char *name, struct arena *arena) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return name;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash)
        return name;
    *slash = '\0';
    const char *path = arena_printf(arena, "%s/%s", self, name);
    return access(path, X_OK) == 0 ? path : name;
}

struct argv_builder {
    char **argv;
    int n;
};

static void add(struct argv_builder *to, const char *text) {
    to->argv[to->n++] = (char *)(uintptr_t)text;
}

static void add_pair(struct argv_builder *to, const char *flag, const char *value) {
    add(to, flag);
    add(to, value);
}

static void add_list(struct argv_builder *to, const struct cli_list *list) {
    for (int i = 0; i < list->n; i++)
        add(to, list->items[i]);
}

static bool is_free(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bool is_bound = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is_bound;
}

/* The port for a daemon's pages; 0 means any. The pages of a master whose port the user has chosen
 * are where other commands look for them (daemon_admin_port), if that port is free. */
static int admin_port(const struct member *member, const struct local_options *options) {
    if (member->admin_port > 0 || member->kind != MEMBER_MASTER)
        return member->admin_port;
    struct net_address listen;
    struct status *st = net_address_parse(options->listen, &listen);
    bool is_chosen = !st && !listen.is_unix && listen.port > 0;
    status_unref(st); /* tf-master refuses the address */
    int port = is_chosen ? daemon_admin_port(listen.port) : 0;
    return port > 0 && is_free(port) ? port : 0;
}

char *const *member_argv(const struct member *member, const struct local_options *options,
                         const char *cluster, struct arena *arena) {
    const struct cli_list *own =
        member->kind == MEMBER_MASTER ? &options->master_flags : &options->worker_flags;
    struct argv_builder to = {arena_alloc(arena, (size_t)(own->n + 24) * sizeof(char *)), 0};
    if (member->kind == MEMBER_MASTER) {
        add(&to, find_program("tf-master", arena));
        add_pair(&to, "--cluster", cluster);
        const char *port = strrchr(options->listen, ':');
        bool keeps_port = member->port > 0 && port && strcmp(port, ":0") == 0;
        add_pair(&to, "--listen",
                 keeps_port ? arena_printf(arena, "%.*s:%d", (int)(port - options->listen),
                                           options->listen, member->port)
                            : options->listen);
    } else {
        add(&to, find_program("tf-worker", arena));
        add_pair(&to, "--job", member->task->job);
        add_pair(&to, "--task", arena_printf(arena, "%d", member->task->index));
        add_pair(&to, "--listen", arena_printf(arena, "127.0.0.1:%d", member->port));
        if (options->cpu_devices > 0)
            add_pair(&to, "--cpu-devices", arena_printf(arena, "%d", (int)options->cpu_devices));
    }
    add_pair(&to, "--admin", arena_printf(arena, "127.0.0.1:%d", admin_port(member, options)));
    add_pair(&to, "--port-file", member->port_path);
    if (options->log_level)
        add_pair(&to, "--log-level", options->log_level);
    if (options->log_format == LOG_JSON)
        add_pair(&to, "--log-format", "json");
    add_list(&to, own);
    add(&to, NULL);
    return to.argv;
}

bool member_read_ports(struct member *member) {
    FILE *file = fopen(member->port_path, "re");
    char text[128];
    if (!file)
        return false;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    char *end;
    long port = strtol(text, &end, 10);
    if (end == text || *end != '\n')
        return false;
    member->port = (int)port;
    if (strncmp(end, "\nadmin ", 7) == 0)
        member->admin_port = (int)strtol(end + 7, NULL, 10);
    return true;
}

void member_print_target(const char *listen, int port, struct str *out) {
    const char *colon = strrchr(listen, ':');
    if (strncmp(listen, "unix:", 5) == 0 || !colon) {
        str_addf(out, "grpc://%s", listen);
        return;
    }
    struct span host = {listen, (size_t)(colon - listen)};
    if (host.len == 0 || span_is(host, "0.0.0.0") || span_is(host, "*"))
        host = span_of("127.0.0.1");
    else if (span_is(host, "[::]"))
        host = span_of("[::1]");
    str_addf(out, "grpc://%.*s:%d", (int)host.len, host.data, port);
}
