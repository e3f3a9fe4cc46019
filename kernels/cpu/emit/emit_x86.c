/* Encodes instructions: VEX prefix, opcode, ModRM, SIB, distance, immediate. */
#include "kernels/cpu/emit/emit_x86.h"

#include <string.h>

static const struct form {
    uint8_t prefix, map, w, l, wide_w, opcode;
} forms[X86_N_FORMS] = {
#define X86_FORM(name, prefix, map, w, l, wide_w, opcode) {prefix, map, w, l, wide_w, opcode},
#include "kernels/cpu/emit/emit_x86_forms.inc"
};

void x86_init(struct x86 *a, int lane, bool is_wide) {
    a->size = 0;
    a->is_full = false;
    a->n_constants = a->n_fixes = 0;
    a->lane = lane;
    a->is_wide = is_wide;
}

void x86_bytes(struct x86 *a, const void *bytes, size_t n) {
    if (a->size + n > X86_MAX_BYTES) {
        a->is_full = true;
        return;
    }
    memcpy(a->bytes + a->size, bytes, n);
    a->size += n;
}

static void add_byte(struct x86 *a, int byte) {
    uint8_t b = (uint8_t)byte;
    x86_bytes(a, &b, 1);
}

static void add_i32(struct x86 *a, int64_t value) {
    int32_t v = (int32_t)value;
    x86_bytes(a, &v, sizeof(v));
}

void x86_patch_i32(struct x86 *a, size_t at, int64_t value) {
    int32_t v = (int32_t)value;
    if (!a->is_full)
        memcpy(a->bytes + at, &v, sizeof(v));
}

static int mod_rm(int mod, int reg, int rm) { return mod << 6 | (reg & 7) << 3 | (rm & 7); }

static void add_fix(struct x86 *a, int constant, size_t end) {
    if (a->n_fixes == (int)(sizeof(a->fixes) / sizeof(a->fixes[0]))) {
        a->is_full = true;
        return;
    }
    a->fixes[a->n_fixes++] = (struct x86_fix){a->size, end, constant};
}

static void add_place(struct x86 *a, int reg, const struct x86_place *place, bool has_imm) {
    enum { SIB = 4, RIP = 5, NO_INDEX = 4 };
    switch (place->kind) {
    case X86_REGISTER:
        add_byte(a, mod_rm(3, reg, place->number));
        break;
    case X86_ELEMENT: /* with a distance also of 0, which rbp and r13 need as a base */
        add_byte(a, mod_rm(1, reg, SIB));
        add_byte(a, mod_rm(place->scale, X86_RCX, place->number));
        add_byte(a, a->is_wide ? place->offset / 64 : place->offset); /* EVEX counts vectors */
        break;
    case X86_FRAME:
        add_byte(a, mod_rm(2, reg, SIB));
        add_byte(a, mod_rm(0, NO_INDEX, X86_RSP));
        add_i32(a, place->offset);
        break;
    case X86_CONSTANT:
        add_byte(a, mod_rm(0, reg, RIP));
        add_fix(a, place->number, a->size + 4 + has_imm);
        add_i32(a, 0);
        break;
    }
}

/* All bits of registers' numbers are inverted. The index, rcx, needs no X. */
static void add_vex(struct x86 *a, const struct form *f, int reg, int second, int rm) {
    add_byte(a, 0xc4);
    add_byte(a, (reg < 8) << 7 | 1 << 6 | (rm < 8) << 5 | f->map);
    add_byte(a, f->w << 7 | (~second & 15) << 3 | f->l << 2 | f->prefix);
}

static void add_evex(struct x86 *a, const struct form *f, int mask, int reg, int second, int rm) {
    enum { BITS_512 = 2 << 5 };
    add_byte(a, 0x62);
    add_byte(a, (~reg & 8) << 4 | (~rm & 16) << 2 | (~rm & 8) << 2 | (~reg & 16) | f->map);
    add_byte(a, f->wide_w << 7 | (~second & 15) << 3 | 1 << 2 | f->prefix);
    add_byte(a, BITS_512 | (~second & 16) >> 1 | mask);
}

void x86_masked(struct x86 *a, enum x86_form form, int mask, int reg, int second,
                struct x86_place place, int imm) {
    const struct form *f = &forms[form];
    bool has_number = place.kind == X86_REGISTER || place.kind == X86_ELEMENT;
    int number = has_number ? place.number : 0;
    if (a->is_wide)
        add_evex(a, f, mask, reg, second, number);
    else
        add_vex(a, f, reg, second, number);
    add_byte(a, f->opcode);
    add_place(a, reg, &place, imm >= 0);
    if (imm >= 0)
        add_byte(a, imm);
}

void x86_vector(struct x86 *a, enum x86_form form, int reg, int second, struct x86_place place,
                int imm) {
    x86_masked(a, form, 0, reg, second, place, imm);
}

int x86_constant(struct x86 *a, uint64_t bits) {
    for (int i = 0; i < a->n_constants; i++)
        if (a->constants[i] == bits)
            return i;
    if (a->n_constants == X86_MAX_CONSTANTS) {
        a->is_full = true;
        return 0;
    }
    a->constants[a->n_constants] = bits;
    return a->n_constants++;
}

void x86_push(struct x86 *a, enum x86_gpr reg) {
    if (reg >= 8)
        add_byte(a, 0x41);
    add_byte(a, 0x50 | (reg & 7));
}

void x86_pop(struct x86 *a, enum x86_gpr reg) {
    if (reg >= 8)
        add_byte(a, 0x41);
    add_byte(a, 0x58 | (reg & 7));
}

void x86_load_pointer(struct x86 *a, enum x86_gpr reg, int index) {
    add_byte(a, 0x48 | (reg >= 8) << 2);
    add_byte(a, 0x8b);
    add_byte(a, mod_rm(2, reg, X86_RDI));
    add_i32(a, index * 8);
}

void x86_finish(struct x86 *a) {
    const size_t vector = a->is_wide ? 64 : 32;
    while (a->size % vector && !a->is_full)
        add_byte(a, 0xcc);
    size_t first = a->size;
    for (int i = 0; i < a->n_constants; i++)
        for (size_t at = 0; at < vector; at += (size_t)a->lane)
            x86_bytes(a, &a->constants[i], (size_t)a->lane);
    for (int i = 0; i < a->n_fixes; i++) {
        const struct x86_fix *fix = &a->fixes[i];
        x86_patch_i32(a, fix->at,
                      (int64_t)(first + (size_t)fix->constant * vector) - (int64_t)fix->end);
    }
}
