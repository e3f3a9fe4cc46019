/* tfctl run: one step of a graph, from the command line. */
#include "tfctl/tfctl.h"

#include <errno.h>
#include <stdlib.h>

#include "client/client_tensor.h"
#include "rpc/daemon/page.h"
#include "tfctl/cli.h"
#include "tfctl/feed_value.h"
#include "tfctl/remote.h"
#include "tfctl/tensor_json.h"
#include "common/tensor/npy.h"

struct run_flags {
    const char *target;
    struct tls_client tls;
    struct cli_list feeds, fetches, targets;
    int64_t timeout_ms, max_elements;
};

#define FIELD(field) offsetof(struct run_flags, field)

// clang-format off
static const struct option_row rows[] = {
    {"target", OPTION_STRING, FIELD(target), "URL", NULL,
        "the master, grpc://HOST:PORT (default $MILLRACE_TARGET)"},
#include "client/tls_client_rows.inc"
    {"timeout", OPTION_DURATION, FIELD(timeout_ms), "TIME", NULL,
        "how long each call may take (default: no limit)", 1, 86400000ll * 365},
    {"max-elements", OPTION_INT, FIELD(max_elements), "N", "1000",
        "how many elements of a fetch are printed"},
};

static const struct cli_list_row lists[] = {
    {"feed", FIELD(feeds), "NAME=VALUE", "feed a tensor, NODE or NODE:INDEX; may be repeated"},
    {"fetch", FIELD(fetches), "NAME[=@FILE]",
        "print a tensor, or write it to a .npy file; may be repeated"},
    {"target-op", FIELD(targets), "NODE", "run an operation; may be repeated"},
};
// clang-format on

static const char epilog[] = "\nGRAPH.pb is a binary GraphDef. A VALUE is one of\n"
                             "  @FILE.npy           the array in the file\n"
                             "  3                   int32\n"
                             "  1.5                 float\n"
                             "  true, false         bool\n"
                             "  \"text\"              string (in a shell: --feed 'name=\"text\"')\n"
                             "  int64[2]{1, 2}      any dtype and shape, as tfctl prints tensors; "
                             "float[9]{0, …} repeats the last element\n"
                             "Fetches are printed as NAME = DTYPE[SHAPE]{ELEMENTS}.\n"
                             "\nExample:\n"
                             "  tfctl run graph.pb --feed a=@a.npy --feed b=3.5 --fetch c --fetch "
                             "d:1=@d.npy --target-op init\n";

static const struct cli_spec spec = {
    .options = {.program = "tfctl run",
                .summary = "Runs one step of a graph.",
                .epilog = epilog,
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "GRAPH.pb [OPTION]...",
    .lists = lists,
    .n_lists = ARRAY_LEN(lists),
    .min_args = 1,
    .max_args = 1,
};

/* The values of the flags, split up. Names are in the command line's arena. */
struct step {
    const char **feed_names, **fetch_names, **fetch_files; /* files: NULL to print */
    TF_Tensor **feeds, **fetches;
    int n_feeds, n_fetches;
};

/* ---- reading what the flags name ---- */

static struct status *read_graph(const char *path, struct str *ret) {
    char bytes[65536];
    size_t n;
    FILE *file = fopen(path, "re");
    if (!file)
        return status_new(STATUS_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    while ((n = fread(bytes, 1, sizeof(bytes), file)) > 0)
        str_add_bytes(ret, bytes, n);
    struct status *st =
        ferror(file) ? status_new(STATUS_NOT_FOUND, "cannot read %s: %s", path, strerror(errno))
                     : NULL;
    fclose(file);
    return st;
}

static struct status *read_feed(struct step *step, const char *text, struct arena *arena) {
    const char *equals = strchr(text, '=');
    struct tensor value;
    if (!equals || equals == text)
        return status_invalid("--feed: \"%s\" is not NAME=VALUE", text);
    TRY(status_prefix_take(feed_value_parse(equals + 1, &value),
                           "--feed %.*s: ", (int)(equals - text), text));
    step->feed_names[step->n_feeds] = arena_strndup(arena, text, (size_t)(equals - text));
    step->feeds[step->n_feeds++] = client_tensor_new(&value);
    return NULL;
}

static struct status *read_fetch(struct step *step, const char *text, struct arena *arena) {
    const char *equals = strchr(text, '=');
    if (equals && (equals == text || equals[1] != '@' || equals[2] == '\0'))
        return status_invalid("--fetch: \"%s\" is not NAME or NAME=@FILE", text);
    step->fetch_names[step->n_fetches] =
        equals ? arena_strndup(arena, text, (size_t)(equals - text)) : text;
    step->fetch_files[step->n_fetches++] = equals ? equals + 2 : NULL;
    return NULL;
}

static struct status *step_init(struct step *step, const struct run_flags *flags,
                                struct arena *arena) {
    int n_feeds = flags->feeds.n, n_fetches = flags->fetches.n;
    *step = (struct step){.feed_names = arena_array(arena, const char *, n_feeds),
                          .feeds = arena_array(arena, TF_Tensor *, n_feeds),
                          .fetch_names = arena_array(arena, const char *, n_fetches),
                          .fetch_files = arena_array(arena, const char *, n_fetches),
                          .fetches = arena_array(arena, TF_Tensor *, n_fetches)};
    for (int i = 0; i < n_feeds; i++)
        TRY(read_feed(step, flags->feeds.items[i], arena));
    for (int i = 0; i < n_fetches; i++)
        TRY(read_fetch(step, flags->fetches.items[i], arena));
    if (n_fetches == 0 && flags->targets.n == 0)
        return status_invalid("nothing to do: give --fetch or --target-op");
    return NULL;
}

static void step_fini(struct step *step) {
    for (int i = 0; i < step->n_feeds; i++)
        TF_DeleteTensor(step->feeds[i]);
    for (int i = 0; i < step->n_fetches; i++)
        TF_DeleteTensor(step->fetches[i]);
}

/* ---- the step ---- */

/* Appends a row of the fetch: a line of text, or an element of a JSON list. */
static struct status *show_fetch(const struct cli *cli, const char *name, const char *file,
                                 const struct tensor *value, int64_t max_elements,
                                 struct str *out) {
    if (file)
        TRY(npy_write(file, value));
    if (cli_is_json(cli)) {
        page_open(out, NULL, '{');
        page_text(out, "name", name);
        tensor_json_add_type(value, out);
        if (file)
            page_text(out, "file", file);
        else
            tensor_json_add_values(value, max_elements, out);
        page_close(out, '}');
    } else if (file) {
        str_addf(out, "%s = %s", name, dtype_name((enum dtype)value->dtype));
        shape_print(tensor_shape(value), out);
        str_addf(out, " in %s\n", file);
    } else {
        str_addf(out, "%s = ", name);
        tensor_print(value, max_elements, out);
        str_add_char(out, '\n');
    }
    return NULL;
}

static int show_fetches(const struct cli *cli, const struct run_flags *flags,
                        const struct step *step) {
    struct str out = STR_INIT;
    struct status *st = NULL;
    if (cli_is_json(cli))
        str_add(&out, "{\"fetches\":[");
    for (int i = 0; i < step->n_fetches && !st; i++)
        st = show_fetch(cli, step->fetch_names[i], step->fetch_files[i],
                        client_tensor_value(step->fetches[i]), flags->max_elements, &out);
    if (cli_is_json(cli))
        str_add(&out, "]}\n");
    if (!st || !cli_is_json(cli))
        fwrite(out.data, 1, out.len, stdout);
    str_fini(&out);
    return st ? cli_fail(cli, EXIT_IO, st) : EXIT_OK;
}

static int run_step(const struct cli *cli, const struct run_flags *flags, const struct str *graph,
                    struct step *step, TF_Status *status) {
    TF_Status *ignored = TF_NewStatus();
    TF_DeprecatedSession *session = remote_session(
        flags->target, &flags->tls, flags->timeout_ms > 0 ? flags->timeout_ms : -1, status);
    if (session)
        TF_ExtendGraph(session, str_text(graph), graph->len, status);
    if (TF_GetCode(status) == TF_OK)
        TF_Run(session, NULL, step->feed_names, step->feeds, step->n_feeds, step->fetch_names,
               step->fetches, step->n_fetches, flags->targets.items, flags->targets.n, NULL,
               status);
    TF_DeleteDeprecatedSession(session, ignored);
    TF_DeleteStatus(ignored);
    return TF_GetCode(status) != TF_OK ? remote_fail(cli, status) : show_fetches(cli, flags, step);
}

static int run(struct cli *cli, void *arg) {
    struct run_flags *flags = arg;
    struct str graph = STR_INIT;
    struct step step = {0};
    TF_Status *status = TF_NewStatus();
    int code;
    struct status *st = remote_target(flags->target, &flags->target);
    if (!st)
        st = step_init(&step, flags, &cli->options.arena);
    if (st)
        code = status_code(st) == STATUS_INVALID_ARGUMENT ? cli_fail_usage(cli, st)
                                                          : cli_fail(cli, EXIT_IO, st);
    else if ((st = read_graph(cli->args[0], &graph)))
        code = cli_fail(cli, EXIT_IO, st);
    else
        code = run_step(cli, flags, &graph, &step, status);
    step_fini(&step);
    str_fini(&graph);
    TF_DeleteStatus(status);
    return code;
}

int tfctl_run(int argc, char **argv) {
    struct run_flags flags = {.target = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
