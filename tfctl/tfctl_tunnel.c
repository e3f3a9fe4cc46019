/* tfctl tunnel: opens a port without TLS on this host that leads to a master's port with TLS. It is
 * for TensorFlow's own clients, which do not speak TLS. */
#include "tfctl/tfctl.h"

#include <stdio.h>
#include <stdlib.h>

#include "tfctl/cli.h"
#include "tfctl/remote.h"
#include "client/tls_client.h"
#include "common/base/log.h"
#include "rpc/daemon/daemon.h"
#include "rpc/relay/tls_tunnel.h"

struct tunnel_flags {
    const char *listen, *target, *port_file;
    struct tls_client tls;
    int64_t wait_ms, drain_timeout_ms;
    bool insecure;
};

#define FIELD(field) offsetof(struct tunnel_flags, field)

// clang-format off
static const struct option_row rows[] = {
    {"listen", OPTION_STRING, FIELD(listen), "HOST:PORT", "127.0.0.1:0",
        "where clients connect; port 0 means any free port"},
#include "client/tls_client_rows.inc"
    {"wait", OPTION_DURATION, FIELD(wait_ms), "TIME", "10s",
        "how long a client waits for a master that does not answer", 1, 86400000},
    {"drain-timeout", OPTION_DURATION, FIELD(drain_timeout_ms), "TIME", "30s",
        "how long tfctl waits for connections to end after TERM", 0, 86400000},
    {"port-file", OPTION_STRING, FIELD(port_file), "PATH", NULL,
        "write the port to this file once clients may connect"},
    {"insecure", OPTION_BOOL, FIELD(insecure), NULL, NULL,
        "allow --listen beyond loopback, where the clients' bytes are not encrypted"},
};
// clang-format on

static const struct cli_spec spec = {
    .options =
        {.program = "tfctl tunnel",
         .summary =
             "Gives clients that do not speak TLS a port on this host that leads to a master's "
             "port "
             "with TLS. Prints the target for\n"
             "them, grpc://HOST:PORT. HUP reads the files again; TERM lets the connections end. "
             "With "
             "--output json the target is a\nline {\"event\":\"ready\",\"target\":...}.",
         .rows = rows,
         .n_rows = ARRAY_LEN(rows)},
    .usage = "[HOST:PORT | grpcs://HOST:PORT] [OPTION]...",
    .max_args = 1,
};

struct tunnel_run {
    struct loop *loop;
    struct tls *tls;
    struct tls_tunnel *tunnel;
    struct loop_timer timer;
    const struct cli *cli;
    const struct tunnel_flags *flags;
    bool is_draining;
};

static void stop(struct tunnel_run *run) {
    tls_tunnel_close(run->tunnel);
    run->tunnel = NULL;
    loop_timer_close(&run->timer, NULL);
    loop_stop(run->loop);
}

static void on_drained(void *arg) { stop(arg); }

static void on_timeout(struct loop_timer *timer) {
    struct tunnel_run *run = CONTAINER_OF(timer, struct tunnel_run, timer);
    log_event(EVENT_DRAIN_TIMEOUT, "%d connections were still open when the drain timeout passed",
              tls_tunnel_count(run->tunnel));
    stop(run);
}

static void on_signal(void *arg, int signo) {
    struct tunnel_run *run = arg;
    if (!run->tunnel)
        return;
    if (run->is_draining) { /* a second signal ends at once */
        stop(run);
        return;
    }
    run->is_draining = true;
    loop_timer_start(&run->timer, run->flags->drain_timeout_ms, 0);
    tls_tunnel_drain(run->tunnel, on_drained, run);
}

static void on_hangup(void *arg) {
    struct tunnel_run *run = arg;
    struct status *st = tls_reload(&run->tls, 1);
    if (st)
        log_event(
            EVENT_TLS_RELOAD_FAILED,
            "the TLS files were read again but not taken over, and the old ones stay in use: %s",
            status_message(st));
    else
        log_event(EVENT_TLS_RELOADED, "the TLS files were read again");
    status_unref(st);
}

static void tell_target(const struct cli *cli, const char *listen, int port) {
    struct str address = STR_INIT, out = STR_INIT;
    daemon_with_port(listen, port, &address);
    if (cli_is_json(cli))
        str_addf(&out, "{\"event\":\"ready\",\"target\":\"grpc://%s\"}", str_text(&address));
    else
        str_addf(&out, "grpc://%s", str_text(&address));
    cli_print(&out);
    str_fini(&address);
    str_fini(&out);
}

static struct status *start(struct tunnel_run *run) {
    const struct tunnel_flags *flags = run->flags;
    struct tls_tunnel_options options = {.listen = flags->listen,
                                         .target = flags->target,
                                         .name = flags->tls.name,
                                         .tls = run->tls,
                                         .wait_ms = flags->wait_ms};
    TRY(tls_tunnel_new(run->loop, &options, &run->tunnel));
    int port = tls_tunnel_port(run->tunnel);
    if (flags->port_file)
        TRY(daemon_write_port_file(flags->port_file, port, 0, 0));
    tell_target(run->cli, flags->listen, port);
    return NULL;
}

static int run_tunnel(const struct cli *cli, const struct tunnel_flags *flags, struct tls *tls) {
    struct tunnel_run run = {.loop = loop_new(), .tls = tls, .cli = cli, .flags = flags};
    log_set_task("tfctl tunnel");
    loop_timer_init(run.loop, &run.timer, on_timeout);
    loop_on_signals(run.loop, on_signal, &run);
    loop_on_hangup(run.loop, on_hangup, &run);
    struct status *st = start(&run);
    if (st)
        stop(&run);
    loop_run(run.loop);
    loop_free(run.loop);
    return st ? cli_fail(cli, EXIT_IO, st) : EXIT_OK;
}

static struct status *check(struct tunnel_flags *flags, const char *argument,
                            struct tls **ret_tls) {
    bool is_tls;
    TRY(remote_target(argument, &flags->target));
    flags->target = tls_client_split(flags->target, &is_tls);
    TRY(daemon_check_listen("listen", flags->listen, flags->insecure));
    tls_client_fill(&flags->tls);
    return tls_client_new(&flags->tls, ret_tls);
}

static int run(struct cli *cli, void *arg) {
    struct tunnel_flags *flags = arg;
    struct tls *tls = NULL;
    struct status *st = check(flags, cli->n_args ? cli->args[0] : NULL, &tls);
    int code = st ? cli_fail_usage(cli, st) : run_tunnel(cli, flags, tls);
    tls_unref(tls);
    return code;
}

int tfctl_tunnel(int argc, char **argv) {
    struct tunnel_flags flags = {.target = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
