/* Measures the rates of a CPU, and compares rates with those behind the cost rows. */
#include "kernels/rates.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/clock.h"

enum {
    VECTOR = 2048, /* floats: two vectors of them are in the nearest cache */
    PASSES = 16,
    COPY_BYTES = 4 << 20,
    CALLS = 4096,
    MAX_REPEATS = 64,
    MIN_REPEATS = 2,
    PROBE_NS = 4 * 1000 * 1000, /* for each of the three rates, apart from MIN_REPEATS */
};

/* What device_rates_measure says on the machine on which the cost rows were measured. */
static const struct device_rates REFERENCE = {
    .flops_per_second = 2.1e10, .bytes_per_second = 2.5e10, .dispatch_ns = 4.2};

/* What an H200's driver says of it: the GPU whose times are in kernels/cost.c. */
static const struct device_rates GPU_REFERENCE = {.flops_per_second = 6.7e13,
                                                  .bytes_per_second = 4.9e12};

static const double NEAR = 1.25, MAX_SLOWNESS = 1e4;

/* ---- measuring ---- */

struct probe {
    float x[VECTOR], y[VECTOR];
    char *copy; /* twice COPY_BYTES */
    uint64_t sum;
};

/* Compiled for the instruction sets that kernels have, so that the rate is what they get. */
VECTOR_CLONES static void multiply_and_add(struct probe *probe) {
    for (int pass = 0; pass < PASSES; pass++) {
        for (int i = 0; i < VECTOR; i++)
            probe->y[i] = probe->y[i] * 0.5f + probe->x[i];
        __asm__ volatile("" : : "r"(probe->y) : "memory"); /* keeps every pass */
    }
}

static void copy(struct probe *probe) {
    memcpy(probe->copy, probe->copy + COPY_BYTES, COPY_BYTES);
    __asm__ volatile("" : : "r"(probe->copy) : "memory");
}

static uint64_t step_odd(uint64_t value) { return value * 5 + 1; }
static uint64_t step_even(uint64_t value) { return value ^ (value >> 7); }

static void call(struct probe *probe) {
    static uint64_t (*const volatile steps[])(uint64_t) = {step_even, step_odd};
    uint64_t value = probe->sum + 1;
    for (uint64_t i = 0; i < CALLS; i++)
        value = steps[value & 1](value) + i;
    probe->sum = value;
}

/* The shortest of several runs, because other work can only lengthen one. 0: the clock stands. */
static double shortest_ns(struct probe *probe, void (*run)(struct probe *probe)) {
    int64_t start_ns = clock_now_ns(), before_ns = start_ns, shortest = INT64_MAX;
    for (int i = 0; i < MAX_REPEATS && (i < MIN_REPEATS || before_ns - start_ns < PROBE_NS); i++) {
        run(probe);
        int64_t now_ns = clock_now_ns();
        if (now_ns == before_ns)
            return 0;
        shortest = MIN(shortest, now_ns - before_ns);
        before_ns = now_ns;
    }
    return (double)shortest;
}

static double per_second(double n, double ns) { return ns > 0 ? n * 1e9 / ns : 0; }

struct device_rates device_rates_measure(void) {
    struct device_rates rates = {0};
    struct probe *probe = xcalloc(1, sizeof *probe);
    rates.flops_per_second =
        per_second(2.0 * VECTOR * PASSES, shortest_ns(probe, multiply_and_add));
    rates.dispatch_ns = shortest_ns(probe, call) / CALLS;
    /* not from the heap, which would keep the memory */
    void *memory =
        mmap(NULL, 2 * COPY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED && rates.dispatch_ns > 0) {
        probe->copy = memory;
        memset(probe->copy, 1, 2 * COPY_BYTES);
        rates.bytes_per_second = per_second(2.0 * COPY_BYTES, shortest_ns(probe, copy));
    }
    if (memory != MAP_FAILED)
        munmap(memory, 2 * COPY_BYTES);
    free(probe);
    return rates;
}

struct device_rates device_rates_divide(struct device_rates rates, double scale) {
    rates.flops_per_second /= scale;
    rates.bytes_per_second /= scale;
    rates.dispatch_ns *= scale;
    return rates;
}

/* ---- comparing ---- */

/* `slow` in units of `fast`; both are times or reciprocals of rates. */
static double ratio(double slow, double fast) {
    if (!isfinite(slow) || !isfinite(fast) || slow <= 0 || fast <= 0)
        return 1;
    double slowness = fmin(fmax(slow / fast, 1 / MAX_SLOWNESS), MAX_SLOWNESS);
    return slowness < NEAR && slowness > 1 / NEAR ? 1 : slowness;
}

struct device_slowness device_slowness_of(const char *device_type,
                                          const struct device_rates *rates) {
    const struct device_rates *reference =
        strcmp(device_type, "GPU") == 0 ? &GPU_REFERENCE : &REFERENCE;
    return (struct device_slowness){
        .compute = ratio(reference->flops_per_second, rates->flops_per_second),
        .memory = ratio(reference->bytes_per_second, rates->bytes_per_second),
        .dispatch = ratio(rates->dispatch_ns, reference->dispatch_ns)};
}

static bool is_near(double a, double b) { return a < b * NEAR && b < a * NEAR; }

bool device_slowness_is_near(const struct device_slowness *a, const struct device_slowness *b) {
    return is_near(a->compute, b->compute) && is_near(a->memory, b->memory) &&
           is_near(a->dispatch, b->dispatch);
}

double device_slowness_ns(const struct device_slowness *slowness, const struct cost *cost) {
    double compute_s = cost->flops / REFERENCE.flops_per_second,
           memory_s = cost->bytes / REFERENCE.bytes_per_second, both_s = compute_s + memory_s;
    if (!(both_s > 0))
        return cost->ns * slowness->dispatch;
    return cost->launch_ns + (cost->ns - cost->launch_ns) *
                                 (compute_s * slowness->compute + memory_s * slowness->memory) /
                                 both_s;
}
