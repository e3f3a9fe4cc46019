#include "common/tensor/tidy.h"

#include <malloc.h>
#include <stdatomic.h>

#include "common/tensor/buffer.h"

enum { WORTH_TRIMMING_BYTES = 16 << 20 };

static _Atomic bool is_trimming;

static void trim(struct pool_task *task) {
    malloc_trim(0);
    atomic_store(&is_trimming, false);
}

void memory_tidy(struct pool *pool) {
    static struct pool_task task = {.run = trim};
    static size_t trimmed_at_bytes;
    struct mallinfo2 info = mallinfo2();
    allocator_host_age();
    /* What was trimmed still counts as free: an unchanged figure means that there is nothing new. */
    bool is_worth_it = info.fordblks > WORTH_TRIMMING_BYTES && info.fordblks != trimmed_at_bytes;
    if (is_worth_it && !atomic_exchange(&is_trimming, true)) {
        trimmed_at_bytes = info.fordblks;
        pool_submit(pool, &task);
    }
}
