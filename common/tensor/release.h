/* Announces that memory returns to the system, for allocators outside of common/tensor whose memory
 * others may have registered (buffer.h: allocator_host_set_release_hook). */
#ifndef MILLRACE_COMMON_TENSOR_RELEASE_H
#define MILLRACE_COMMON_TENSOR_RELEASE_H

#include <stddef.h>

/* Calls the release hook, if there is one, and returns when nobody has the bytes registered any
 * more. Called before the memory is released. Any thread; the hook may block. */
void memory_announce_release(const char *data, size_t size_bytes);

#endif
