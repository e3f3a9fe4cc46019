/* Memory that a worker shares with a server of Python functions on the same host, so that large
 * values need not travel through the connection (py_message.h says when they do).
 *
 * The server's process makes an anonymous file (memfd) that cannot shrink, and names it when it
 * joins: its process, its descriptor there, the size, and 16 random bytes that the file begins
 * with. A worker that finds these bytes under that name is on the same host and maps the file. The
 * file has no name in any folder, so nothing is left when both processes have ended, however they
 * ended.
 *
 *   0         64                      size / 2                  size
 *   ├─ nonce ─┼─ blocks of the worker ─┼─ blocks of the server ─┤
 *   block     u32 state (1 in use, 0 free), at a multiple of 64; the bytes 64 behind it
 *
 * Whoever owns a half decides what is where; the other one only sets a block's state to 0 when it
 * has read it. The worker believes nothing else that is written there. Any thread. */
#ifndef MILLRACE_KERNELS_HOST_CALLS_PY_MEMORY_H
#define MILLRACE_KERNELS_HOST_CALLS_PY_MEMORY_H

#include "common/base/base.h"
#include "common/base/status.h"

enum {
    PY_MEMORY_ALIGN = 64,
    PY_MEMORY_NONCE_BYTES = 16,
    PY_MEMORY_MAX_BYTES = 1 << 30, /* a larger file is not mapped */
    PY_MEMORY_MAX_BLOCKS = 1024,   /* of the worker, in use at a time */
};

struct py_memory;

/* Maps the memory that `name` describes: "PROCESS DESCRIPTOR SIZE NONCE", the nonce in hex. NULL
 * where it describes none, or none that this process can reach. One reference. */
struct py_memory *py_memory_open(struct span name);
struct py_memory *py_memory_ref(struct py_memory *memory);
void py_memory_unref(struct py_memory *memory);

/* Copies the bytes into a block for the server, and returns their offset. Returns 0 when no block
 * is free. */
uint64_t py_memory_put(struct py_memory *memory, const void *bytes, size_t size);

/* Copies the bytes that the server has put at `at`, and frees their block. Errors:
 * INVALID_ARGUMENT for an offset outside of the server's half. */
struct status *py_memory_take(struct py_memory *memory, uint64_t at, void *to,
                              size_t size) MUST_USE;

#endif
