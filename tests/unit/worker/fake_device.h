/* A device with a memory of its own, made of host memory: a thread works on a queue, and its memory
 * is mapped twice, once for that thread and once, without access, at the addresses that tensors
 * hold. A kernel or an executor that touches a value of the device faults. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_FAKE_DEVICE_H
#define MILLRACE_TESTS_UNIT_WORKER_FAKE_DEVICE_H

#include "kernels/device.h"

struct fake_device;

/* Adds the kernels of the type FAKE to the registry. Once a process. */
void fake_device_add_type(void);
/* Makes a device named `full_name`, which must stay valid. */
struct fake_device *fake_device_new(const char *full_name);
void fake_device_free(struct fake_device *fake);
/* What plans name; the fake's. */
const struct device *fake_device_of(struct fake_device *fake);

/* Between the two, the queue takes work and does none. */
void fake_device_hold(struct fake_device *fake);
void fake_device_release(struct fake_device *fake);
/* The device is far ahead with this many entries in the queue, until half of them are done. */
void fake_device_limit(struct fake_device *fake, int max_queued);
/* Waits until an execution has paused. */
void fake_device_await_pause(struct fake_device *fake);
/* The next wait for the device ends with this failure. */
void fake_device_fail(struct fake_device *fake, struct status *status_take);
/* Copies made so far, to the device, from it, and within it; how often an execution had it enqueue
 * what it holds back, and how often of these one had paused for it. */
struct fake_counts {
    int in, out, within, uploads, launches, flushes, flushes_in_pauses;
};
struct fake_counts fake_device_counts(struct fake_device *fake);
int fake_device_n_buffers(struct fake_device *fake); /* alive */

#endif
