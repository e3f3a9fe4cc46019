/* dump_tables: what the tables of ops, kernels and gradients say, as JSON on stdout, for
 * tools/gen_docs.py.
 *
 *   {"families":  ["array_ops", …],
 *    "ops":       [{"family": 0, "name": "Reshape", "summary": "…"}, …],           by family, as
 *                 the files list them
 *    "kernels":   [{"op": "Relu", "types": {"T": ["float", …]}, "host": false}, …], rows of the
 *                 device type CPU
 *    "gpu":       rows of the device type GPU; "host": all arguments are in host memory
 *    "gpu_facts": what TensorFlow computes on a GPU (gpu_rows.h), in the same form
 *    "gradients": [{"op": "Relu", "kind": "none" | "function" | "later"}, …]} */
#include <stdio.h>

#include "common/base/str.h"
#include "common/gradients/gradient.h"
#include "common/ops/op_def.h"
#include "kernels/cuda/rows/gpu_rows.h"
#include "kernels/device.h"

static void add_text(struct str *out, const char *text) {
    str_add_char(out, '"');
    str_add_json_escaped(out, text, strlen(text));
    str_add_char(out, '"');
}

static void add_families(struct str *out) {
    static const char *const names[] = {
#define OPS(list) #list,
#include "common/ops/families.inc"
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        str_add(out, i ? ", " : "");
        add_text(out, names[i]);
    }
}

static void add_ops(struct str *out) {
    const char *comma = "";
    for (size_t family = 0; family < n_op_def_lists; family++) {
        for (size_t i = 0; i < op_def_lists[family]->n_rows; i++) {
            const struct op_def *row = &op_def_lists[family]->rows[i];
            str_addf(out, "%s\n  {\"family\": %zu, \"name\": ", comma, family);
            add_text(out, row->name);
            str_add(out, ", \"summary\": ");
            add_text(out, row->summary ? row->summary : "");
            str_add_char(out, '}');
            comma = ",";
        }
    }
}

static void add_types(struct str *out, dtype_set types) {
    const char *comma = "";
    str_add_char(out, '[');
    for (int type = 0; type < DT_N_TYPES; type++) {
        if (!dtype_in((enum dtype)type, types))
            continue;
        str_add(out, comma);
        add_text(out, dtype_name((enum dtype)type));
        comma = ", ";
    }
    str_add_char(out, ']');
}

static bool is_all_on_host(const struct kernel_def *row) {
    const struct op_signature *op = op_signature_find(row->op);
    int n_elsewhere = 0;
    for (int i = 0; op && i < op->n_inputs; i++)
        n_elsewhere += !kernel_names_host_arg(row->host_args, op->inputs[i].name);
    for (int i = 0; op && i < op->n_outputs; i++)
        n_elsewhere += !kernel_names_host_arg(row->host_args, op->outputs[i].name);
    return op && op->n_inputs + op->n_outputs > 0 && n_elsewhere == 0;
}

static void add_kernel(struct str *out, bool is_first, const struct kernel_def *row) {
    str_addf(out, "%s\n  {\"op\": ", is_first ? "" : ",");
    add_text(out, row->op);
    str_add(out, ", \"types\": {");
    for (int c = 0; c < KERNEL_MAX_CONSTRAINTS && row->constraints[c].attr; c++) {
        str_add(out, c ? ", " : "");
        add_text(out, row->constraints[c].attr);
        str_add(out, ": ");
        add_types(out, row->constraints[c].types);
    }
    str_addf(out, "}, \"host\": %s}", is_all_on_host(row) ? "true" : "false");
}

static void add_kernels(struct str *out, const char *device_type) {
    const struct kernel_def *row;
    for (size_t i = 0; (row = kernel_at(device_type, i)); i++)
        add_kernel(out, i == 0, row);
}

static void add_gpu_facts(struct str *out) {
    for (size_t i = 0; i < n_gpu_rows; i++) {
        struct kernel_def row = gpu_row_to_def(&gpu_rows[i]);
        add_kernel(out, i == 0, &row);
    }
}

static void add_gradients(struct str *out) {
    static const char *const kinds[] = {[GRADIENT_NONE] = "none",
                                        [GRADIENT_FN] = "function",
                                        [GRADIENT_CALL] = "call",
                                        [GRADIENT_REFUSED] = "refused"};
    const char *comma = "";
    for (size_t l = 0; l < n_gradient_lists; l++) {
        for (size_t i = 0; i < gradient_lists[l]->n_rows; i++) {
            const struct gradient_row *row = &gradient_lists[l]->rows[i];
            str_addf(out, "%s\n  {\"op\": ", comma);
            add_text(out, row->op);
            str_addf(out, ", \"kind\": \"%s\", \"why\": ", kinds[row->kind]);
            add_text(out, row->why ? row->why : "");
            str_add(out, "}");
            comma = ",";
        }
    }
}

int main(void) {
    struct str out = STR_INIT;
    gpu_add_device_type(NULL, 0);
    str_add(&out, "{\"families\": [");
    add_families(&out);
    str_add(&out, "],\n\"ops\": [");
    add_ops(&out);
    str_add(&out, "],\n\"kernels\": [");
    add_kernels(&out, "CPU");
    str_add(&out, "],\n\"gpu\": [");
    add_kernels(&out, "GPU");
    str_add(&out, "],\n\"gpu_facts\": [");
    add_gpu_facts(&out);
    str_add(&out, "],\n\"gradients\": [");
    add_gradients(&out);
    str_add(&out, "]}\n");
    bool is_written = fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    str_fini(&out);
    return is_written ? 0 : 74;
}
