/* tfctl: the command line client. A table of subcommands. */
#include "tfctl/tfctl.h"

#include <stdio.h>

#include "common/base/did_you_mean.h"
#include "tfctl/cli.h"

static const struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} subcommands[] = {
    {"local", tfctl_local, "start a cluster on this host, and run a command on it"},
    {"status", tfctl_status, "say whether a cluster is well, and what is not"},
    {"top", tfctl_top, "show what a cluster is doing, again and again"},
    {"doctor", tfctl_doctor, "look for what usually goes wrong here, and say what to do"},
    {"devices", tfctl_devices, "list the devices of a cluster"},
    {"run", tfctl_run, "run one step of a graph on a cluster"},
    {"trace", tfctl_trace, "write what happened in the last steps to a file for Perfetto"},
    {"graph", tfctl_graph, "show where the nodes of a step are, and why"},
    {"costs", tfctl_costs, "print what nodes have taken, as the master has measured it"},
    {"drain", tfctl_drain, "make a task leave its cluster on purpose"},
    {"job", tfctl_job, "end the job of a cluster: its daemons drain and exit"},
    {"checkpoint", tfctl_checkpoint, "look into checkpoints: ls, show, verify, diff"},
    {"certs", tfctl_certs, "make an authority and certificates for a cluster that speaks TLS"},
    {"tunnel", tfctl_tunnel,
     "a port here for clients without TLS, which leads to a master with TLS"},
};

static void print_help(FILE *out) {
    fprintf(out, "Usage: tfctl SUBCOMMAND [OPTION]... [ARG]...\nThe command line client of "
                 "Millrace and of other TensorFlow "
                 "clusters.\n\nSubcommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        fprintf(out, "  %-10s %s\n", subcommands[i].name, subcommands[i].summary);
    fprintf(
        out,
        "\ntfctl SUBCOMMAND --help lists the options of a subcommand. The default target is "
        "$MILLRACE_TARGET.\n"
        "With --output json each prints one JSON document, also for an error; local and tunnel, "
        "which run until they are stopped, print\na line of JSON for each event.\n"
        "Exit codes: 0, 64 usage, 70 the cluster or the step failed, 74 input or output failed.\n");
}

/* An error before there is a subcommand that could report it. */
static int fail(int argc, char **argv, struct status *st_take) {
    fprintf(stderr, "tfctl: %s (see --help)\n", status_message(st_take));
    if (cli_wants_json(argc, argv))
        cli_print_error(st_take, EXIT_USAGE);
    status_unref(st_take);
    return EXIT_USAGE;
}

static struct status *unknown(const char *word) {
    struct did_you_mean guess = {.typed = span_of(word)};
    struct str near = STR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        did_you_mean_try(&guess, subcommands[i].name);
    did_you_mean_add(&guess, "", &near);
    struct status *st = status_invalid("unknown %s %s%s", *word == '-' ? "option" : "subcommand",
                                       word, str_text(&near));
    str_fini(&near);
    return st;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return fail(argc, argv, status_invalid("a subcommand is missing"));
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tfctl %s\n", MILLRACE_VERSION);
        return EXIT_OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        if (strcmp(argv[1], subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
    return fail(argc, argv, unknown(argv[1]));
}
