/* Memory of devices that several processes of the host share (MILLRACE_SIM_SHARED).
 *
 * The file has a slot for each process: how much of each device the process holds. The owner of a
 * slot holds a lock on its bytes, which the system releases when the process ends, also if it is
 * killed. Then the slot does not count any more, as a real driver takes the memory back. */
#include "tests/cuda/sim/driver.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_SLOTS = 64 };

struct slot {
    uint64_t used[SIM_MAX_DEVICES]; /* bytes */
};

/* Guarded by the link's lock, and the slots by a lock on the byte behind them. */
static struct {
    struct slot *slots; /* NULL: no process shares the devices */
    int file, own;
} shared = {.file = -1};

static bool lock(int command, short type, off_t start, off_t size) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = size};
    while (fcntl(shared.file, command, &range) != 0)
        if (errno != EINTR)
            return false;
    return command != F_OFD_GETLK || range.l_type == F_UNLCK;
}

static void lock_all(short type) {
    if (!lock(F_OFD_SETLKW, type, N_SLOTS * sizeof(struct slot), 1))
        abort();
}

/* Does another process own the slot? */
static bool is_owned(int slot) {
    return slot != shared.own &&
           !lock(F_OFD_GETLK, F_WRLCK, slot * (off_t)sizeof(struct slot), sizeof(struct slot));
}

static CUresult take_slot(void) {
    for (int i = 0; i < N_SLOTS; i++) {
        if (!lock(F_OFD_SETLK, F_WRLCK, i * (off_t)sizeof(struct slot), sizeof(struct slot)))
            continue;
        memset(&shared.slots[i], 0, sizeof(struct slot));
        shared.own = i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult shared_init(void) {
    const char *path = getenv("MILLRACE_SIM_SHARED");
    const size_t size = N_SLOTS * sizeof(struct slot);
    if (path == NULL || *path == '\0')
        return CUDA_SUCCESS;
    shared.file = file_moved(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (shared.file < 0 || ftruncate(shared.file, (off_t)size) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    void *slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, shared.file, 0);
    if (slots == MAP_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    shared.slots = slots;
    shared.own = -1;
    lock_all(F_WRLCK);
    CUresult result = take_slot();
    lock_all(F_UNLCK);
    return result;
}

/* `device`: one of the host's. */
static uint64_t used_by_others(int device) {
    uint64_t used = 0;
    for (int i = 0; i < N_SLOTS; i++)
        if (shared.slots[i].used[device] > 0 && is_owned(i))
            used += shared.slots[i].used[device];
    return used;
}

uint64_t shared_used_by_others(int device) {
    if (shared.slots == NULL)
        return 0;
    lock_all(F_WRLCK);
    uint64_t used = used_by_others(sim.physical[device]);
    lock_all(F_UNLCK);
    return used;
}

bool shared_take(int device, uint64_t size) {
    if (shared.slots == NULL)
        return true;
    lock_all(F_WRLCK);
    int physical = sim.physical[device];
    uint64_t *own = &shared.slots[shared.own].used[physical];
    bool is_there = *own + size + used_by_others(physical) <= sim.memory;
    if (is_there)
        *own += size;
    lock_all(F_UNLCK);
    return is_there;
}

void shared_give_back(int device, uint64_t size) {
    if (shared.slots == NULL)
        return;
    lock_all(F_WRLCK);
    shared.slots[shared.own].used[sim.physical[device]] -= size;
    lock_all(F_UNLCK);
}
