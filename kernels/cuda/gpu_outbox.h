/* Small copies to the host that need not be made at once: the values that a step fetches.
 *
 * A copy by a copier waits for an event of the compute stream, which ends the segment
 * (gpu_segments.h). Such a copy is a part of the segment itself: it writes into a slot of pinned
 * memory, and a graph captures it with the work around it. When the segment has ended, an event is
 * recorded, and the copier `out` takes the value from the slot.
 *
 *   compute stream   │ mul │ … │ copy to slot 5 │ … │ add │ event
 *   copier `out`                                            └─ waits ─ slot 5 ► new value ─ on_done
 *
 * A graph's copy has a fixed destination, so a copy gets the slot that it had in the step before,
 * if that is free: the slot is drawn from how far the step is. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_OUTBOX_H
#define MILLRACE_KERNELS_CUDA_GPU_OUTBOX_H

#include "kernels/cuda/gpu_device.h"

enum { OUTBOX_SLOT_BYTES = 4096, OUTBOX_SLOTS = 64 };

void gpu_outbox_init(struct gpu_device *gpu);
/* Gives back what is the driver's. The device has ended all work. */
void gpu_outbox_close(struct gpu_device *gpu);
void gpu_outbox_free(struct gpu_device *gpu);

/* Adds a copy to the host to its owner's segment. False: it is not one for the outbox, or there is
 * no slot, and nothing has happened. Any thread. */
bool gpu_outbox_add(struct gpu_device *gpu, struct device_copy *copy);
/* The segment has ended, and its work is enqueued: hands the copies to their copier. With the
 * device's lock. */
void gpu_outbox_leave(struct gpu_device *gpu);
/* The device cannot be locked for the reason `st`: ends the copies of the owner. Their slots are
 * not used again, because what is held back may still be enqueued. */
void gpu_outbox_fail(struct gpu_device *gpu, const void *owner, struct status *st);

#endif
