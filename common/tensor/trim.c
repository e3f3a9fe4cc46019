/* Decides when free memory is returned to the system. */
#include "common/tensor/trim.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "common/tensor/buffer.h"

enum { WORTH_TRIMMING_BYTES = 16 << 20 };

static _Atomic bool is_trimming;
static _Atomic size_t least_resident_bytes; /* since the last time */

/* Returns 0 if the system does not report it. */
static size_t resident_bytes(void) {
    unsigned long long total, resident;
    FILE *statm = fopen("/proc/self/statm", "re");
    int n = statm ? fscanf(statm, "%llu %llu", &total, &resident) : 0;
    if (statm)
        fclose(statm);
    return n == 2 ? (size_t)resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

static void trim(struct pool_task *task) {
    malloc_trim(0);
    atomic_store(&least_resident_bytes, resident_bytes());
    atomic_store(&is_trimming, false);
}

/* malloc still counts trimmed memory as free. Only new resident pages show that there is memory to
 * return. */
void memory_trim(struct pool *pool) {
    static struct pool_task task = {.run = trim};
    size_t resident = resident_bytes(), least = atomic_load(&least_resident_bytes);
    allocator_host_age();
    if (atomic_load(&is_trimming))
        return;
    if (resident < least)
        atomic_store(&least_resident_bytes, least = resident);
    if (resident - least < WORTH_TRIMMING_BYTES || mallinfo2().fordblks < WORTH_TRIMMING_BYTES)
        return;
    atomic_store(&is_trimming, true);
    pool_submit(pool, &task);
}
