/* How fast a device is: arithmetic, memory, and the work around a kernel.
 *
 * Cost rows (kernels/cost.h) give times on the machine on which they were measured. A worker
 * measures its devices once, and the master multiplies a row's time by how much slower the device
 * is. Rates are rough: other work on the host makes them smaller. */
#ifndef MILLRACE_KERNELS_RATES_H
#define MILLRACE_KERNELS_RATES_H

#include <stdbool.h>

#include "kernels/cost.h"

/* 0: not known. All are of one core of a CPU as it is measured, or of a whole GPU as its driver
 * describes it (device_ops.rates). */
struct device_rates {
    double flops_per_second; /* of float32 */
    double bytes_per_second; /* read and written, of memory that is in no cache */
    double dispatch_ns;      /* one indirect call that depends on the last one; 0 of a GPU */
};

/* How much longer something takes than the cost rows say. 1: as long. */
struct device_slowness {
    double compute, memory, dispatch;
};

/* Measures one core of this host. Takes about 15 ms and at most 50, on a host that is not
 * overloaded; 8 MiB of memory while it runs. All rates are 0 if the clock does not move. Any
 * thread. */
struct device_rates device_rates_measure(void);
/* The rates of a device that is `scale` times slower. */
struct device_rates device_rates_divide(struct device_rates rates, double scale);
/* Compares rates with those of the device of the cost rows, which for the type "GPU" is the one
 * that cost_of_shapes counts with. Rates may be wrong in every way, because another process tells
 * them: what is not known is 1, a difference of less than a quarter is 1, and no device is more
 * than 10,000 times slower or faster. */
struct device_slowness device_slowness_of(const char *device_type,
                                          const struct device_rates *rates);
/* Do the two differ by less than a quarter, so that measuring cannot tell them apart? */
bool device_slowness_is_near(const struct device_slowness *a, const struct device_slowness *b);
/* The time of an execution on such a device. Arithmetic and memory traffic share the row's time,
 * without its launch, in proportion to what each needs on the machine of the cost rows; without
 * either, the time is that of a call. */
double device_slowness_ns(const struct device_slowness *slowness, const struct cost *cost);

#endif
