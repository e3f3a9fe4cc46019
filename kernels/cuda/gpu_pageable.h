/* Copies between a GPU's memory and pageable memory of the host, in pieces through pinned memory.
 *
 *   piece 0   fill ─ copy ─────────── fill ─ copy …      a thread has two pieces, so that its
 *   piece 1          fill ─ copy ─────────── fill …      work on one and the device's copy of the
 *                                                        other overlap
 *
 * The host's part is a memcpy, in which one thread is far slower than the device. So a copier has
 * helpers for copies above GPU_TEAM_BYTES: of n threads, thread t takes the pieces t, t + n, t + 2n
 * and so on. All pieces are copied on the copier's stream, in any order, so whatever orders the
 * stream against others orders all of them. Helpers are started, and get their pinned memory, at
 * the first such copy. They sleep between copies.
 *
 * On the copier's thread, unless a comment says otherwise. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_PAGEABLE_H
#define MILLRACE_KERNELS_CUDA_GPU_PAGEABLE_H

#include "kernels/cuda/gpu_device.h"

enum {
    GPU_PIECE_BYTES = 4 << 20,
    GPU_TEAM_BYTES = 8 << 20,       /* a larger copy has several threads */
    GPU_TEAM_PIECE_BYTES = 1 << 20, /* of such a copy: two fit into a core's cache */
};

struct gpu_staged_copy {
    CUdeviceptr device_data;
    char *to;         /* memory of the host that the copy writes; NULL: it reads `from` */
    const char *from; /* memory of the host that the copy reads */
    size_t size_bytes;
    struct buffer *growing; /* NULL, or the growing buffer of `to` */
};

/* The number of threads for a large copy by default: a quarter of the cores, 1 to
 * GPU_MAX_COPY_THREADS. */
int gpu_copy_threads(void);

/* Makes sure that the copier has the pieces that a copy of this size by one thread uses. Errors:
 * the driver's. */
struct status *gpu_need_pieces(struct gpu_copier *copier, size_t size_bytes) MUST_USE;

/* Copies. To the host: all bytes are there when it returns. To the device: all is enqueued on the
 * copier's stream, and uses the pinned memory until the stream has done it. Errors: the driver's,
 * the first of all threads. After an error no thread uses the host's memory any more, but the
 * device uses the pinned memory until the stream is drained. */
struct status *gpu_copy_staged(struct gpu_copier *copier,
                               const struct gpu_staged_copy *copy) MUST_USE;

/* Sets up a team without helpers. */
void gpu_team_init(struct gpu_team *team);
/* Ends the helpers' threads. The copier's thread has ended. Any thread. */
void gpu_team_stop(struct gpu_team *team);
/* Gives back what they have of the driver. On a thread whose current context is the device's. */
void gpu_team_free(struct gpu_copier *copier);
/* Lets the helpers end without waiting for them, because a call of the driver hangs. Any thread. */
void gpu_team_detach(struct gpu_team *team);

/* Makes and gives back the two events and the memory of pieces. */
struct status *gpu_pieces_open(struct gpu_device *gpu, struct gpu_pieces *pieces) MUST_USE;
void gpu_pieces_close(struct gpu_device *gpu, struct gpu_pieces *pieces);

#endif
