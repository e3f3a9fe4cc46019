/* Lists the areas of this process' memory that it shares with other processes: the task's arena
 * (shm_arena.h), and its mappings of the peers' arenas (rpc/shm/shm_map.h).
 *
 * A device that copies by itself registers parts of them with its driver, which pins their pages.
 * So whoever gives such pages back to the system, replaces them or unmaps them says so first, and
 * the watcher ends its registrations. Without a watcher, all this costs one load.
 *
 * Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_SHARED_AREAS_H
#define MILLRACE_COMMON_TENSOR_SHARED_AREAS_H

#include "common/base/base.h"

struct shared_area {
    const char *base; /* begins on a page */
    size_t size_bytes;
    bool is_read_only; /* the mapping cannot be written */
};

/* The area must be mapped until shared_areas_remove. */
void shared_areas_add(const char *base, size_t size_bytes, bool is_read_only);
/* Releases all of the area, and forgets it. Nobody uses its memory any more. */
void shared_areas_remove(const char *base);
/* Finds the area that has all of a range. False: there is none. */
bool shared_areas_find(const char *data, size_t size_bytes, struct shared_area *ret);

/* Says that the pages of a range are about to be given back or unmapped, or that they may be other
 * pages than before. Returns when the watcher knows. */
void shared_areas_release(const char *data, size_t size_bytes);
/* Sets who is told. on_release must not call this module, and may be called by several threads at
 * once. NULL: nobody. When this returns, no call of the old one is running. */
void shared_areas_watch(void (*on_release)(const char *data, size_t size_bytes));
bool shared_areas_are_watched(void);

#endif
