/* Fused programs as kernels of their own, compiled at run time (compiler.h): the same steps as the
 * interpreter's (fused_args.h), one after another, with their values in registers. All that the
 * code depends on is in the key; addresses and sizes are arguments. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/compiler.h"
#include "kernels/cuda/op_sources.h"
#include "kernels/cuda/ops/fused.h"

/* Compared as bytes. */
struct key {
    int32_t n_steps, rank;
    uint32_t is_inline, is_single, is_flat;
    uint32_t is_small; /* elements are counted by 32 bits */
    struct fused_step steps[FUSED_MAX_STEPS];
};

static struct span make_key(const struct fused_args *args, struct key *key) {
    size_t steps_bytes = (size_t)args->n_steps * sizeof(*key->steps);
    memset(key, 0, offsetof(struct key, steps));
    key->n_steps = args->n_steps;
    key->rank = args->rank;
    key->is_inline = args->is_inline;
    key->is_single = args->is_single;
    key->is_flat = args->is_flat;
    key->is_small = args->n <= INT32_MAX;
    memcpy(key->steps, args->steps, steps_bytes);
    return (struct span){(const char *)key, offsetof(struct key, steps) + steps_bytes};
}

static bool is_load(int kind) { return kind <= FUSED_LOAD_8; }
static bool is_store(int kind) { return kind > FUSED_LOAD_8 && kind <= FUSED_STORE_8; }

/* How many inputs and outputs the steps name, and which inputs are strided. */
struct operands {
    int n_inputs, n_outputs, n_strided;
    int strided[FUSED_MAX_INPUTS]; /* by input: its number among them, or -1 */
};

/* not_strided: a bit for each input that is inline, single or flat. */
static struct operands find_operands(const struct fused_step *steps, int n_steps,
                                     uint32_t not_strided) {
    struct operands found = {0};
    for (int i = 0; i < n_steps; i++) {
        const struct fused_step *step = &steps[i];
        if (is_load(step->kind))
            found.n_inputs = MAX(found.n_inputs, step->a + 1);
        else if (is_store(step->kind))
            found.n_outputs = MAX(found.n_outputs, step->to + 1);
    }
    for (int k = 0; k < found.n_inputs; k++)
        found.strided[k] = not_strided >> k & 1 ? -1 : found.n_strided++;
    return found;
}

/* ---- ops ---- */

static const char *op_name(int kind) {
    static const char *const names[FUSED_N_KINDS] = {
#define FUSED_INSTRUCTION(name) [FUSED_##name] = #name,
#include "kernels/cuda/ops/fused_instructions.inc"
#undef FUSED_INSTRUCTION
    };
    return names[kind];
}

static int compare_name(const void *name, const void *op) {
    return strcmp(name, ((const struct gpu_op_source *)op)->name);
}

static const struct gpu_op_source *op_of(int kind) {
    return bsearch(op_name(kind), gpu_op_sources, n_gpu_op_sources, sizeof(*gpu_op_sources),
                   compare_name);
}

static int n_operands_of(const struct gpu_op_source *op) {
    const char *found = strstr(op->text, "n_operands = ");
    return found ? found[strlen("n_operands = ")] - '0' : 0;
}

/* Narrow floats are made from float there. A number that float cannot hold would be rounded twice.
 */
static bool can_compile(const char *name) {
    static const char *const wide[] = {"cast_i32_", "cast_u32_", "cast_i64_", "cast_u64_",
                                       "cast_f64_"};
    const char *end = strrchr(name, '_');
    if (!end || (strcmp(end, "_f16") != 0 && strcmp(end, "_bf16") != 0))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(wide); i++)
        if (strncmp(name, wide[i], strlen(wide[i])) == 0)
            return false;
    return true;
}

static bool write_ops(const struct key *key, struct str *out) {
    bool is_written[FUSED_N_KINDS] = {false};
    for (int i = 0; i < key->n_steps; i++) {
        int kind = key->steps[i].kind;
        if (is_load(kind) || is_store(kind))
            continue;
        if (!isfinite(key->steps[i].alpha)) /* the source has no number for it */
            return false;
        if (is_written[kind])
            continue;
        const struct gpu_op_source *op = op_of(kind);
        if (!op || !can_compile(op->name))
            return false;
        is_written[kind] = true;
        str_add(out, op->text);
    }
    return true;
}

/* ---- the kernel ---- */

static void write_args(const struct key *key, const struct operands *operands, const char *name,
                       struct str *out) {
    str_addf(out, "struct %s_args {\n    int64_t n;\n    uint64_t out[%d];\n", name,
             operands->n_outputs);
    if (operands->n_inputs)
        str_addf(out, "    uint64_t in[%d];\n", operands->n_inputs);
    if (operands->n_strided)
        str_addf(out, "    gpu_divisor dims[%d];\n    int64_t strides[%d][%d];\n", key->rank,
                 operands->n_strided, key->rank);
    str_add(out, "};\n");
}

/* Where the strided inputs are read for each element. */
static void write_offsets(const struct key *key, const struct operands *operands, struct str *out) {
    for (int s = 0; s < operands->n_strided; s++)
        str_addf(out, "        fused_index offset%d[4];\n", s);
    str_add(out, "        EACH {\n            fused_index left = at[j], outer = 0;\n");
    for (int d = key->rank - 1; d >= 0; d--) {
        if (d > 0)
            str_addf(out,
                     "            outer = fused_quotient(args.dims[%d], left);\n"
                     "            left -= outer * (fused_index)args.dims[%d].value;\n",
                     d, d);
        for (int s = 0; s < operands->n_strided; s++)
            str_addf(out, "            offset%d[j] %s left * (fused_index)args.strides[%d][%d];\n",
                     s, d == key->rank - 1 ? "=" : "+=", s, d);
        str_add(out, d > 0 ? "            left = outer;\n" : "");
    }
    str_add(out, "        }\n");
}

static const char *bits_type(int kind, int first) {
    static const char *const types[] = {"uint8_t", "uint16_t", "uint32_t", "uint64_t"};
    return types[kind - first];
}

static void write_load(const struct key *key, const struct operands *operands, int i,
                       struct str *out) {
    const struct fused_step *step = &key->steps[i];
    const char *type = bits_type(step->kind, FUSED_LOAD_1);
    char offset[32] = "at[j]";
    if (key->is_inline >> step->a & 1) {
        str_addf(out,
                 "        %s v%d[4];\n        EACH memcpy(&v%d[j], &args.in[%d], sizeof(%s));\n",
                 type, i, i, step->a, type);
        return;
    }
    if (key->is_single >> step->a & 1)
        snprintf(offset, sizeof(offset), "0");
    else if (operands->strided[step->a] >= 0)
        snprintf(offset, sizeof(offset), "offset%d[j]", operands->strided[step->a]);
    str_addf(out, "        %s v%d[4];\n        EACH v%d[j] = ((const %s *)args.in[%d])[%s];\n",
             type, i, i, type, step->a, offset);
}

static void write_apply(const struct key *key, int i, const int *in_slot, struct str *out) {
    static const char *const types[] = {"first", "second", "third"};
    const struct fused_step *step = &key->steps[i];
    const struct gpu_op_source *op = op_of(step->kind);
    const uint8_t slots[] = {step->a, step->b, step->c};
    str_addf(out, "        %s_op::result v%d[4];\n        EACH v%d[j] = %s_op::of(", op->name, i, i,
             op->name);
    for (int k = 0; k < 3; k++)
        if (k < n_operands_of(op))
            str_addf(out, "fused_as<%s_op::%s>(v%d[j]), ", op->name, types[k], in_slot[slots[k]]);
        else
            str_addf(out, "%s_op::%s(), ", op->name, types[k]);
    str_addf(out, "q%d);\n", i);
}

static void write_steps(const struct key *key, const struct operands *operands, struct str *out) {
    int in_slot[FUSED_MAX_SLOTS] = {0}; /* by slot: the step that made its value */
    for (int i = 0; i < key->n_steps; i++) {
        const struct fused_step *step = &key->steps[i];
        if (is_store(step->kind)) {
            const char *type = bits_type(step->kind, FUSED_STORE_1);
            str_addf(out,
                     "        EACH if (has[j]) ((%s *)args.out[%d])[at[j]] = "
                     "fused_as<%s>(v%d[j]);\n",
                     type, step->to, type, in_slot[step->a]);
            continue;
        }
        if (is_load(step->kind))
            write_load(key, operands, i, out);
        else
            write_apply(key, i, in_slot, out);
        in_slot[step->to] = i;
    }
}

/* The numbers of ops (elementwise_args). */
static void write_numbers(const struct key *key, struct str *out) {
    for (int i = 0; i < key->n_steps; i++) {
        const struct fused_step *step = &key->steps[i];
        if (!is_load(step->kind) && !is_store(step->kind))
            str_addf(out,
                     "    elementwise_args q%d;\n    q%d.alpha = %a;\n    q%d.cut_bits = %d;\n", i,
                     i, step->alpha, i, step->cut_bits);
    }
}

static const char common_code[] =
    "template <class T, class U> __device__ static inline T fused_as(U from) {\n"
    "    static_assert(sizeof(T) == sizeof(U), \"a value has one size\");\n"
    "    T to;\n"
    "    memcpy((void *)&to, (const void *)&from, sizeof(T));\n"
    "    return to;\n"
    "}\n"
    "#define EACH _Pragma(\"unroll\") for (int j = 0; j < 4; j++)\n";
static const char small_code[] =
    "typedef unsigned fused_index;\n"
    "__device__ static inline fused_index fused_quotient(const gpu_divisor &by, fused_index n) {\n"
    "    return (__umulhi(n, by.multiplier) + n) >> by.shift;\n"
    "}\n";
static const char large_code[] =
    "typedef uint64_t fused_index;\n"
    "__device__ static inline fused_index fused_quotient(const gpu_divisor &by, fused_index n) {\n"
    "    return n / (fused_index)by.value;\n"
    "}\n";
/* Element j of a thread is at first + j · blockDim.x; see fused.cu. */
static const char loop_code[] =
    "    fused_index n = (fused_index)args.n, chunk = blockDim.x * 4;\n"
    "    for (fused_index first = blockIdx.x * chunk + threadIdx.x; first < n;\n"
    "         first += gridDim.x * chunk) {\n"
    "        fused_index at[4];\n"
    "        bool has[4];\n"
    "        EACH {\n"
    "            fused_index place = first + j * blockDim.x;\n"
    "            has[j] = place < n;\n"
    "            at[j] = has[j] ? place : first;\n"
    "        }\n";

_Static_assert(FUSED_ELEMENTS == 4, "the source says so");

/* A gpu_source_fn. */
static bool write_source(struct span bytes, const char *name, struct str *out) {
    struct key key;
    memset(&key, 0, sizeof(key));
    memcpy(&key, bytes.data, bytes.len);
    struct operands operands =
        find_operands(key.steps, key.n_steps, key.is_inline | key.is_single | key.is_flat);
    str_addf(out, "#ifndef MILLRACE_SIMULATED_DEVICE\n%s#endif\n%s", gpu_ops_runtime,
             gpu_ops_shared);
    if (!write_ops(&key, out))
        return false;
    str_add(out, common_code);
    str_add(out, key.is_small ? small_code : large_code);
    write_args(&key, &operands, name, out);
    str_addf(out, "KERNEL(%s, %s_args) {\n", name, name);
    write_numbers(&key, out);
    str_add(out, loop_code);
    if (operands.n_strided)
        write_offsets(&key, &operands, out);
    write_steps(&key, &operands, out);
    str_add(out, "    }\n}\n");
    return true;
}

const struct gpu_function *gpu_fused_compiled(struct kernel_ctx *ctx,
                                              const struct fused_args *args) {
    struct key key;
    if (gpu_compiler_missing())
        return NULL;
    return gpu_compiled(gpu_of(ctx), make_key(args, &key), write_source);
}

/* ---- launches ---- */

/* The arguments in the order of write_args, in 8-byte words. */
enum {
    MAX_WORDS = 1 + FUSED_MAX_OUTPUTS + FUSED_MAX_INPUTS + 2 * FUSED_MAX_RANK +
                FUSED_MAX_INPUTS * FUSED_MAX_RANK
};

struct words {
    uint64_t at[MAX_WORDS];
    size_t n;
};

static void add_words(struct words *words, const void *from, size_t n) {
    memcpy(&words->at[words->n], from, n * sizeof(*words->at));
    words->n += n;
}

struct status *gpu_fused_launch_compiled(struct kernel_ctx *ctx,
                                         const struct gpu_function *function,
                                         const struct fused_args *args, const char *nodes) {
    struct words words = {.n = 0};
    struct operands operands = find_operands(args->steps, args->n_steps,
                                             args->is_inline | args->is_single | args->is_flat);
    add_words(&words, &args->n, 1);
    add_words(&words, args->out, (size_t)operands.n_outputs);
    add_words(&words, args->in, (size_t)operands.n_inputs);
    if (operands.n_strided)
        add_words(&words, args->dims, 2 * (size_t)args->rank);
    for (int k = 0; k < operands.n_inputs; k++)
        if (operands.strided[k] >= 0)
            add_words(&words, args->strides[k], (size_t)args->rank);
    return gpu_launch_nodes(ctx, function,
                            gpu_grid_for(ctx, (args->n + FUSED_ELEMENTS - 1) / FUSED_ELEMENTS),
                            words.at, words.n * sizeof(*words.at), nodes);
}

_Static_assert(sizeof(struct gpu_divisor) == 16, "two words");
