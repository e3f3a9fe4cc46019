/* Who updates a slice that indices name. Device code only.
 *
 * A slice belongs to one group of blocks, by its number, and in a block to one team of threads. A
 * team takes the rows in their order, so the results are those of a CPU, bit for bit, also where
 * rows name a slice twice; there are no atomics. Each block reads all indices for that, in chunks:
 *
 *   rows of a chunk ──► those of the block's group, in order ──► its teams, each its own slices */
#ifndef MILLRACE_KERNELS_CUDA_OPS_OWNERS_H
#define MILLRACE_KERNELS_CUDA_OPS_OWNERS_H

#include "kernels/cuda/ops/picks.h"

enum { OWNER_THREADS = 256, OWNER_WARPS = OWNER_THREADS / 32 };

/* In shared memory. */
struct owner_chunk {
    int64_t slices[OWNER_THREADS], rows[OWNER_THREADS];
    int n_of_warp[OWNER_WARPS];
};

/* Lists the group's rows among OWNER_THREADS rows from `first`, and before `end`, in order. Returns
 * how many. All threads call it. */
__device__ static inline int owner_list(const pick_slices &slices, int64_t n_groups, int64_t group,
                                        int64_t first, int64_t end, owner_chunk &chunk) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t row = first + threadIdx.x;
    int64_t slice = row < end ? pick_slice(slices, row) : -1;
    bool is_ours = slice >= 0 && slice % n_groups == group;
    unsigned votes = __ballot_sync(0xffffffffu, is_ours);
    if (lane == 0)
        chunk.n_of_warp[warp] = __popc(votes);
    __syncthreads();
    int n = 0, at = 0;
    for (int w = 0; w < OWNER_WARPS; w++) {
        at = w == warp ? n : at;
        n += chunk.n_of_warp[w];
    }
    if (is_ours) {
        at += __popc(votes & ((1u << lane) - 1));
        chunk.slices[at] = slice;
        chunk.rows[at] = row;
    }
    __syncthreads();
    return n;
}

/* Calls update(slice, row, begin, end, step) for each row of the thread's team, in order, with the
 * columns that are the thread's. Each stack of rows names slices of its own, and has blocks of its
 * own as far as there are enough. */
template <class Update>
__device__ static inline void owner_run(const pick_slices &slices, int64_t n_groups,
                                        int64_t n_parts, owner_chunk &chunk, Update update) {
    int64_t group = blockIdx.x % n_groups, part = blockIdx.x / n_groups % n_parts;
    int64_t part_len = (slices.len + n_parts - 1) / n_parts;
    int64_t begin = part * part_len;
    int64_t end = begin + part_len < slices.len ? begin + part_len : slices.len;
    int team_size = 1;
    while (team_size < OWNER_THREADS && team_size < part_len)
        team_size *= 2;
    int n_teams = OWNER_THREADS / team_size, team = threadIdx.x / team_size,
        member = threadIdx.x % team_size;
    int64_t n_stacks = slices.n_stacks > 0 ? slices.n_stacks : 1, n_rows = slices.n_rows / n_stacks;
    int64_t step = gridDim.x / (n_groups * n_parts);
    for (int64_t stack = blockIdx.x / (n_groups * n_parts); stack < n_stacks; stack += step) {
        int64_t last = (stack + 1) * n_rows, first_slice = stack * slices.dims[0];
        for (int64_t first = stack * n_rows; first < last; first += OWNER_THREADS) {
            int n = owner_list(slices, n_groups, group, first, last, chunk);
            for (int i = 0; i < n; i++)
                if (chunk.slices[i] / n_groups % n_teams == team)
                    update(first_slice + chunk.slices[i], chunk.rows[i], begin + member, end,
                           team_size);
            __syncthreads(); /* before the list is written again */
        }
    }
}

#endif
