/* Makes code of runs in memory that is first written and then executed, never both, and calls it.
 *
 * A function computes whole iterations, another one the vectors after the last one. The elements
 * after the last vector are copied to memory of its size, so that no other memory is touched. */
#include "kernels/cpu/emit/emit_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/base.h"
#include "kernels/support/isa.h"

enum { MAX_VECTOR_BYTES = 64, MAX_POINTERS = EMIT_MAX_OPERANDS + EMIT_MAX_VECTORS };

typedef void emit_function(void *const *pointers, int64_t n);

struct emit_code {
    struct functions {
        emit_function *loop;       /* n is a multiple of n_at_once */
        emit_function *rest;       /* n is a multiple of a vector's elements */
    } functions[EMIT_N_DIVISIONS]; /* only the first, where nothing is divided */
    void *memory;
    size_t bytes;
    int width, n_vector, n_at_once; /* elements of a vector, and of an iteration */
    bool is_wide;
    uint64_t divisors;
    int n_operands, n_results;
    uint64_t ones;
    uint8_t sizes[MAX_POINTERS];
};

static bool is_switched_on = true, is_wide_on = true;
static atomic_bool is_refused;
static _Atomic int64_t n_compiled;

void emit_set_on(bool is_on) { is_switched_on = is_on; }
void emit_set_wide(bool is_on) { is_wide_on = is_on; }

bool emit_is_on(void) {
    return is_switched_on && cpu_has_avx2() &&
           !atomic_load_explicit(&is_refused, memory_order_relaxed);
}

int64_t emit_n_compiled(void) { return atomic_load(&n_compiled); }

/* Returns NULL when the system refuses. */
static void *executable_copy(const void *bytes, size_t n) {
    void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    memcpy(at, bytes, n);
    if (mprotect(at, n, PROT_READ | PROT_EXEC) == 0)
        return at;
    munmap(at, n);
    return NULL;
}

/* ---- compiling ---- */

static void add_pointer(struct emitter *e, struct emit_code *code, enum dtype dtype, bool is_one) {
    code->sizes[e->n_pointers] = (uint8_t)dtype_size(dtype);
    e->pointer_types[e->n_pointers] = dtype;
    e->is_one[e->n_pointers++] = is_one;
}

static int find_width(const struct emit_run *run) {
    int width = 0;
    for (int k = 0; k < run->n_instructions && !width; k++)
        width = emit_width(run->instructions[k].in, run->instructions[k].out);
    return width ? width : 4;
}

static bool fits(const struct emit_run *run) {
    for (int k = 0; k < run->n_instructions; k++)
        if (run->instructions[k].n_operands > EMIT_MAX_OPERANDS)
            return false;
    return run->n_operands <= EMIT_MAX_OPERANDS && run->n_instructions <= EMIT_MAX_INSTRUCTIONS &&
           emit_vectors_fit(run->n_operands, run->ones, run->n_results);
}

/* Makes the function, and returns its size, or 0. */
static size_t make_function(struct emit_code *code, const struct emit_run *run,
                            enum emit_division division, int n_turns, struct x86 *a) {
    struct emitter *e = xcalloc(1, sizeof(*e));
    e->width = code->width;
    e->is_wide = code->is_wide;
    e->division = division;
    x86_init(a, code->width, code->is_wide);
    e->n_turns = n_turns;
    for (int i = 0; i < run->n_operands; i++)
        add_pointer(e, code, run->operands[i], run->ones >> i & 1);
    for (int i = 0; i < run->n_results; i++)
        add_pointer(e, code, run->instructions[run->results[i]].out, false);
    emit_lower(e, run);
    if (!e->is_full)
        emit_loop(e, a);
    bool is_made = !e->is_full && !a->is_full;
    code->divisors = e->divisors;
    free(e);
    return is_made ? a->size : 0;
}

/* All functions, one behind the other: for each way to divide the loop, and that of a rest. */
static bool make_functions(struct emit_code *code, const struct emit_run *run) {
    enum { MOST = 2 * EMIT_N_DIVISIONS };
    struct x86 *a = xmalloc(sizeof(*a));
    emit_function *functions[MOST];
    size_t begins[MOST];
    uint8_t *all = NULL;
    int n = 0;
    do {
        size_t size =
            make_function(code, run, (enum emit_division)(n / 2), n % 2 ? 1 : EMIT_TURNS, a);
        if (size == 0)
            goto out;
        all = xrealloc(all, code->bytes + size);
        memcpy(all + code->bytes, a->bytes, size);
        begins[n++] = code->bytes;
        code->bytes += size;
    } while (n < (code->divisors ? MOST : 2));
    code->memory = executable_copy(all, code->bytes);
    if (!code->memory)
        atomic_store(&is_refused, true);
    for (int i = 0; i < n && code->memory; i++) {
        void *at = (char *)code->memory + begins[i];
        memcpy(&functions[i], &at, sizeof(at));
    }
    for (int i = 0; i < n && code->memory; i += 2)
        code->functions[i / 2] = (struct functions){functions[i], functions[i + 1]};
out:
    free(all);
    free(a);
    return code->memory != NULL;
}

/* Bools of elements are only written for vectors of 256 bits. */
static bool may_be_wide(const struct emit_run *run) {
    bool has_bools = false;
    for (int i = 0; i < run->n_operands; i++)
        has_bools |= run->operands[i] == DT_BOOL;
    for (int i = 0; i < run->n_results; i++)
        has_bools |= run->instructions[run->results[i]].out == DT_BOOL;
    return is_wide_on && cpu_has_avx512() && !has_bools;
}

struct emit_code *emit_code_new(const struct emit_run *run) {
    if (!emit_is_on() || !fits(run))
        return NULL;
    struct emit_code *code = xcalloc(1, sizeof(*code));
    code->width = find_width(run);
    code->is_wide = may_be_wide(run);
    code->n_vector = (code->is_wide ? 64 : 32) / code->width;
    code->n_at_once = code->n_vector * EMIT_TURNS;
    code->n_operands = run->n_operands;
    code->n_results = run->n_results;
    code->ones = run->ones;
    if (make_functions(code, run)) {
        atomic_fetch_add(&n_compiled, 1);
        return code;
    }
    free(code);
    return NULL;
}

void emit_code_free(struct emit_code *code) {
    if (!code)
        return;
    munmap(code->memory, code->bytes);
    free(code);
}

/* ---- running ---- */

static const struct functions *choose_functions(const struct emit_code *code,
                                                void *const *pointers) {
    enum emit_division division = code->divisors ? EMIT_MULTIPLY : EMIT_DIVIDE;
    for (int i = 0; i < code->n_operands && code->divisors >> i; i++) {
        if (!(code->divisors >> i & 1))
            continue;
        enum emit_division own = emit_division_by(pointers[i], code->width);
        if (own == EMIT_DIVIDE)
            return &code->functions[EMIT_DIVIDE];
        division = MAX(division, own);
    }
    return &code->functions[division];
}

/* Computes whole vectors, fewer than an iteration has; `done` elements are before them. */
static void run_vectors(const struct emit_code *code, emit_function *function,
                        void *const *pointers, int64_t done, int64_t n) {
    void *own[MAX_POINTERS];
    for (int i = 0; i < code->n_operands + code->n_results; i++)
        own[i] = (char *)pointers[i] + (code->ones >> i & 1 ? 0 : (size_t)done * code->sizes[i]);
    function(own, n);
}

/* Computes fewer elements than a vector has, in memory of that size. */
static void run_rest(const struct emit_code *code, emit_function *function, void *const *pointers,
                     int64_t done, int64_t n) {
    char vectors[MAX_POINTERS][MAX_VECTOR_BYTES] __attribute__((aligned(MAX_VECTOR_BYTES)));
    void *own[MAX_POINTERS];
    int n_pointers = code->n_operands + code->n_results;
    for (int i = 0; i < n_pointers; i++) {
        size_t size = code->sizes[i];
        own[i] = code->ones >> i & 1 ? pointers[i] : vectors[i];
        if (i >= code->n_operands || own[i] == pointers[i])
            continue;
        memset(vectors[i], 0, MAX_VECTOR_BYTES);
        memcpy(vectors[i], (char *)pointers[i] + (size_t)done * size, (size_t)n * size);
    }
    function(own, code->n_vector);
    for (int i = code->n_operands; i < n_pointers; i++)
        memcpy((char *)pointers[i] + (size_t)done * code->sizes[i], vectors[i],
               (size_t)n * code->sizes[i]);
}

void emit_code_run(const struct emit_code *code, void *const *pointers, int64_t n) {
    const struct functions *functions = choose_functions(code, pointers);
    int64_t n_loop = n & -(int64_t)code->n_at_once, n_vectors = n & -(int64_t)code->n_vector;
    if (n_loop > 0)
        functions->loop(pointers, n_loop);
    if (n_vectors > n_loop)
        run_vectors(code, functions->rest, pointers, n_loop, n_vectors - n_loop);
    if (n > n_vectors)
        run_rest(code, functions->rest, pointers, n_vectors, n - n_vectors);
}
