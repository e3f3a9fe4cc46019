/* Lets the RDMA device of a task use the memory of the task's GPUs: what rpc/rdma/rdma_memory.h
 * asks for, by what the devices offer (kernels/device.h). */
#ifndef MILLRACE_WORKER_DEVICE_EXPORT_H
#define MILLRACE_WORKER_DEVICE_EXPORT_H

#include "kernels/device.h"
#include "rpc/rdma/rdma_memory.h"

struct device_exporter {
    struct rdma_exporter exporter;
    struct device *devices; /* borrowed */
    int n_devices;
};

void device_exporter_init(struct device_exporter *all, struct device *devices, int n_devices);
void device_exporter_fini(struct device_exporter *all);

#endif
