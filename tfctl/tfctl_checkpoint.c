/* tfctl checkpoint: looks into checkpoints, ours and TensorFlow's, without a cluster. */
#include "tfctl/tfctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/daemon/page.h"
#include "tfctl/checkpoint_file.h"
#include "tfctl/cli.h"
#include "tfctl/progress.h"
#include "tfctl/tensor_json.h"

enum { EXIT_DIFFERENT = 1 };

struct checkpoint_flags {
    int64_t max_elements;
};

#define ROW(...) CLI_ROW(struct checkpoint_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("elements", OPTION_INT, max_elements, "20", "N",
        "how many elements of a tensor `show` prints"), .min = 0, .max = INT32_MAX},
};
// clang-format on

enum { VERB_LS, VERB_SHOW, VERB_VERIFY, VERB_DIFF };
static const char *const verbs[] = {
    [VERB_LS] = "ls", [VERB_SHOW] = "show", [VERB_VERIFY] = "verify", [VERB_DIFF] = "diff", NULL};

static const struct cli_spec spec = {
    .options = {.program = "tfctl checkpoint",
                .summary = "Looks into checkpoints. PATH is a prefix, an .index file, a file of "
                           "the older format, or a directory: its newest one.\n\n"
                           "  ls PATH                names, types, shapes, sizes\n"
                           "  show PATH NAME...      values\n"
                           "  verify PATH            reads everything and compares "
                           "checksums; exits with 70 when something is damaged\n"
                           "  diff PATH PATH         what differs; exits with 1 when "
                           "something does",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "ls|show|verify|diff PATH... [OPTION]...",
    .min_args = 2,
    .max_args = 1000,
    .verbs = verbs,
};

static int report(const struct cli *cli, struct status *st_take) {
    bool is_io =
        status_code(st_take) != STATUS_DATA_LOSS && status_code(st_take) != STATUS_INTERNAL;
    return cli_fail(cli, is_io ? EXIT_IO : EXIT_INTERNAL, st_take);
}

/* ---- ls ---- */

static void print_row(const struct checkpoint_tensor *tensor, int width) {
    struct str shape = STR_INIT;
    shape_print(tensor->shape, &shape);
    printf("%-*.*s  %-10s  %-16s", width, (int)tensor->name.len, tensor->name.data,
           dtype_name(tensor->dtype), str_text(&shape));
    if (tensor->entry.n_slices > 0)
        printf("  %d slices", tensor->entry.n_slices);
    else if (!tensor->saved)
        printf("  %12" PRId64 " bytes  shard %d at %" PRId64, tensor->entry.size_bytes,
               tensor->entry.shard, tensor->entry.offset);
    printf("\n");
    str_fini(&shape);
}

static void list_as_json(const struct checkpoint_file *file) {
    struct str out = STR_INIT;
    page_open(&out, NULL, '[');
    for (size_t i = 0; i < file->n; i++) {
        const struct checkpoint_tensor *tensor = &file->tensors[i];
        page_open(&out, NULL, '{');
        page_span(&out, "name", tensor->name);
        page_text(&out, "dtype", dtype_name(tensor->dtype));
        tensor_json_add_shape(tensor->shape, &out);
        if (tensor->entry.n_slices > 0)
            page_int(&out, "slices", tensor->entry.n_slices);
        else if (!tensor->saved)
            page_int(&out, "size_bytes", tensor->entry.size_bytes);
        page_close(&out, '}');
    }
    page_close(&out, ']');
    cli_print(&out);
    str_fini(&out);
}

static int list_all(const struct cli *cli, const struct checkpoint_file *file) {
    int width = 4;
    if (cli_is_json(cli)) {
        list_as_json(file);
        return EXIT_OK;
    }
    for (size_t i = 0; i < file->n; i++)
        width = MAX(width, (int)MIN(file->tensors[i].name.len, (size_t)80));
    printf("%-*s  %-10s  %-16s  %s\n", width, "NAME", "TYPE", "SHAPE", "WHERE");
    for (size_t i = 0; i < file->n; i++)
        print_row(&file->tensors[i], width);
    return EXIT_OK;
}

/* ---- show ---- */

/* Appends a line of text, or an element of a JSON list. */
static struct status *show(const struct cli *cli, const struct checkpoint_file *file,
                           const char *name, int64_t max_elements, struct str *out) {
    const struct checkpoint_tensor *tensor = checkpoint_file_find(file, span_of(name));
    struct tensor t = TENSOR_INIT;
    if (!tensor)
        return status_not_found("Key %s not found in checkpoint %s", name, file->prefix);
    TRY(checkpoint_file_read(file, tensor, &t));
    if (cli_is_json(cli)) {
        page_open(out, NULL, '{');
        page_text(out, "name", name);
        tensor_json_add_type(&t, out);
        tensor_json_add_values(&t, max_elements, out);
        page_close(out, '}');
    } else {
        str_addf(out, "%s: ", name);
        tensor_print(&t, max_elements, out);
        str_add_char(out, '\n');
    }
    tensor_clear(&t);
    return NULL;
}

static int show_all(const struct cli *cli, const struct checkpoint_file *file,
                    int64_t max_elements) {
    struct str out = STR_INIT;
    struct status *st = NULL;
    if (cli_is_json(cli))
        page_open(&out, NULL, '[');
    for (int i = 2; i < cli->n_args && !st; i++)
        st = show(cli, file, cli->args[i], max_elements, &out);
    if (cli_is_json(cli))
        str_add(&out, "]\n");
    if (!st || !cli_is_json(cli)) /* as JSON, only the error is shown */
        fwrite(out.data, 1, out.len, stdout);
    str_fini(&out);
    return st ? report(cli, st) : EXIT_OK;
}

/* ---- verify ---- */

struct verified {
    int n_damaged;
    int64_t size_bytes;
    struct str json; /* a list of messages */
};

static void verify_one(const struct checkpoint_file *file, const struct checkpoint_tensor *tensor,
                       bool is_json, struct verified *ret) {
    struct tensor t = TENSOR_INIT;
    struct status *st = checkpoint_file_read(file, tensor, &t);
    if (!st)
        ret->size_bytes += (int64_t)tensor_size_bytes(&t);
    else if (is_json)
        page_text(&ret->json, NULL, status_message(st));
    else
        printf("%s: %s\n", status_code_name(status_code(st)), status_message(st));
    ret->n_damaged += st != NULL;
    status_unref(st);
    tensor_clear(&t);
}

static void print_verified(const struct checkpoint_file *file, const struct verified *verified,
                           bool is_json) {
    struct str out = STR_INIT;
    if (is_json) {
        page_open(&out, NULL, '{');
        page_bool(&out, "ok", verified->n_damaged == 0);
        page_text(&out, "checkpoint", file->prefix);
        page_int(&out, "tensors", (int64_t)file->n);
        page_int(&out, "size_bytes", verified->size_bytes);
        page_key(&out, "damaged");
        str_addf(&out, "[%s]", str_text(&verified->json));
        page_close(&out, '}');
    } else if (verified->n_damaged == 0) {
        str_addf(&out, "%s is whole: %zu tensors, %" PRId64 " bytes", file->prefix, file->n,
                 verified->size_bytes);
    } else {
        str_addf(&out, "%s is damaged: %d of %zu tensors", file->prefix, verified->n_damaged,
                 file->n);
    }
    cli_print(&out);
    str_fini(&out);
}

static int verify(const struct cli *cli, const struct checkpoint_file *file) {
    struct verified verified = {.json = STR_INIT};
    struct progress progress;
    progress_begin(&progress);
    for (size_t i = 0; i < file->n; i++) {
        progress_show(&progress, "%zu of %zu tensors, %" PRId64 " MB", i, file->n,
                      verified.size_bytes / 1000000);
        verify_one(file, &file->tensors[i], cli_is_json(cli), &verified);
    }
    progress_clear(&progress);
    print_verified(file, &verified, cli_is_json(cli));
    str_fini(&verified.json);
    return verified.n_damaged == 0 ? EXIT_OK : EXIT_INTERNAL;
}

/* ---- diff ---- */

static int64_t count_different(const struct tensor *a, const struct tensor *b) {
    size_t size = dtype_size((enum dtype)a->dtype);
    const char *x = tensor_cdata(a), *y = tensor_cdata(b);
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_elements; i++)
        n += a->dtype == DT_STRING ? !span_equal(tensor_string(a, i), tensor_string(b, i))
                                   : memcmp(x + (size_t)i * size, y + (size_t)i * size, size) != 0;
    return n;
}

static struct status *compare_values(const struct checkpoint_file *const files[2],
                                     const struct checkpoint_tensor *const both[2],
                                     int64_t *ret_n) {
    struct tensor a = TENSOR_INIT, b = TENSOR_INIT;
    TRY(checkpoint_file_read(files[0], both[0], &a));
    struct status *st = checkpoint_file_read(files[1], both[1], &b);
    if (!st)
        *ret_n = count_different(&a, &b);
    tensor_clear(&a);
    tensor_clear(&b);
    return st;
}

/* What differs, as lines or as elements of a JSON list. */
struct difference {
    bool is_json;
    int n, n_unreadable;
    struct str rows, unreadable;
    struct status *status; /* of the first that cannot be read */
};

static void note_missing(struct difference *difference, const struct checkpoint_tensor *tensor,
                         const char *prefix) {
    struct str *out = &difference->rows;
    difference->n++;
    if (!difference->is_json) {
        str_addf(out, "%.*s: only in %s\n", (int)tensor->name.len, tensor->name.data, prefix);
        return;
    }
    page_open(out, NULL, '{');
    page_span(out, "name", tensor->name);
    page_text(out, "only_in", prefix);
    page_close(out, '}');
}

static void note_types(struct difference *difference,
                       const struct checkpoint_tensor *const both[2]) {
    struct str *out = &difference->rows;
    difference->n++;
    if (difference->is_json) {
        page_open(out, NULL, '{');
        page_span(out, "name", both[0]->name);
        page_open(out, "types", '[');
    } else {
        str_addf(out, "%.*s: ", (int)both[0]->name.len, both[0]->name.data);
    }
    for (int i = 0; i < 2; i++) {
        if (difference->is_json) {
            page_open(out, NULL, '{');
            page_text(out, "dtype", dtype_name(both[i]->dtype));
            tensor_json_add_shape(both[i]->shape, out);
            page_close(out, '}');
        } else {
            str_addf(out, "%s%s ", i > 0 ? " and " : "", dtype_name(both[i]->dtype));
            shape_print(both[i]->shape, out);
        }
    }
    str_add(out, difference->is_json ? "]}" : "\n");
}

static void note_values(struct difference *difference, struct span name, int64_t n) {
    struct str *out = &difference->rows;
    difference->n++;
    if (!difference->is_json) {
        str_addf(out, "%.*s: %" PRId64 " elements differ\n", (int)name.len, name.data, n);
        return;
    }
    page_open(out, NULL, '{');
    page_span(out, "name", name);
    page_int(out, "elements", n);
    page_close(out, '}');
}

static void note_unreadable(struct difference *difference, struct status *st_take) {
    if (difference->is_json)
        page_text(&difference->unreadable, NULL, status_message(st_take));
    if (difference->n_unreadable++ == 0)
        difference->status = st_take;
    else
        status_unref(st_take);
}

/* Compares a tensor that both checkpoints have. */
static void compare_both(const struct checkpoint_file *const files[2],
                         const struct checkpoint_tensor *const both[2],
                         struct difference *difference) {
    int64_t n = 0;
    if (both[0]->dtype != both[1]->dtype || !shape_equal(both[0]->shape, both[1]->shape)) {
        note_types(difference, both);
        return;
    }
    struct status *st = compare_values(files, both, &n);
    if (st)
        note_unreadable(difference, st);
    else if (n > 0)
        note_values(difference, both[0]->name, n);
}

static void compare(const struct checkpoint_file *a, const struct checkpoint_file *b,
                    struct difference *difference) {
    const struct checkpoint_file *const files[2] = {a, b};
    struct progress progress;
    progress_begin(&progress);
    for (size_t i = 0, k = 0; i < a->n || k < b->n;) {
        int order = i == a->n   ? 1
                    : k == b->n ? -1
                                : table_compare(a->tensors[i].name, b->tensors[k].name);
        const struct checkpoint_tensor *both[2] = {&a->tensors[i], &b->tensors[k]};
        progress_show(&progress, "%zu of %zu tensors", i, a->n);
        if (order != 0)
            note_missing(difference, order < 0 ? both[0] : both[1], files[order > 0]->prefix);
        else
            compare_both(files, both, difference);
        i += order <= 0;
        k += order >= 0;
    }
    progress_clear(&progress);
}

static int print_difference(const struct cli *cli, const struct difference *difference) {
    struct str out = STR_INIT;
    if (difference->is_json) {
        str_addf(&out, "{\"same\":%s,\"differences\":[%s],\"unreadable\":[%s]}\n",
                 difference->n + difference->n_unreadable == 0 ? "true" : "false",
                 str_text(&difference->rows), str_text(&difference->unreadable));
    } else {
        str_add(&out, str_text(&difference->rows));
    }
    fputs(str_text(&out), stdout);
    str_fini(&out);
    if (difference->n_unreadable == 0)
        return difference->n > 0 ? EXIT_DIFFERENT : EXIT_OK;
    fprintf(stderr, "tfctl checkpoint: %d tensors cannot be read, the first: %s\n",
            difference->n_unreadable, status_message(difference->status));
    return EXIT_INTERNAL;
}

/* ---- the command ---- */

static int run_diff(const struct cli *cli) {
    struct checkpoint_file a = {0}, b = {0};
    struct difference difference = {.is_json = cli_is_json(cli)};
    if (cli->n_args != 3)
        return cli_fail_usage(cli, status_invalid("diff compares two checkpoints"));
    struct status *st = checkpoint_file_open(&a, cli->args[1]);
    if (!st)
        st = checkpoint_file_open(&b, cli->args[2]);
    if (!st)
        compare(&a, &b, &difference);
    int code = st ? report(cli, st) : print_difference(cli, &difference);
    checkpoint_file_fini(&a);
    checkpoint_file_fini(&b);
    str_fini(&difference.rows);
    str_fini(&difference.unreadable);
    status_unref(difference.status);
    return code;
}

static int run(struct cli *cli, void *arg) {
    const struct checkpoint_flags *flags = arg;
    struct checkpoint_file file;
    if (cli->verb == VERB_DIFF)
        return run_diff(cli);
    if (cli->verb != VERB_SHOW && cli->n_args != 2)
        return cli_fail_usage(cli, status_invalid("%s takes one checkpoint", cli->args[0]));
    if (cli->verb == VERB_SHOW && cli->n_args < 3)
        return cli_fail_usage(cli, status_invalid("show needs the names of tensors"));
    struct status *st = checkpoint_file_open(&file, cli->args[1]);
    int code = st                         ? report(cli, st)
               : cli->verb == VERB_SHOW   ? show_all(cli, &file, flags->max_elements)
               : cli->verb == VERB_VERIFY ? verify(cli, &file)
                                          : list_all(cli, &file);
    checkpoint_file_fini(&file);
    return code;
}

int tfctl_checkpoint(int argc, char **argv) {
    struct checkpoint_flags flags = {.max_elements = 0};
    return cli_main(&spec, &flags, argc, argv, run);
}
