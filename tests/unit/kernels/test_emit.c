/* Code that is made for runs of instructions: every row of the table gives the bits of the op's own
 * kernel for every length and kind of operand, no memory beside the elements is touched, every
 * register can be named by every form, and a long run spills what registers cannot hold. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/cpu/emit/emit_internal.h"
#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/support/isa.h"

enum {
    MAX_ELEMENTS = 1000,
    GUARDED_BYTES = 8192,
    SET_DENY_WRITE_EXECUTE = 65, /* PR_SET_MDWE, of Linux 6.3 */
};

static bool is_skipped(void) {
    if (!emit_is_on())
        print_message("skipped: this processor has no AVX2, or the system refuses\n");
    return !emit_is_on();
}

/* ---- memory whose end is the end of a page that can be touched ---- */

static char *guarded_new(void) {
    char *at = mmap(NULL, GUARDED_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at + GUARDED_BYTES, 4096, PROT_NONE), 0);
    return at;
}

static void *last_elements(char *memory, enum dtype dtype, int64_t n) {
    return memory + GUARDED_BYTES - (size_t)n * dtype_size(dtype);
}

/* ---- elements ---- */

static uint64_t seed = 88172645463325252;
static uint32_t draw(uint32_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % below;
}

/* NaNs are quiet and have payloads; a NaN in one operand of an element is in no other, because C
 * does not say which of two NaNs an operation gives. */
static void fill(enum dtype dtype, void *to, int64_t n, bool has_nans, int operand) {
    static const double special[] = {0,   -0.0,     1,         -1,    6,           3e-310,
                                     0.5, INFINITY, -INFINITY, 1e-40, 2147483648., 1e300};
    size_t size = dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        double x = draw(4) ? (double)draw(1000000) / 100000 - 5 : special[draw(12)];
        bool is_nan = has_nans && i % 7 == operand;
        uint64_t bits = draw(3) ? draw(20) : (uint64_t)draw(1u << 31) << 33 | draw(1u << 31);
        if (dtype == DT_FLOAT) {
            float narrow = is_nan ? NAN : (float)x;
            uint32_t nan = 0x7fc00000 | draw(1000) | draw(2) << 31;
            memcpy(to, is_nan ? (void *)&nan : (void *)&narrow, size);
        } else if (dtype == DT_DOUBLE) {
            uint64_t nan = 0x7ff8000000000000 | draw(1000) | (uint64_t)draw(2) << 63;
            memcpy(to, is_nan ? (void *)&nan : (void *)&x, size);
        } else {
            bits = dtype == DT_BOOL ? draw(2) : bits - 7;
            memcpy(to, &bits, size);
        }
        to = (char *)to + size;
    }
}

/* ---- a row against its kernel ---- */

struct case_of {
    const char *op;
    enum dtype in, out;
    const struct emit_row *row;
    int n_operands;
    enum dtype types[4];
};

static enum dtype result_type(const char *op, enum dtype in) {
    static const char *const predicates[] = {"Less",         "LessEqual", "Greater",
                                             "GreaterEqual", "Equal",     "NotEqual",
                                             "IsNan",        "IsInf",     "IsFinite"};
    for (size_t i = 0; i < ARRAY_LEN(predicates); i++)
        if (strcmp(op, predicates[i]) == 0)
            return DT_BOOL;
    return in;
}

static struct node *add_placeholder(struct graph *graph, int i, enum dtype dtype) {
    struct node *node;
    char name[16];
    snprintf(name, sizeof(name), "x%d", i);
    assert_null(graph_add_node(graph, name, "Placeholder", "", &node));
    node_set_attr_type(graph, node, "dtype", dtype);
    assert_null(node_finish(graph, node));
    return node;
}

/* A graph of one node of the op, behind its placeholders, and the node's kernel. */
static void make_node(struct case_of *c, struct graph *graph, struct kernel_instance *kernel) {
    struct node *node;
    graph_init(graph);
    assert_null(graph_add_node(graph, "y", c->op, "", &node));
    if (op_signature_attr(node->op, "T"))
        node_set_attr_type(graph, node, "T", c->in);
    if (op_signature_attr(node->op, "SrcT")) {
        node_set_attr_type(graph, node, "SrcT", c->in);
        node_set_attr_type(graph, node, "DstT", c->out);
    }
    bool is_list = op_signature_attr(node->op, "N") != NULL;
    if (is_list)
        node_set_attr_i(graph, node, "N", 4);
    if (op_signature_attr(node->op, "shape"))
        node_set_attr_shape(graph, node, "shape", SHAPE_UNKNOWN);
    c->n_operands = is_list ? 4 : node->op->n_inputs;
    for (int i = 0; i < c->n_operands; i++) {
        const struct op_arg_signature *arg = &node->op->inputs[is_list ? 0 : i];
        c->types[i] = arg->type_attr ? c->in : arg->type;
        node_add_input(graph, node, add_placeholder(graph, i, c->types[i]), 0);
    }
    struct status *st = node_finish(graph, node);
    if (st)
        fail_msg("%s: %s", c->op, status_message(st));
    assert_null(kernel_instance_init(kernel, node, "CPU", "/job:w/replica:0/task:0/device:CPU:0",
                                     allocator_host(), NULL));
}

static struct emit_code *code_of(const struct case_of *c, unsigned ones) {
    static const int numbers[] = {0, 1, 2, 3}, result = 0;
    struct emit_instruction instruction = {c->row, c->in, c->out, numbers, c->n_operands};
    struct emit_run run = {c->types, ones, c->n_operands, &instruction, 1, &result, 1};
    struct emit_code *code = emit_code_new(&run);
    assert_non_null(code);
    return code;
}

static void check_length(const struct case_of *c, const struct kernel_instance *kernel,
                         const struct emit_code *code, char *const *memory, unsigned ones,
                         int64_t n) {
    static char expected[MAX_ELEMENTS * 8];
    void *pointers[5];
    bool may_be_nan = strcmp(c->op, "Cast") != 0;
    for (int i = 0; i < c->n_operands; i++) {
        int64_t own = ones >> i & 1 ? 1 : n;
        void *to = last_elements(memory[i], c->types[i], own);
        fill(c->types[i], to, own, may_be_nan && own > 1, i);
        pointers[i] = to;
    }
    void *result = pointers[c->n_operands] = last_elements(memory[4], c->out, n);
    fused_engine_find(kernel->def->compute)
        ->run(kernel, (const void *const *)pointers, ones, expected, n);
    emit_code_run(code, pointers, n);
    size_t size = dtype_size(c->out);
    for (int64_t i = 0; i < n; i++)
        if (memcmp((char *)result + (size_t)i * size, expected + (size_t)i * size, size) != 0) {
            uint64_t made = 0, kernels = 0;
            memcpy(&made, (char *)result + (size_t)i * size, size);
            memcpy(&kernels, expected + (size_t)i * size, size);
            fail_msg("%s of %s to %s, ones %u: element %lld of %lld is %llx, the kernel's %llx",
                     c->op, dtype_name(c->in), dtype_name(c->out), ones, (long long)i, (long long)n,
                     (unsigned long long)made, (unsigned long long)kernels);
        }
}

static bool may_have_ones(const struct case_of *c, const struct kernel_instance *kernel,
                          unsigned ones) {
    enum block_shapes shapes = fused_engine_find(kernel->def->compute)->shapes;
    if (ones == 0)
        return true;
    if (ones == (1u << c->n_operands) - 1 || c->n_operands == 1)
        return false;
    switch (shapes) {
    case BLOCK_BROADCAST:
        return strstr(c->op, "Grad") == NULL;
    case BLOCK_SELECT:
        return ones == 1;
    case BLOCK_CLIP:
        return !(ones & 1);
    case BLOCK_BIAS:
        return ones == 2;
    default:
        return false;
    }
}

static void check_row(struct case_of *c, char *const *memory) {
    struct graph graph;
    struct kernel_instance kernel = {0};
    make_node(c, &graph, &kernel);
    for (unsigned ones = 0; ones < 1u << c->n_operands; ones++) {
        if (!may_have_ones(c, &kernel, ones))
            continue;
        struct emit_code *code = code_of(c, ones);
        for (int64_t n = 1; n <= 130; n++)
            check_length(c, &kernel, code, memory, ones, n);
        check_length(c, &kernel, code, memory, ones, MAX_ELEMENTS);
        emit_code_free(code);
    }
    kernel_instance_fini(&kernel);
    graph_fini(&graph);
}

static int check_rows(void) {
    struct case_of c;
    dtype_set in, out;
    char *memory[5];
    int n = 0;
    for (int i = 0; i < 5; i++)
        memory[i] = guarded_new();
    for (size_t i = 0; emit_row_at(i, &c.op, &in, &out); i++)
        for (int from = 0; from < DT_N_TYPES; from++)
            for (int to = 0; to < DT_N_TYPES && dtype_in((enum dtype)from, in); to++) {
                c.in = (enum dtype)from;
                c.out = out ? (enum dtype)to : result_type(c.op, c.in);
                c.row = emit_row_find(c.op, c.in, c.out);
                if (!c.row || c.out != (enum dtype)to || (out && !dtype_in(c.out, out)))
                    continue;
                check_row(&c, memory);
                n++;
            }
    for (int i = 0; i < 5; i++)
        munmap(memory[i], GUARDED_BYTES + 4096);
    return n;
}

static void test_every_row_gives_the_bits_of_its_kernel(void **state) {
    if (is_skipped())
        return;
    for (int is_wide = 0; is_wide < 2; is_wide++) { /* the second time with AVX-512, if there is */
        emit_set_wide(is_wide);
        int n = check_rows();
        print_message("%d pairs of an op and dtypes\n", n);
        assert_true(n > 150);
    }
}

/* ---- encodings ---- */

enum { UNARY = 1, READS_RESULT = 2, ONLY_256 = 4, ONLY_512 = 8 };

/* The forms of operations with registers only, with an immediate byte or -1. What is in the mask's
 * place is the result's earlier value where the form reads that. */
static const struct {
    enum x86_form form;
    int imm, flags;
} register_forms[] = {
    {X86_ADDPS, -1, 0},
    {X86_SUBPD, -1, 0},
    {X86_DIVPS, -1, 0},
    {X86_ANDNPS, -1, 0},
    {X86_CMPPS, 0x11, ONLY_256},
    {X86_CMPPD, 0x1e, ONLY_256},
    {X86_SQRTPS, -1, UNARY},
    {X86_ROUNDPD, 9, UNARY},
    {X86_PADDQ, -1, 0},
    {X86_PMULLD, -1, 0},
    {X86_PCMPGTQ, -1, ONLY_256},
    {X86_PACKSSDW_X, -1, ONLY_256},
    {X86_PABSD, -1, UNARY},
    {X86_PABSQ, -1, UNARY | ONLY_512},
    {X86_CVTDQ2PS, -1, UNARY},
    {X86_MAXPS, -1, 0},
    {X86_BLENDVPS, 256, ONLY_256},
    {X86_SCALEFPS, -1, ONLY_512},
    {X86_SCALEFPD, -1, ONLY_512},
    {X86_RANGEPS, 0x0a, ONLY_512},
    {X86_RANGEPD, 0x0a, ONLY_512},
    {X86_TERNLOG, 0xca, READS_RESULT | ONLY_512},
    {X86_FMADD132PS, -1, READS_RESULT},
    {X86_FMADD213PD, -1, READS_RESULT},
    {X86_FMSUB132PS, -1, READS_RESULT},
    {X86_FNMADD231PS, -1, READS_RESULT},
};

/* result = form(first, second), with the mask of a blend in `mask` */
static void run_form(size_t at, bool is_wide, const int *registers, void *const *vectors) {
    struct x86 *a = xcalloc(1, sizeof(*a));
    struct x86_place rax = {.kind = X86_ELEMENT, .number = X86_RAX};
    static const uint8_t begin[] = {0x31, 0xc9}, end[] = {0xc5, 0xf8, 0x77, 0xc3};
    int reg = registers[0], first = registers[1], second = registers[2], mask = registers[3];
    int flags = register_forms[at].flags;
    int imm = register_forms[at].imm == 256 ? mask << 4 : register_forms[at].imm;
    int loaded[3] = {first, second, flags & READS_RESULT ? reg : mask};
    x86_init(a, 4, is_wide);
    x86_bytes(a, begin, sizeof(begin));
    for (int i = 0; i < 3; i++) {
        x86_load_pointer(a, X86_RAX, i);
        x86_vector(a, X86_MOVUPS, loaded[i], 0, rax, -1);
    }
    x86_vector(a, register_forms[at].form, reg, flags & UNARY ? 0 : first,
               (struct x86_place){.kind = X86_REGISTER, .number = second}, imm);
    x86_load_pointer(a, X86_RAX, 3);
    x86_vector(a, X86_STORE_UPS, reg, 0, rax, -1);
    x86_bytes(a, end, sizeof(end));
    x86_finish(a);
    void *memory = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void (*run)(void *const *);
    assert_true(memory != MAP_FAILED);
    memcpy(memory, a->bytes, a->size);
    assert_int_equal(mprotect(memory, a->size, PROT_READ | PROT_EXEC), 0);
    memcpy(&run, &memory, sizeof(memory));
    run(vectors);
    munmap(memory, a->size);
    free(a);
}

static void check_form(size_t at, bool is_wide) {
    static float a[16] = {1, -2, 3, 0.5f, 100, -7, 6, 8, 5, 1, -9, 0, 2, 3, 4, -1},
                 b[16] = {2, 2, -3, 0.25f, 4, 9, -1, 8, 1, 2, 3, -5, 7, 1, 0.5f, 3};
    static uint32_t mask[16] = {~0u, 0, ~0u, 0, 0, ~0u, ~0u, 0, 0, 0, ~0u};
    uint32_t expected[16], result[16];
    size_t n_bytes = is_wide ? 64 : 32;
    int n = is_wide ? 32 : 16;
    bool reads_result = register_forms[at].flags & READS_RESULT;
    run_form(at, is_wide, (int[]){0, 1, 2, 3}, (void *[]){a, b, mask, expected});
    for (int r = 0; r < n; r++)
        for (int turn = 0; turn < 3; turn++) {
            int reg = turn == 0 ? r : 4, first = turn == 1 ? r : 5, second = turn == 2 ? r : 6,
                third = (r + 1) % n;
            if (third == first || third == second)
                third = (r + 4) % n;
            if (first == second || (reads_result && (reg == first || reg == second)))
                continue;
            run_form(at, is_wide, (int[]){reg, first, second, third},
                     (void *[]){a, b, mask, result});
            if (memcmp(result, expected, n_bytes) != 0)
                fail_msg("form %zu of %zu bytes: %d, %d, %d", at, n_bytes, reg, first, second);
        }
}

static void test_every_form_takes_every_register(void **state) {
    if (is_skipped())
        return;
    for (size_t at = 0; at < ARRAY_LEN(register_forms); at++) {
        if (!(register_forms[at].flags & ONLY_512))
            check_form(at, false);
        if (!(register_forms[at].flags & ONLY_256) && cpu_has_avx512())
            check_form(at, true);
    }
}

/* ---- more values than registers, and as many pointers as there may be ---- */

/* r[i] = x[i % 8] + one, for 32 values, all of which are alive; then their sum. */
static void check_many_live_values(void) {
    enum { N_LIVE = 32, N_OPERANDS = 9, N = 100 };
    struct emit_instruction instructions[2 * N_LIVE];
    int numbers[2 * N_LIVE][2], result = 2 * N_LIVE - 2;
    enum dtype types[N_OPERANDS];
    int64_t x[N_OPERANDS][N], made[N];
    void *pointers[N_OPERANDS + 1] = {[N_OPERANDS] = made};
    const struct emit_row *add = emit_row_find("AddV2", DT_INT64, DT_INT64),
                          *sub = emit_row_find("Sub", DT_INT64, DT_INT64);
    for (int i = 0; i < N_OPERANDS; i++) {
        types[i] = DT_INT64;
        pointers[i] = x[i];
        fill(DT_INT64, x[i], N, false, 0);
    }
    for (int i = 0; i < 2 * N_LIVE - 1; i++) {
        bool is_live = i < N_LIVE;
        numbers[i][0] = is_live ? i % 8 : i == N_LIVE ? N_OPERANDS : N_OPERANDS + i - 1;
        numbers[i][1] = is_live ? 8 : N_OPERANDS + i - N_LIVE + 1;
        instructions[i] = (struct emit_instruction){is_live || i % 2 ? add : sub, DT_INT64,
                                                    DT_INT64, numbers[i], 2};
    }
    struct emit_run run = {types, 1 << 8, N_OPERANDS, instructions, 2 * N_LIVE - 1, &result, 1};
    struct emit_code *code = emit_code_new(&run);
    assert_non_null(code);
    emit_code_run(code, pointers, N);
    for (int k = 0; k < N; k++) {
        uint64_t sum = (uint64_t)x[0][k] + (uint64_t)x[8][0];
        for (int i = 1; i < N_LIVE; i++) {
            uint64_t term = (uint64_t)x[i % 8][k] + (uint64_t)x[8][0];
            sum = (N_LIVE + i - 1) % 2 ? sum + term : sum - term;
        }
        assert_int_equal(made[k], (int64_t)sum);
    }
    emit_code_free(code);
}

static void test_a_run_with_many_live_values_spills(void **state) {
    if (is_skipped())
        return;
    emit_set_wide(false);
    check_many_live_values();
    emit_set_wide(true);
    check_many_live_values();
}

static void test_too_many_vectors_give_no_code(void **state) {
    enum dtype types[EMIT_MAX_VECTORS];
    int numbers[EMIT_MAX_VECTORS], result = 0;
    if (is_skipped())
        return;
    for (int i = 0; i < EMIT_MAX_VECTORS; i++) {
        types[i] = DT_FLOAT;
        numbers[i] = i;
    }
    struct emit_instruction sum = {emit_row_find("AddN", DT_FLOAT, DT_FLOAT), DT_FLOAT, DT_FLOAT,
                                   numbers, EMIT_MAX_VECTORS};
    struct emit_run run = {types, 0, EMIT_MAX_VECTORS, &sum, 1, &result, 1};
    assert_null(emit_code_new(&run)); /* with the result it is one more */
    run.ones = 1;
    struct emit_code *code = emit_code_new(&run);
    assert_non_null(code);
    emit_code_free(code);
}

static void test_nothing_is_made_when_code_is_off(void **state) {
    enum dtype type = DT_FLOAT;
    int number = 0;
    struct emit_instruction neg = {emit_row_find("Neg", DT_FLOAT, DT_FLOAT), DT_FLOAT, DT_FLOAT,
                                   &number, 1};
    struct emit_run run = {&type, 0, 1, &neg, 1, &number, 1};
    int64_t n = emit_n_compiled();
    emit_set_on(false);
    assert_false(emit_is_on());
    assert_null(emit_code_new(&run));
    assert_int_equal(emit_n_compiled(), n);
    emit_set_on(true);
}

/* The child's exit status: 0 when it found no code, 77 when the system cannot refuse. */
static int run_refused(void) {
    enum dtype type = DT_FLOAT;
    int number = 0;
    struct emit_instruction neg = {emit_row_find("Neg", DT_FLOAT, DT_FLOAT), DT_FLOAT, DT_FLOAT,
                                   &number, 1};
    struct emit_run run = {&type, 0, 1, &neg, 1, &number, 1};
    if (prctl(SET_DENY_WRITE_EXECUTE, 1, 0, 0, 0) != 0)
        return 77;
    return emit_code_new(&run) == NULL && !emit_is_on() ? 0 : 1;
}

static void test_a_system_that_refuses_gets_loops(void **state) {
    int status;
    if (is_skipped())
        return;
    pid_t child = fork();
    if (child == 0)
        _exit(run_refused());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        print_message("skipped: this kernel has no PR_SET_MDWE\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_gives_the_bits_of_its_kernel),
        cmocka_unit_test(test_every_form_takes_every_register),
        cmocka_unit_test(test_a_run_with_many_live_values_spills),
        cmocka_unit_test(test_too_many_vectors_give_no_code),
        cmocka_unit_test(test_nothing_is_made_when_code_is_off),
        cmocka_unit_test(test_a_system_that_refuses_gets_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
