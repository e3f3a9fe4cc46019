/* A buffer in host memory that is filled from its front while its first bytes are in use already:
 * a copy from a device writes a piece, and the piece is sent while the copy writes the next one;
 * and where it arrives, a copy to a device reads a piece while the next one is received.
 *
 *   filler (a device's copy, or a connection)     reader (the loop that sends, or a device's copy)
 *   writes bytes [0, n)
 *   growing_buffer_advance(n) ──────────────────► growing_buffer_filled() == n: reads bytes [0, n)
 *   writes bytes [n, m)                           growing_buffer_wait(m)
 *   growing_buffer_advance(m) ──────────────────► on_reached
 *   growing_buffer_end(NULL, or a failure) ─────► on_reached of all waits that are left
 *
 * Bytes that are filled do not change any more. Nobody reads the others, so a growing buffer goes
 * only where its reader looks at growing_buffer_filled first: from a copy to a Send
 * (worker/executor/executor_device.c) and on to worker/exchange/peer_pieces.h, and from
 * worker/exchange/peer_arrivals.h to a Recv and on to copies to devices (device_copy.from). Once it
 * is whole it is a buffer like others.
 *
 * A failure is final: the bytes that are filled stay readable, and no more come. Whoever started
 * the filling calls growing_buffer_end, once. A thread that goes on filling later, because its
 * device was given up, holds a reference, and what it says is ignored.
 *
 * Threads: any. */
#ifndef MILLRACE_COMMON_TENSOR_GROWING_BUFFER_H
#define MILLRACE_COMMON_TENSOR_GROWING_BUFFER_H

#include "common/base/list.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

/* A wait for bytes. The caller owns the record and leaves it alone until on_reached. */
struct growing_wait {
    /* Called once, on the thread that filled the buffer or ended it, without locks. */
    void (*on_reached)(struct growing_wait *wait);
    size_t n_bytes;   /* the buffer's */
    struct list link; /* the buffer's */
};

/* Makes an empty growing buffer with memory of the allocator. The caller holds one reference. NULL:
 * there is no memory. */
struct buffer *growing_buffer_new(struct allocator *allocator, size_t size_bytes);
/* Does the same with existing memory, of which nothing counts as filled yet. */
struct buffer *growing_buffer_over(struct buffer *memory_take, size_t size_bytes);
/* Is it a growing buffer that is not whole? It stays one after a failure. Accepts every buffer. */
bool buffer_is_growing(const struct buffer *buffer);

/* The first n_bytes are filled. Ignored after the end. */
void growing_buffer_advance(struct buffer *buffer, size_t n_bytes);
/* Nothing more is filled: all bytes are there, if `failure` (borrowed) is NULL. */
void growing_buffer_end(struct buffer *buffer, struct status *failure);

/* How many bytes are filled. */
size_t growing_buffer_filled(const struct buffer *buffer);
/* Why no more bytes come; NULL: there is no failure. Lives as long as the buffer. */
struct status *growing_buffer_failure(const struct buffer *buffer);
/* Starts a wait until n_bytes are filled, or the filling has failed. Returns true if that is so
 * already, and the wait is not used. */
bool growing_buffer_wait(struct buffer *buffer, struct growing_wait *wait, size_t n_bytes);

#endif
