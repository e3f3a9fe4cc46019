/* Emits the function of a run.
 *
 *   push what the caller keeps         pointers of vectors to registers, ones to the frame
 *   loop:  for each operation, sources from registers or memory, the result to a register
 *          next vector, until all elements are done */
#include "kernels/cpu/emit/emit_loop.h"

#include "common/base/base.h"

/* rdi has the list of pointers, and nothing in the loop; rsi the number of elements, rcx the
 * element. */
static const enum x86_gpr pointer_registers[EMIT_MAX_VECTORS] = {
    X86_RAX, X86_RDX, X86_R8, X86_R9, X86_R10, X86_R11, X86_RBX, X86_R12, X86_R13, X86_R14};
enum { N_FREE = 6 }; /* of them; the caller keeps the others */

static const uint8_t frame_pointer[] = {0x48, 0x89, 0xe5};          /* mov rbp, rsp */
static const uint8_t frame_grow[] = {0x48, 0x81, 0xec, 0, 0, 0, 0}; /* sub rsp, imm32 */
static const uint8_t frame_align[] = {0x48, 0x83, 0xe4, 0xc0};      /* and rsp, -64 */
static const uint8_t frame_drop[] = {0x48, 0x8d, 0x65};             /* lea rsp, [rbp + imm8] */
static const uint8_t first_element[] = {0x31, 0xc9};                /* xor ecx, ecx */
static const uint8_t next_vector[] = {0x48, 0x83, 0xc1};            /* add rcx, imm8 */
static const uint8_t is_more[] = {0x48, 0x39, 0xf1, 0x0f, 0x8c, 0, 0, 0, 0}; /* cmp rcx,rsi; jl */
static const uint8_t leave[] = {0xc5, 0xf8, 0x77};                           /* vzeroupper */
static const uint8_t return_to_caller[] = {0xc3};

static void broadcast_one(struct emit_loop *l, int pointer) {
    struct x86 *a = l->a;
    struct x86_place element = {.kind = X86_ELEMENT, .number = X86_RAX},
                     passing = emit_in_register(l->passing);
    x86_load_pointer(a, X86_RAX, pointer);
    if (l->e->pointer_types[pointer] == DT_BOOL) { /* twice: zero?, and not that */
        x86_vector(a, X86_BROADCASTB, l->passing, 0, element, -1);
        x86_vector(a, X86_PCMPEQB, l->passing, l->passing, emit_number_place(l, 0), -1);
        x86_vector(a, X86_PCMPEQB, l->passing, l->passing, emit_number_place(l, 0), -1);
    } else {
        x86_vector(a, l->e->width == 8 ? X86_BROADCASTSD : X86_BROADCASTSS, l->passing, 0, element,
                   -1);
    }
    l->one_slots[pointer] = l->n_slots++;
    x86_vector(a, X86_STORE_UPS, passing.number, 0, emit_in_frame(l, l->one_slots[pointer]), -1);
}

static void add_reciprocal(struct emit_loop *l, int pointer) {
    static const uint64_t one[] = {0x3f800000, 0x3ff0000000000000};
    x86_vector(l->a, X86_MOVUPS, l->passing, 0, emit_number_place(l, one[l->e->width == 8]), -1);
    x86_vector(l->a, emit_form_of(l, VECTOR_OP_DIV), l->passing, l->passing,
               emit_in_frame(l, l->one_slots[pointer]), -1);
    l->reciprocal_slots[pointer] = l->n_slots++;
    x86_vector(l->a, X86_STORE_UPS, l->passing, 0, emit_in_frame(l, l->reciprocal_slots[pointer]),
               -1);
}

static void add_pointers(struct emit_loop *l) {
    int n = 0;
    for (int i = 0; i < l->e->n_pointers; i++) {
        if (l->e->is_one[i])
            broadcast_one(l, i);
        if (l->e->division != EMIT_DIVIDE && l->e->divisors >> i & 1)
            add_reciprocal(l, i);
    }
    for (int i = 0; i < l->e->n_pointers; i++) {
        if (l->e->is_one[i])
            continue;
        CHECK(n < EMIT_MAX_VECTORS);
        l->pointers[i] = pointer_registers[n++];
        x86_load_pointer(l->a, l->pointers[i], i);
    }
}

static void add_body(struct emit_loop *l) {
    emit_find_uses(l);
    for (l->at = 0; l->at < l->e->n_ops; l->at++) {
        const struct vector_op *op = &l->e->ops[l->at];
        int first = l->at;
        if (emit_shape_of(op) == VECTOR_QUOTIENT && op->last_use >= 0)
            emit_quotients(l);
        else
            emit_operation(l);
        emit_pass_uses(l, first);
    }
}

void emit_loop(struct emitter *e, struct x86 *a) {
    struct emit_loop l = {.e = e,
                          .a = a,
                          .vector_bytes = a->is_wide ? 64 : 32,
                          .n_registers = a->is_wide ? 31 : 15,
                          .passing = a->is_wide ? 31 : 15};
    int n_vectors = 0;
    for (int i = 0; i < e->n_ops; i++)
        l.register_of[i] = l.slot_of[i] = -1;
    for (int r = 0; r < EMIT_MAX_REGISTERS; r++)
        l.value_in[r] = -1;
    for (int i = 0; i < e->n_pointers; i++)
        n_vectors += !e->is_one[i];
    x86_push(a, X86_RBP);
    x86_bytes(a, frame_pointer, sizeof(frame_pointer));
    for (int i = N_FREE; i < n_vectors; i++)
        x86_push(a, pointer_registers[i]);
    x86_bytes(a, frame_grow, sizeof(frame_grow));
    size_t frame_at = a->size - 4;
    x86_bytes(a, frame_align, sizeof(frame_align));
    x86_bytes(a, first_element, sizeof(first_element));
    add_pointers(&l);
    size_t begin = a->size;
    add_body(&l);
    uint8_t step = (uint8_t)(e->n_turns * l.vector_bytes / e->width);
    x86_bytes(a, next_vector, sizeof(next_vector));
    x86_bytes(a, &step, 1);
    x86_bytes(a, is_more, sizeof(is_more));
    x86_patch_i32(a, a->size - 4, (int64_t)begin - (int64_t)a->size);
    x86_bytes(a, leave, sizeof(leave));
    x86_bytes(a, frame_drop, sizeof(frame_drop));
    uint8_t pushed = (uint8_t)(-8 * MAX(n_vectors - N_FREE, 0));
    x86_bytes(a, &pushed, 1);
    for (int i = n_vectors - 1; i >= N_FREE; i--)
        x86_pop(a, pointer_registers[i]);
    x86_pop(a, X86_RBP);
    x86_bytes(a, return_to_caller, sizeof(return_to_caller));
    emit_detours(&l);
    x86_patch_i32(a, frame_at, (int64_t)(l.n_slots * l.vector_bytes));
    x86_finish(a);
}
