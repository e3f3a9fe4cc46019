/* Asks for the matrix unit, and makes its tiles of floats; see amx.h. */
#include "kernels/cpu/matmul/amx.h"

#if HAS_AMX_FILES
#include <cpuid.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Linux lets a process use the tiles once it
 * has asked. */
enum { ASK_FOR_STATE = 0x1023, TILE_STATE = 18 };

static bool is_there;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void ask(void) {
    enum { BF16 = 1u << 22, TILES = 1u << 24 };
    unsigned a, b, c, d;
    is_there = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16) && (d & TILES) &&
               syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_STATE) == 0;
}

bool amx_is_there(void) {
    pthread_once(&once, ask);
    return is_there;
}

AMX_INLINE __mmask16 mask_of(int64_t n) {
    return n >= 16 ? 0xffff : (__mmask16)((1u << MAX(n, (int64_t)0)) - 1);
}

AMX_CODE bool amx_are_finite(const float *values, int64_t rows, int64_t columns, int64_t stride) {
    __m512i exponent = _mm512_set1_epi32(0x7f800000);
    __mmask16 found = 0;
    for (int64_t i = 0; i < rows && !found; i++, values += stride) {
        for (int64_t j = 0; j < columns; j += 16) {
            __m512i x = _mm512_maskz_loadu_epi32(mask_of(columns - j), values + j);
            found |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(x, exponent), exponent);
        }
    }
    return !found;
}

/* ---- memory ---- */

static pthread_key_t memory_key;
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;

static void make_memory_key(void) { CHECK(pthread_key_create(&memory_key, free) == 0); }

void *amx_thread_memory(size_t size) {
    static __thread size_t capacity;
    pthread_once(&memory_once, make_memory_key);
    char *memory = pthread_getspecific(memory_key);
    if (!memory || capacity < size) {
        free(memory);
        memory = xmalloc(size + 64);
        CHECK(pthread_setspecific(memory_key, memory) == 0);
        capacity = size;
    }
    return memory + (64 - (uintptr_t)memory % 64);
}

/* ---- tiles ---- */

/* Transposes 16 x 16 words: swaps the blocks beside the diagonal, for blocks of 8, 4, 2 and 1. */
AMX_CODE static void transpose_words(uint16_t *tile) {
    __m512i rows[16],
        lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int i = 0; i < 16; i++)
        rows[i] = _mm512_load_si512(tile + i * 32);
    _Pragma("GCC unroll 4") for (int size = 8; size > 0; size /= 2) {
        __m512i distance = _mm512_set1_epi32(size);
        __mmask16 upper = _mm512_test_epi32_mask(lanes, distance);
        /* lanes 16 to 31 are those of the second operand */
        __m512i first = _mm512_mask_add_epi32(lanes, upper, lanes, _mm512_set1_epi32(16 - size)),
                second = _mm512_mask_add_epi32(_mm512_add_epi32(lanes, distance), upper, lanes,
                                               _mm512_set1_epi32(16));
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) {
            if (i & size)
                continue;
            __m512i a = rows[i], b = rows[i + size];
            rows[i] = _mm512_permutex2var_epi32(a, first, b);
            rows[i + size] = _mm512_permutex2var_epi32(a, second, b);
        }
    }
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(tile + i * 32, rows[i]);
}

AMX_INLINE void store(struct amx_words words, int row, uint16_t *ret) {
    for (int p = 0; p < AMX_PARTS; p++)
        _mm512_store_si512(ret + p * AMX_TILE + row * 32, words.part[p]);
}

/* Tiles whose row i holds 32 values along k. */
AMX_CODE static void pack_rows(const float *values, int64_t stride, int n, int depth,
                               uint16_t *ret) {
    for (int i = 0; i < 16; i++) {
        const float *row = values + i * stride;
        bool has_row = i < n;
        store(amx_cut_row(_mm512_maskz_loadu_ps(has_row ? mask_of(depth) : 0, row),
                          _mm512_maskz_loadu_ps(has_row ? mask_of(depth - 16) : 0, row + 16)),
              i, ret);
    }
}

/* Tiles whose row i holds, for 16 columns, the values 2 i and 2 i + 1 along k. */
AMX_CODE static void pack_pairs(const float *values, int64_t stride, int n, int depth,
                                uint16_t *ret) {
    for (int i = 0; i < 16; i++) {
        const float *even = values + 2 * i * stride, *odd = even + stride;
        store(amx_cut_words(_mm512_maskz_loadu_ps(2 * i < depth ? mask_of(n) : 0, even),
                            _mm512_maskz_loadu_ps(2 * i + 1 < depth ? mask_of(n) : 0, odd)),
              i, ret);
    }
}

void amx_pack_left(const float *values, int64_t stride, bool by_k, int n, int depth,
                   uint16_t *ret) {
    if (!by_k) {
        pack_rows(values, stride, n, depth, ret);
        return;
    }
    pack_pairs(values, stride, n, depth, ret);
    for (int p = 0; p < AMX_PARTS; p++)
        transpose_words(ret + p * AMX_TILE);
}

void amx_pack_right(const float *values, int64_t stride, bool by_k, int n, int depth,
                    uint16_t *ret) {
    if (by_k) {
        pack_pairs(values, stride, n, depth, ret);
        return;
    }
    pack_rows(values, stride, n, depth, ret);
    for (int p = 0; p < AMX_PARTS; p++)
        transpose_words(ret + p * AMX_TILE);
}
#else
bool amx_is_there(void) { return false; }
#endif
