/* What the compiler's instrumentation of kernels calls (-fsanitize=thread), in place of libtsan. */
#include "tests/cuda/sim/device.h"
#include <string.h>

#define CODE __builtin_return_address(0)

static void note(const volatile void *pointer, size_t size, bool is_write, bool is_atomic,
                 const void *code) {
    if (race_is_on)
        race_note((uint64_t)pointer, size, is_write, is_atomic, code);
}

#define ACCESS(size)                                                                 \
    void __tsan_read##size(void *p);                                                 \
    void __tsan_read##size(void *p) { note(p, size, false, false, CODE); }           \
    void __tsan_write##size(void *p);                                                \
    void __tsan_write##size(void *p) { note(p, size, true, false, CODE); }           \
    void __tsan_unaligned_read##size(void *p);                                       \
    void __tsan_unaligned_read##size(void *p) { note(p, size, false, false, CODE); } \
    void __tsan_unaligned_write##size(void *p);                                      \
    void __tsan_unaligned_write##size(void *p) { note(p, size, true, false, CODE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *from);
void __tsan_func_entry(void *from) { (void)from; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **at, void *value);
void __tsan_vptr_update(void **at, void *value) { (void)at, (void)value; }
void __tsan_vptr_read(void **at);
void __tsan_vptr_read(void **at) { (void)at; }
void __tsan_read_range(void *p, unsigned long size);
void __tsan_read_range(void *p, unsigned long size) { note(p, size, false, false, CODE); }
void __tsan_write_range(void *p, unsigned long size);
void __tsan_write_range(void *p, unsigned long size) { note(p, size, true, false, CODE); }
void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memcpy(void *to, const void *from, size_t size) {
    note(from, size, false, false, CODE);
    note(to, size, true, false, CODE);
    return memcpy(to, from, size);
}
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size) {
    note(from, size, false, false, CODE);
    note(to, size, true, false, CODE);
    return memmove(to, from, size);
}
void *__tsan_memset(void *to, int value, size_t size);
void *__tsan_memset(void *to, int value, size_t size) {
    note(to, size, true, false, CODE);
    return memset(to, value, size);
}

/* Atomics: noted as such, and done. The whole process is one thread. */
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order) {
    (void)order;
    race_note_fence();
}

#define BITS 8
#include "tests/cuda/sim/device_atomics.inc"
#define BITS 16
#include "tests/cuda/sim/device_atomics.inc"
#define BITS 32
#include "tests/cuda/sim/device_atomics.inc"
#define BITS 64
#include "tests/cuda/sim/device_atomics.inc"
