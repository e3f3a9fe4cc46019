/* Encodes the instructions of x86-64 with AVX2 or AVX-512 that loops of vectors need. All vectors
 * have 256 or 512 bits, unless a form says otherwise. Registers have the numbers of the
 * architecture. */
#ifndef MILLRACE_KERNELS_CPU_EMIT_EMIT_X86_H
#define MILLRACE_KERNELS_CPU_EMIT_EMIT_X86_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum x86_gpr {
    X86_RAX,
    X86_RCX,
    X86_RDX,
    X86_RBX,
    X86_RSP,
    X86_RBP,
    X86_RSI,
    X86_RDI,
    X86_R8,
    X86_R9,
    X86_R10,
    X86_R11,
    X86_R12,
    X86_R13,
    X86_R14,
    X86_R15
};

enum x86_form {
#define X86_FORM(name, ...) X86_##name,
#include "kernels/cpu/emit/emit_x86_forms.inc"
    X86_N_FORMS
};

/* The operand of an instruction that may be in memory. */
struct x86_place {
    enum x86_place_kind {
        X86_REGISTER, /* ymm `number` */
        X86_ELEMENT,  /* at gpr `number` + rcx · 2^scale + offset, which is less than 128 */
        X86_FRAME,    /* at rsp + offset */
        X86_CONSTANT  /* constant `number`, behind the code */
    } kind;
    int number, scale, offset;
};

enum { X86_MAX_BYTES = 32768, X86_MAX_CONSTANTS = 96 };

struct x86 {
    uint8_t bytes[X86_MAX_BYTES];
    size_t size;
    bool is_wide; /* vectors have 512 bits, and there are 32 of them (AVX-512 F, BW, DQ) */
    bool is_full; /* something did not fit: the code is of no use */
    uint64_t constants[X86_MAX_CONSTANTS];
    int n_constants, lane; /* the bytes of an element: how often a vector has a constant */
    struct x86_fix {
        size_t at, end; /* of the distance, and of its instruction */
        int constant;
    } fixes[X86_MAX_BYTES / 16];
    int n_fixes;
};

/* The caller's memory need not be cleared. */
void x86_init(struct x86 *a, int lane, bool is_wide);

/* `reg` is the register in ModRM, `second` the one in VEX (0 where the form has none), and imm < 0
 * says that there is no immediate byte. */
void x86_vector(struct x86 *a, enum x86_form form, int reg, int second, struct x86_place place,
                int imm);
/* Where vectors have 512 bits: only for elements that are set in k `mask`. The others of a vector
 * stay as they are, and those of a mask become 0. */
void x86_masked(struct x86 *a, enum x86_form form, int mask, int reg, int second,
                struct x86_place place, int imm);
/* Returns the constant's number. */
int x86_constant(struct x86 *a, uint64_t bits);

void x86_push(struct x86 *a, enum x86_gpr reg);
void x86_pop(struct x86 *a, enum x86_gpr reg);
void x86_load_pointer(struct x86 *a, enum x86_gpr reg, int index); /* reg = rdi[index] */
void x86_bytes(struct x86 *a, const void *bytes, size_t n);
void x86_patch_i32(struct x86 *a, size_t at, int64_t value);
/* Puts the constants behind the code, and sets all distances. */
void x86_finish(struct x86 *a);

#endif
