/* tfctl checkpoint: looks into checkpoints, ours and TensorFlow's, without a cluster. */
#include "tfctl/tfctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/daemon/page.h"
#include "tfctl/checkpoint_file.h"
#include "tfctl/cli.h"
#include "tfctl/progress.h"

enum { EXIT_DIFFERENT = 1 };

struct checkpoint_flags {
    int64_t max_elements;
    int output;
};

#define ROW(...) CLI_ROW(struct checkpoint_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("elements", OPTION_INT, max_elements, "20", "N",
        "how many elements of a tensor `show` prints"), .min = 0, .max = INT32_MAX},
#include "tfctl/output_rows.inc"
};
// clang-format on

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
};

static int report(struct status *st_take) {
    bool is_io =
        status_code(st_take) != STATUS_DATA_LOSS && status_code(st_take) != STATUS_INTERNAL;
    fprintf(stderr, "tfctl checkpoint: %s\n", status_message(st_take));
    status_unref(st_take);
    return is_io ? EXIT_IO : EXIT_INTERNAL;
}

static void print_shape(struct shape shape) {
    struct str text = STR_INIT;
    shape_print(shape, &text);
    printf("%s", str_text(&text));
    str_fini(&text);
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
    struct str out = STR_INIT, shape = STR_INIT;
    page_open(&out, NULL, '[');
    for (size_t i = 0; i < file->n; i++) {
        const struct checkpoint_tensor *tensor = &file->tensors[i];
        str_clear(&shape);
        shape_print(tensor->shape, &shape);
        page_open(&out, NULL, '{');
        page_span(&out, "name", tensor->name);
        page_text(&out, "dtype", dtype_name(tensor->dtype));
        page_text(&out, "shape", str_text(&shape));
        if (tensor->entry.n_slices > 0)
            page_int(&out, "slices", tensor->entry.n_slices);
        else if (!tensor->saved)
            page_int(&out, "size_bytes", tensor->entry.size_bytes);
        page_close(&out, '}');
    }
    page_close(&out, ']');
    puts(str_text(&out));
    str_fini(&out);
    str_fini(&shape);
}

static int list_all(const struct checkpoint_file *file, int output) {
    int width = 4;
    if (output == CLI_OUTPUT_JSON) {
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

static int show(const struct checkpoint_file *file, const char *name, int64_t max_elements) {
    const struct checkpoint_tensor *tensor = checkpoint_file_find(file, span_of(name));
    struct tensor t = TENSOR_INIT;
    struct str text = STR_INIT;
    if (!tensor)
        return report(status_not_found("Key %s not found in checkpoint %s", name, file->prefix));
    struct status *st = checkpoint_file_read(file, tensor, &t);
    if (st)
        return report(st);
    tensor_print(&t, max_elements, &text);
    printf("%s: %s\n", name, str_text(&text));
    tensor_clear(&t);
    str_fini(&text);
    return EXIT_OK;
}

/* ---- verify ---- */

struct verified {
    int n_damaged;
    int64_t size_bytes;
    struct str json; /* a list of messages */
};

static void verify_one(const struct checkpoint_file *file, const struct checkpoint_tensor *tensor,
                       int output, struct verified *ret) {
    struct tensor t = TENSOR_INIT;
    struct status *st = checkpoint_file_read(file, tensor, &t);
    if (!st)
        ret->size_bytes += (int64_t)tensor_size_bytes(&t);
    else if (output == CLI_OUTPUT_JSON)
        page_text(&ret->json, NULL, status_message(st));
    else
        printf("%s: %s\n", status_code_name(status_code(st)), status_message(st));
    ret->n_damaged += st != NULL;
    status_unref(st);
    tensor_clear(&t);
}

static void print_verified(const struct checkpoint_file *file, const struct verified *verified,
                           int output) {
    struct str out = STR_INIT;
    if (output == CLI_OUTPUT_JSON) {
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
    puts(str_text(&out));
    str_fini(&out);
}

static int verify(const struct checkpoint_file *file, int output) {
    struct verified verified = {.json = STR_INIT};
    struct progress progress;
    progress_begin(&progress);
    for (size_t i = 0; i < file->n; i++) {
        progress_show(&progress, "%zu of %zu tensors, %" PRId64 " MB", i, file->n,
                      verified.size_bytes / 1000000);
        verify_one(file, &file->tensors[i], output, &verified);
    }
    progress_clear(&progress);
    print_verified(file, &verified, output);
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

/* Compares a tensor that both checkpoints have. True when it differs. */
static bool compare_both(const struct checkpoint_file *const files[2],
                         const struct checkpoint_tensor *const both[2], int *code) {
    const struct checkpoint_tensor *a = both[0], *b = both[1];
    int64_t n = 0;
    if (a->dtype != b->dtype || !shape_equal(a->shape, b->shape)) {
        printf("%.*s: %s ", (int)a->name.len, a->name.data, dtype_name(a->dtype));
        print_shape(a->shape);
        printf(" and %s ", dtype_name(b->dtype));
        print_shape(b->shape);
        printf("\n");
        return true;
    }
    struct status *st = compare_values(files, both, &n);
    if (st)
        *code = report(st);
    else if (n > 0)
        printf("%.*s: %" PRId64 " elements differ\n", (int)a->name.len, a->name.data, n);
    return n > 0;
}

static int compare(const struct checkpoint_file *a, const struct checkpoint_file *b) {
    const struct checkpoint_file *const files[2] = {a, b};
    int n_different = 0, code = EXIT_OK;
    for (size_t i = 0, k = 0; i < a->n || k < b->n;) {
        int order = i == a->n   ? 1
                    : k == b->n ? -1
                                : table_compare(a->tensors[i].name, b->tensors[k].name);
        const struct checkpoint_tensor *both[2] = {&a->tensors[i], &b->tensors[k]};
        if (order != 0) {
            const struct checkpoint_tensor *one = order < 0 ? both[0] : both[1];
            printf("%.*s: only in %s\n", (int)one->name.len, one->name.data,
                   files[order > 0]->prefix);
            n_different++;
        } else {
            n_different += compare_both(files, both, &code);
        }
        i += order <= 0;
        k += order >= 0;
    }
    return code != EXIT_OK ? code : n_different > 0 ? EXIT_DIFFERENT : EXIT_OK;
}

/* ---- the command ---- */

static int run_diff(const struct cli *cli) {
    struct checkpoint_file a = {0}, b = {0};
    if (cli->n_args != 3)
        return cli_usage_error(&spec, status_invalid("diff compares two checkpoints"));
    struct status *st = checkpoint_file_open(&a, cli->args[1]);
    if (!st)
        st = checkpoint_file_open(&b, cli->args[2]);
    int code = st ? report(st) : compare(&a, &b);
    checkpoint_file_fini(&a);
    checkpoint_file_fini(&b);
    return code;
}

static int run_on_one(const struct cli *cli, const struct checkpoint_flags *flags) {
    struct checkpoint_file file;
    const char *command = cli->args[0];
    bool is_show = strcmp(command, "show") == 0;
    if (!is_show && cli->n_args != 2)
        return cli_usage_error(&spec, status_invalid("%s takes one checkpoint", command));
    if (is_show && cli->n_args < 3)
        return cli_usage_error(&spec, status_invalid("show needs the names of tensors"));
    struct status *st = checkpoint_file_open(&file, cli->args[1]);
    int code = EXIT_OK;
    if (st)
        code = report(st);
    else if (is_show)
        for (int i = 2; code == EXIT_OK && i < cli->n_args; i++)
            code = show(&file, cli->args[i], flags->max_elements);
    else
        code = strcmp(command, "ls") == 0 ? list_all(&file, flags->output)
                                          : verify(&file, flags->output);
    checkpoint_file_fini(&file);
    return code;
}

int tfctl_checkpoint(int argc, char **argv) {
    struct checkpoint_flags flags = {0};
    struct cli cli;
    int code = EXIT_OK;
    cli_init(&cli, &spec, &flags);
    if (cli_load(&cli, &spec, argc, argv, &code) == OPTIONS_GO_ON) {
        const char *command = cli.args[0];
        if (strcmp(command, "diff") == 0)
            code = run_diff(&cli);
        else if (strcmp(command, "ls") == 0 || strcmp(command, "show") == 0 ||
                 strcmp(command, "verify") == 0)
            code = run_on_one(&cli, &flags);
        else
            code = cli_usage_error(
                &spec, status_invalid("'%s' is none of ls, show, verify and diff", command));
    }
    cli_fini(&cli);
    return code;
}
