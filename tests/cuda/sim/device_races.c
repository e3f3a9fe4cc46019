/* Finds accesses inside one launch that nothing orders: a missing __syncthreads, an update without
 * an atomic. Threads of a GPU are ordered by barriers only, so an exact answer needs no vector
 * clocks, and does not depend on the order in which threads run. */
#include "tests/cuda/sim/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mark {
    uint32_t launch, block; /* launch 0: none */
    uint32_t epoch, code;   /* code: from the kernel's entry on */
    uint16_t warp_epoch;
    uint16_t thread : 15, is_atomic : 1;
};
struct cell {
    struct mark write, read;
    /* Among its readers, beside the last: threads of another block; of another warp, since the same
     * barrier; of the same warp, since the same __syncwarp. */
    bool has_other_block, has_other_warp, has_other_lane;
};

/* The cells of a piece of memory. A cell stands for four bytes at first. The first access to less
 * makes all cells of the piece smaller, and what they knew is lost. */
enum { FOUR_BYTES = 2, LEAF_BYTES = 16384 };
struct piece {
    uint64_t start, size;
    uint8_t shift; /* a cell is 1 << shift bytes */
    struct cell *cells;
    uint64_t max_cells;
};

struct race_position race_position;
bool race_is_on;

static struct piece **leaves;  /* of device memory */
static struct piece shared[2]; /* static and dynamic shared memory */
static uint64_t code_base;

/* The first race of the launch, to be told when its threads do not run. */
static struct {
    bool is_found;
    struct mark own, other;
    bool is_write, was_write, is_shared;
} race;

/* Blocks may order each other: one fences and then changes an atomic, the other changes an atomic
 * later ("the last block sums up"). Which of its accesses come before the fence is not followed, so
 * a block that has fenced is never reported against one that uses atomics. */
static struct {
    bool has_fenced, has_acquired; /* the block that runs */
    unsigned char *released;       /* of each block of the launch: it has fenced and told */
    uint32_t n, max;
} fences;

static bool fence_has_released(uint32_t block) {
    return block < fences.n && fences.released[block];
}

static void fence_note_atomic(void) {
    uint32_t block = race_position.block;
    fences.has_acquired = true;
    if (!fences.has_fenced || fence_has_released(block))
        return;
    if (block >= fences.max) {
        fences.max = 2 * (block + 1);
        fences.released = realloc(fences.released, fences.max);
        if (fences.released == NULL)
            abort();
    }
    for (; fences.n <= block; fences.n++)
        fences.released[fences.n] = 0;
    fences.released[block] = 1;
}

static void piece_set_cells(struct piece *piece, uint8_t shift) {
    uint64_t n = (piece->size >> shift) + 1;
    piece->shift = shift;
    if (n <= piece->max_cells) {
        memset(piece->cells, 0, n * sizeof *piece->cells);
        return;
    }
    free(piece->cells);
    piece->cells = calloc(n, sizeof *piece->cells);
    piece->max_cells = n;
    if (piece->cells == NULL)
        abort();
}

void races_launch_begin(const void *entry) {
    code_base = (uint64_t)entry;
    race_position.launch++;
    if (leaves == NULL)
        leaves =
            calloc((uint64_t)settings.n_devices * SIM_DEVICE_SPAN / LEAF_BYTES, sizeof *leaves);
    if (leaves == NULL)
        abort();
    race.is_found = false;
    fences.n = 0;
    shared[0].size = shared[1].size = 0;
}

static void shared_set(struct piece *piece, const void *start, size_t size) {
    piece->start = (uint64_t)start & ~15ull;
    size += (uint64_t)start - piece->start;
    if (size == piece->size)
        return;
    piece->size = size;
    piece_set_cells(piece, FOUR_BYTES);
}

void races_set_shared(const void *static_start, size_t static_size, const void *dynamic_start,
                      size_t dynamic_size) {
    shared_set(&shared[0], static_start, static_size);
    shared_set(&shared[1], dynamic_start, dynamic_size);
    fences.has_fenced = fences.has_acquired = false;
}

/* NULL: a thread's own memory. */
static struct piece *piece_of(uint64_t address) {
    for (int i = 0; i < 2; i++)
        if (address - shared[i].start < shared[i].size)
            return &shared[i];
    if (!pages_is_device(address))
        return NULL;
    uint64_t leaf = (address - settings.base) / LEAF_BYTES;
    if (leaves[leaf] == NULL) {
        leaves[leaf] = calloc(1, sizeof **leaves);
        if (leaves[leaf] == NULL)
            abort();
        leaves[leaf]->start = settings.base + leaf * LEAF_BYTES;
        leaves[leaf]->size = LEAF_BYTES;
        piece_set_cells(leaves[leaf], FOUR_BYTES);
    }
    return leaves[leaf];
}

/* Does an earlier access of this launch exist that nothing orders before the running thread's? */
static inline bool is_unordered(const struct mark *mark, bool is_shared) {
    const struct race_position *own = &race_position;
    if (mark->launch != own->launch)
        return false;
    if (mark->block != own->block) /* another block's shared memory was other memory */
        return !is_shared && !(fences.has_acquired && fence_has_released(mark->block));
    if (mark->thread == own->thread || mark->epoch < own->epoch)
        return false;
    bool is_same_warp = mark->thread / 32 == own->thread / 32;
    return !(is_same_warp && mark->warp_epoch < own->warp_epoch);
}

static inline void check(const struct mark *other, const struct mark *own, bool is_write,
                         bool was_write, bool is_shared) {
    if (race.is_found || (other->is_atomic && own->is_atomic) || !is_unordered(other, is_shared))
        return;
    race.is_found = true;
    race.own = *own;
    race.other = *other;
    race.is_write = is_write;
    race.was_write = was_write;
    race.is_shared = is_shared;
}

/* Checks a write against the last reader, and against those that the cell's flags stand for. */
static void check_readers(const struct cell *cell, const struct mark *own, bool is_shared) {
    struct mark reader = cell->read;
    check(&reader, own, true, false, is_shared);
    if (cell->has_other_block && reader.block == own->block) {
        reader.block++;
        check(&reader, own, true, false, is_shared);
        reader.block--;
    }
    if (reader.thread != own->thread || reader.block != own->block)
        return;
    if (cell->has_other_lane) {
        reader.thread ^= 1;
        check(&reader, own, true, false, is_shared);
        reader.thread ^= 1;
    }
    if (cell->has_other_warp) {
        reader.thread ^= 32;
        check(&reader, own, true, false, is_shared);
    }
}

static void reader_add(struct cell *cell, const struct mark *own, bool is_shared) {
    const struct mark *old = &cell->read;
    bool is_same_block = old->block == own->block;
    bool is_kept = old->launch == own->launch && (is_same_block || !is_shared);
    bool is_same_epoch = is_kept && is_same_block && old->epoch == own->epoch;
    bool is_same_warp = old->thread / 32 == own->thread / 32;
    cell->has_other_block = is_kept && (cell->has_other_block || !is_same_block);
    cell->has_other_warp = is_same_epoch && (cell->has_other_warp || !is_same_warp);
    cell->has_other_lane = is_same_epoch && is_same_warp && old->warp_epoch == own->warp_epoch &&
                           (cell->has_other_lane || old->thread != own->thread);
    cell->read = *own;
}

/* A thread's access to an element that lies in one piece. */
static void piece_note(struct piece *piece, uint64_t address, size_t size, bool is_write,
                       const struct mark *own) {
    uint64_t both = address | size;
    bool is_shared = piece == &shared[0] || piece == &shared[1];
    while (piece->shift > 0 && both & ((1u << piece->shift) - 1))
        piece_set_cells(piece, (uint8_t)(piece->shift - 1));
    uint64_t first = (address - piece->start) >> piece->shift, n = size >> piece->shift;
    for (struct cell *cell = &piece->cells[first]; n > 0; cell++, n--) {
        check(&cell->write, own, is_write, true, is_shared);
        if (is_write) {
            check_readers(cell, own, is_shared);
            *cell = (struct cell){.write = *own};
        } else {
            reader_add(cell, own, is_shared);
        }
    }
}

static void abandon_outside(uint64_t address, bool is_write, const void *code) {
    char where[160], line[160];
    race_is_on = false;
    grid_where(where, sizeof where);
    source_of(code, line, sizeof line);
    report("an illegal address: kernel \"%s\" (stream %u, operation %u) %s 0x%lx at %s, behind the "
           "end of its block (%s)",
           name_text(running->name), running->message.stream, running->message.clock,
           is_write ? "writes" : "reads", (unsigned long)address, line, where);
    operation_abandon(CUDA_ERROR_ILLEGAL_ADDRESS);
}

void race_note(uint64_t address, size_t size, bool is_write, bool is_atomic, const void *code) {
    struct piece *piece = piece_of(address);
    if (piece == NULL)
        return;
    if (pages_is_device(address) && !pages_is_inside(address, size))
        abandon_outside(address, is_write, code);
    if (is_atomic && is_write)
        fence_note_atomic();
    struct mark own = {.launch = race_position.launch,
                       .block = race_position.block,
                       .epoch = race_position.epoch,
                       .code = (uint32_t)((uint64_t)code - code_base),
                       .warp_epoch = race_position.warp_epoch,
                       .thread = race_position.thread & 0x7fff,
                       .is_atomic = is_atomic};
    while (size > 0 &&
           piece != NULL) { /* pieces end at multiples of 16: one turn, but for memcpy */
        uint64_t rest = piece->start + piece->size - address;
        size_t part = size < rest ? size : rest;
        piece_note(piece, address, part, is_write, &own);
        size -= part;
        address += part;
        piece = size > 0 ? piece_of(address) : NULL;
    }
}

void race_note_fence(void) { fences.has_fenced = true; }

/* ---- telling ---- */

/* A pair of places in the code is reported once. */
static bool is_told(uint64_t own, uint64_t other) {
    enum { MAX_TOLD = 256 };
    static uint64_t told[MAX_TOLD][2];
    static int n_told;
    for (int i = 0; i < n_told; i++)
        if (told[i][0] == own && told[i][1] == other)
            return true;
    if (n_told == MAX_TOLD)
        return true;
    told[n_told][0] = own;
    told[n_told++][1] = other;
    return false;
}

void races_launch_end(void) {
    uint64_t own_code = code_base + (uint64_t)(int32_t)race.own.code;
    uint64_t other_code = code_base + (uint64_t)(int32_t)race.other.code;
    if (!race.is_found || is_told(own_code, other_code))
        return;
    char own[256], other[256];
    source_of((const void *)own_code, own, sizeof own);
    source_of((const void *)other_code, other, sizeof other);
    report(
        "a race in kernel \"%s\": thread %u of block %u %s %s memory at %s, another thread (block "
        "%u) %s it at %s, and no barrier orders them",
        name_text(running->name), race.own.thread, race.own.block,
        race.is_write ? "writes" : "reads", race.is_shared ? "shared" : "global", own,
        race.other.block, race.was_write ? "wrote" : "read", other);
}
