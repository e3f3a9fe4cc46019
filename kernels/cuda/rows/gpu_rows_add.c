/* Makes the kernel rows of the device type "GPU" from facts and implementations (gpu_rows.h). */
#include <stdlib.h>

#include "kernels/cuda/rows/gpu_rows.h"
#include "kernels/device.h"

/* What a process that only places knows of our kernels. */
// clang-format off
#define GPU_KERNEL(op, attr, types, flags, ...) {op, attr, types, flags, NULL, NULL, NULL, NULL},
static const struct gpu_implementation placing[] = {
#include "kernels/cuda/rows/implementations.inc"
};
// clang-format on

static bool is_all_on_host(const struct gpu_row *row) {
    const struct op_signature *op = op_signature_find(row->op);
    for (int i = 0; op && i < op->n_inputs; i++)
        if (!kernel_names_host_arg(row->host_args, op->inputs[i].name))
            return false;
    for (int i = 0; op && i < op->n_outputs; i++)
        if (!kernel_names_host_arg(row->host_args, op->outputs[i].name))
            return false;
    return op && op->n_inputs + op->n_outputs > 0;
}

/* Intersects the row's types with the implementation's. False: nothing is left. */
static bool limit_types(struct kernel_def *def, const struct gpu_implementation *by) {
    if (!by->attr)
        return true;
    for (int i = 0; i < KERNEL_MAX_CONSTRAINTS && def->constraints[i].attr; i++)
        if (strcmp(def->constraints[i].attr, by->attr) == 0) {
            def->constraints[i].types &= by->types;
            return def->constraints[i].types != 0;
        }
    for (int i = 0; i < KERNEL_MAX_CONSTRAINTS; i++)
        if (!def->constraints[i].attr) {
            def->constraints[i].attr = by->attr;
            def->constraints[i].types = by->types;
            return true;
        }
    return false;
}

/* Limits a row to the types of fused programs. False: nothing is left. */
static bool limit_to_fused(struct kernel_def *def, bool *ret_is_limited) {
    *ret_is_limited = false;
    for (int i = 0; i < KERNEL_MAX_CONSTRAINTS && def->constraints[i].attr; i++) {
        *ret_is_limited |= (def->constraints[i].types & ~GPU_FUSED_TYPES) != 0;
        def->constraints[i].types &= GPU_FUSED_TYPES;
        if (!def->constraints[i].types)
            return false;
    }
    return true;
}

static size_t add_served(struct kernel_def *defs, size_t n_defs, const struct kernel_def *served) {
    struct kernel_def fused = *served;
    bool is_limited;
    if ((served->flags & KERNEL_ELEMENTWISE) && limit_to_fused(&fused, &is_limited)) {
        defs[n_defs++] = fused;
        if (!is_limited)
            return n_defs;
    }
    defs[n_defs] = *served;
    defs[n_defs].flags &= ~(uint32_t)KERNEL_ELEMENTWISE;
    return n_defs + 1;
}

static void set_functions(struct kernel_def *def, const struct gpu_implementation *by) {
    def->flags = by->flags;
    def->compute = by->compute;
    def->init = by->init;
    def->fini = by->fini;
    def->arg = by->arg;
}

struct kernel_def gpu_row_to_def(const struct gpu_row *row) {
    struct kernel_def def = {.op = row->op, .host_args = row->host_args};
    int n = 0;
    for (int i = 0; i < KERNEL_MAX_CONSTRAINTS && row->constraints[i].attr; i++) {
        if (!row->constraints[i].types) /* limits a string (bad_indices_policy), not a type */
            continue;
        def.constraints[n].attr = row->constraints[i].attr;
        def.constraints[n++].types = row->constraints[i].types;
    }
    return def;
}

void gpu_add_device_type(const struct gpu_implementation *implementations, size_t n) {
    static struct kernel_list list;
    static const struct kernel_list *const lists[] = {&list};
    if (!implementations) {
        implementations = placing;
        n = ARRAY_LEN(placing);
    }
    struct kernel_def *defs = xcalloc(n_gpu_rows * (2 * n + 1) + 1, sizeof *defs);
    size_t n_defs = 0;
    for (size_t r = 0; r < n_gpu_rows; r++) {
        struct kernel_def def = gpu_row_to_def(&gpu_rows[r]);
        if (is_all_on_host(&gpu_rows[r]) && kernel_op_is_supported(def.op, "CPU")) {
            def.flags = KERNEL_OF_CPU;
            defs[n_defs++] = def;
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            const struct gpu_implementation *by = &implementations[i];
            struct kernel_def served = def;
            if (strcmp(by->op, def.op) != 0 || !limit_types(&served, by))
                continue;
            set_functions(&served, by);
            n_defs = add_served(defs, n_defs, &served);
        }
    }
    for (size_t i = 0; i < n; i++)
        if (strcmp(implementations[i].op, OP_FUSED) == 0) {
            defs[n_defs].op = OP_FUSED;
            set_functions(&defs[n_defs++], &implementations[i]);
        }
    list.rows = xreallocarray(defs, n_defs + 1, sizeof *defs); /* kept: the registry's */
    list.n_rows = n_defs;
    kernel_add_device_type("GPU", lists, 1);
}
