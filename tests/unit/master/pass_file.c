/* The runner of pass tests (pass_file.h). */
#include "tests/unit/master/pass_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/str.h"
#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "master/compile/cost/link_table.h"

enum { MAX_NAMES = 80 };

struct names {
    const char *texts[MAX_NAMES + 1]; /* NULL-terminated */
    int n;
};

struct pass_case {
    const char *title;
    const char *tasks;
    struct names feeds, fetches, targets, passes, options, watches;
    struct str in, extend, out; /* out: as the file has it */
};

/* ---- reading ---- */

static void split(struct arena *arena, const char *text, struct names *ret) {
    char *copy = arena_strdup(arena, text), *rest = copy;
    ret->n = 0;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        if (*word == '\0')
            continue;
        assert_true(ret->n < MAX_NAMES);
        ret->texts[ret->n++] = word;
    }
    ret->texts[ret->n] = NULL;
}

static bool has_word(const struct names *names, const char *word) {
    for (int i = 0; i < names->n; i++)
        if (strcmp(names->texts[i], word) == 0)
            return true;
    return false;
}

static void read_key(struct arena *arena, struct pass_case *c, const char *line) {
    struct {
        const char *key;
        struct names *to;
    } lists[] = {{"feeds:", &c->feeds},   {"fetches:", &c->fetches}, {"targets:", &c->targets},
                 {"passes:", &c->passes}, {"options:", &c->options}, {"watches:", &c->watches}};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        size_t len = strlen(lists[i].key);
        if (strncmp(line, lists[i].key, len) == 0) {
            split(arena, line + len, lists[i].to);
            return;
        }
    }
    if (strncmp(line, "tasks:", 6) == 0)
        c->tasks = line + 6;
    else if (*line != '\0' && *line != '#')
        fail_msg("case '%s': cannot read '%s'", c->title, line);
}

static struct str *section_of(struct pass_case *c, const char *line) {
    if (strcmp(line, "-- in") == 0)
        return &c->in;
    if (strcmp(line, "-- extend") == 0)
        return &c->extend;
    if (strcmp(line, "-- out") == 0)
        return &c->out;
    fail_msg("case '%s': cannot read '%s'", c->title, line);
    return NULL;
}

static char *read_file(struct arena *arena, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot open %s", path);
    struct str text = STR_INIT;
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof(block), file)) > 0;)
        str_add_bytes(&text, block, n);
    fclose(file);
    char *copy = arena_strdup(arena, str_text(&text));
    str_fini(&text);
    return copy;
}

/* Cuts the blank lines at the end of a section. */
static void trim(struct str *s) {
    while (s->len > 1 && s->data[s->len - 1] == '\n' && s->data[s->len - 2] == '\n')
        s->data[--s->len] = '\0';
}

/* Calls `each` for every case; `head` gets what stands before the first, `echo` every case's
 * text up to its out section. */
static int for_each_case(struct arena *arena, char *text, struct str *echo,
                         int (*each)(struct arena *arena, struct pass_case *c, struct str *echo,
                                     const char *default_passes),
                         const char *default_passes) {
    struct pass_case c = {0};
    struct str *section = NULL;
    bool is_open = false;
    int n_failed = 0;
    for (char *line; (line = strsep(&text, "\n")) != NULL;) {
        bool is_title = strncmp(line, "== ", 3) == 0;
        if (is_title && is_open)
            n_failed += each(arena, &c, echo, default_passes);
        if (is_title) {
            c = (struct pass_case){.title = line + 3, .tasks = "worker:0"};
            section = NULL;
            is_open = true;
        } else if (is_open && strncmp(line, "-- ", 3) == 0) {
            section = section_of(&c, line);
        } else if (is_open && section) {
            str_addf(section, "%s\n", line);
        } else if (is_open) {
            read_key(arena, &c, line);
        }
        if (!(is_open && section == &c.out && line[0] != '-') && text)
            str_addf(echo, "%s\n", line);
    }
    return is_open ? n_failed + each(arena, &c, echo, default_passes) : n_failed;
}

/* ---- running ---- */

struct device_table *devices_from_text(const char *tasks) {
    struct arena arena;
    struct names names = {0};
    struct device_table *table = device_table_new();
    arena_init(&arena);
    split(&arena, tasks, &names);
    for (int i = 0; i < names.n; i++) {
        char job[DEVICE_NAME_MAX], more[32] = "";
        int index;
        assert_true(sscanf(names.texts[i], "%60[^:]:%d%31s", job, &index, more) >= 2);
        char *task = arena_printf(&arena, "/job:%s/replica:0/task:%d", job, index);
        device_table_add(table, task, "localhost:1", NULL, 1);
        const char *limit = strstr(more, "~");
        device_table_add_device(table, arena_printf(&arena, "%s/device:CPU:0", task), "CPU",
                                limit ? strtol(limit + 1, NULL, 10) << 20 : 0, 1, "");
        if (strstr(more, "+cpu"))
            device_table_add_device(table, arena_printf(&arena, "%s/device:CPU:1", task), "CPU", 0,
                                    1, "");
        if (strstr(more, "+gpu"))
            device_table_add_device(table, arena_printf(&arena, "%s/device:GPU:0", task), "GPU", 0,
                                    1, "");
        if (strpbrk(more, "*x")) {
            double times = strstr(more, "*") ? strtod(strstr(more, "*") + 1, NULL) : 1;
            device_table_set_speed(table, &(struct device_slowness){times, times, times},
                                   strstr(more, "x") ? (int)strtol(strstr(more, "x") + 1, NULL, 10)
                                                     : 1);
        }
    }
    device_table_finish(table);
    arena_fini(&arena);
    return table;
}

static struct link_table *slow_links(void) {
    static const char *const names[] = {"/job:worker/replica:0/task:0",
                                        "/job:worker/replica:0/task:1"};
    struct link_table *table = link_table_new();
    for (int i = 0; i < 2; i++)
        link_table_note(table, names[i],
                        &(struct link_report){span_of(names[1 - i]), LINK_WAY_TCP, 1000000000, 0});
    return table;
}

static void print_positions(struct str *out, const char *what, const int *positions, int n) {
    for (int i = 0; i < n; i++)
        str_addf(out, "%s %d", i > 0 ? "" : what, positions[i]);
}

/* What the printer takes for an op's defaults is known only to a graph that has met the op: one
 * that was read from text has. */
void graph_print_short(const struct graph *graph, struct str *out) {
    struct str whole = STR_INIT;
    struct graph again;
    graph_init(&again);
    graph_print(graph, &whole);
    struct status *st = graph_parse(str_text(&whole), &again);
    if (st)
        fail_msg("printed graph does not read: %s\n%s", status_message(st), str_text(&whole));
    graph_print(&again, out);
    graph_fini(&again);
    str_fini(&whole);
}

static void print_function(const struct compiled_function *function, struct str *out) {
    struct graph graph;
    struct graph_limits limits;
    graph_init(&graph);
    graph_limits_default(&limits);
    limits.is_internal = true;
    str_addf(out, "# function %s is %s\n", function->name, function->key);
    struct status *st = graph_add_graphdef(&graph, function->graphdef, &limits);
    if (st)
        fail_msg("function %s does not read: %s", function->name, status_message(st));
    graph_print_short(&graph, out);
    graph_fini(&graph);
}

/* The bytes of a GraphDef are not text. */
static void hide_graphs(struct graph *graph) {
    for (int i = 0; i < graph->n_nodes; i++)
        if (strcmp(graph->nodes[i]->op_name, "_MrDebugGraph") == 0)
            node_set_attr_s(graph, graph->nodes[i], "graph", "");
}

static void print_result(const struct compilation *c, bool is_placed, struct str *out) {
    for (int i = 0; is_placed && !c->result && i < c->devices->n_devices; i++)
        str_addf(out, "# %d is %s\n", i, c->devices->devices[i].full_name);
    if (!c->result)
        graph_print_short(&c->graph, out);
    for (int i = 0; c->result && i < c->result->n_partitions; i++) {
        struct partition *partition = &c->result->partitions[i];
        hide_graphs(&partition->graph);
        str_addf(out, "# task %s", c->devices->tasks[partition->task].name);
        print_positions(out, "; feeds", partition->feeds, partition->n_feeds);
        print_positions(out, "; fetches", partition->fetches, partition->n_fetches);
        print_positions(out, "; peers", partition->peers, partition->n_peers);
        str_add_char(out, '\n');
        graph_print_short(&partition->graph, out);
        for (int k = 0; k < partition->n_functions; k++)
            print_function(&partition->functions[k], out);
    }
}

static struct status *run_passes(struct compilation *c, const struct pass_case *pass_case,
                                 const char *default_passes) {
    struct names passes = pass_case->passes;
    if (passes.n == 0)
        split(&c->arena, default_passes, &passes);
    TRY(graph_parse(str_text(&pass_case->in), &c->graph));
    if (has_word(&pass_case->options, "session"))
        TRY(place_session(&c->graph, c->devices, c->options));
    if (pass_case->extend.len > 0) {
        TRY(graph_parse(str_text(&pass_case->extend), &c->graph));
        TRY(place_session(&c->graph, c->devices, c->options));
    }
    for (int i = 0; i < passes.n; i++) {
        const struct pass *pass = pass_find(passes.texts[i]);
        bool changed;
        if (strcmp(passes.texts[i], "none") == 0)
            continue;
        if (!pass)
            return status_invalid("there is no pass '%s'", passes.texts[i]);
        TRY(compilation_run_pass(c, pass, &changed));
    }
    return NULL;
}

/* Makes messages DebugTensorWatch of "NODE:SLOT:OP[+OP][@URL,...]"; slot -1 means any. */
static int make_watches(const struct names *texts, struct str *bytes, struct span *ret) {
    size_t ends[MAX_NAMES + 1] = {0};
    for (int i = 0; i < texts->n; i++) {
        char copy[256], *urls = copy, *rest, usual[] = "file:///d";
        assert_true(strlen(texts->texts[i]) < sizeof copy);
        snprintf(copy, sizeof copy, "%s", texts->texts[i]);
        rest = strsep(&urls, "@");
        urls = urls ? urls : usual;
        const char *node = strsep(&rest, ":"), *slot = strsep(&rest, ":");
        assert_non_null(rest);
        proto_add_bytes(bytes, 1, node, strlen(node));
        proto_add_int(bytes, 2, (uint64_t)atoll(slot));
        for (char *op; (op = strsep(&rest, "+")) != NULL;)
            proto_add_bytes(bytes, 3, op, strlen(op));
        for (char *url; (url = strsep(&urls, ",")) != NULL;)
            proto_add_bytes(bytes, 4, url, strlen(url));
        ends[i + 1] = bytes->len;
    }
    for (int i = 0; i < texts->n; i++)
        ret[i] = (struct span){bytes->data + ends[i], ends[i + 1] - ends[i]};
    return texts->n;
}

static void run_case(const struct pass_case *pass_case, const char *default_passes,
                     struct str *out) {
    struct compilation c;
    struct compile_options options;
    struct signature signature = {(const char **)pass_case->feeds.texts,
                                  (const char **)pass_case->fetches.texts,
                                  (const char **)pass_case->targets.texts,
                                  pass_case->feeds.n,
                                  pass_case->fetches.n,
                                  pass_case->targets.n};
    struct str watch_bytes = STR_INIT;
    struct span watches[MAX_NAMES];
    signature.is_partial = has_word(&pass_case->options, "partial");
    signature.watches = watches;
    signature.n_watches = make_watches(&pass_case->watches, &watch_bytes, watches);
    struct device_table *devices = devices_from_text(pass_case->tasks);
    static const char *const opt_in[] = {"pads", "transposes", NULL};
    compile_options_default(&options);
    options.verify = true;
    options.enabled_passes = opt_in;
    options.allow_soft_placement = has_word(&pass_case->options, "soft");
    options.max_inlined_nodes =
        has_word(&pass_case->options, "few_nodes") ? 1000 : options.max_inlined_nodes;
    options.bfloat16_sends = has_word(&pass_case->options, "bfloat16");
    options.recv_scheduling = has_word(&pass_case->options, "late_receives");
    options.placement = has_word(&pass_case->options, "by_cost")  ? PLACEMENT_COST
                        : has_word(&pass_case->options, "spread") ? PLACEMENT_SPREAD
                                                                  : PLACEMENT_SIMPLE;
    options.is_away =
        has_word(&pass_case->options, "second_away") ? (const bool[]){false, true} : NULL;
    options.links = has_word(&pass_case->options, "slow_links") ? slow_links() : NULL;
    struct str placement = STR_INIT;
    if (has_word(&pass_case->options, "explain"))
        options.placement_log = &placement;
    options.fold_max_bytes = 1024;
    if (has_word(&pass_case->options, "small_debug"))
        options.debug_max_bytes = 1000;
    options.fold_budget_ns = 60 * INT64_C(1000000000);
    compilation_init(&c, &signature, devices, &options, NULL);
    struct status *st = run_passes(&c, pass_case, default_passes);
    if (st)
        str_addf(out, "error %s: %s\n", status_code_name(status_code(st)), status_message(st));
    else
        print_result(&c,
                     has_word(&pass_case->options, "session") ||
                         has_word(&pass_case->passes, "place") || strstr(default_passes, "place"),
                     out);
    str_add_bytes(out, placement.data, placement.len);
    str_fini(&placement);
    status_unref(st);
    compilation_fini(&c);
    device_table_unref(devices);
    link_table_free(options.links);
    str_fini(&watch_bytes);
}

static int check_case(struct arena *arena, struct pass_case *c, struct str *echo,
                      const char *default_passes) {
    struct str got = STR_INIT;
    run_case(c, default_passes, &got);
    trim(&c->out);
    bool is_same = strcmp(str_text(&c->out), str_text(&got)) == 0;
    if (!is_same && !getenv("MILLRACE_REGENERATE"))
        print_message("== %s\n-- expected\n%s-- got\n%s\n", c->title, str_text(&c->out),
                      str_text(&got));
    /* The title of the next case has not been echoed yet: the result goes before it. */
    str_addf(echo, "%s\n", str_text(&got));
    str_fini(&c->in);
    str_fini(&c->extend);
    str_fini(&c->out);
    str_fini(&got);
    return is_same ? 0 : 1;
}

void pass_file_run(const char *name, const char *default_passes) {
    struct arena arena;
    struct str echo = STR_INIT;
    arena_init(&arena);
    const char *path = arena_printf(&arena, "%s/%s", PASS_DATA_DIR, name);
    int n_failed =
        for_each_case(&arena, read_file(&arena, path), &echo, check_case, default_passes);
    if (getenv("MILLRACE_REGENERATE") && n_failed > 0) {
        trim(&echo);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(str_text(&echo), file);
        fclose(file);
        n_failed = 0;
    }
    str_fini(&echo);
    arena_fini(&arena);
    if (n_failed > 0)
        fail_msg("%s: %d cases differ", name, n_failed);
}
