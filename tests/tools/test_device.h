/* A device with a memory of its own for the evaluator of test_host.h: the first GPU that the plugin
 * finds, real or simulated. Nodes that have a row for it run on it, as a placer decides. Values
 * are copied between the memories as the rows want.
 *
 * GRAPH_EVAL_GPU=PATH names the plugin, and tools/dev gpu-sim runs a program with simulated GPUs:
 *
 *     GRAPH_EVAL_GPU=build/kernels/cuda/millrace-cuda.so tools/dev gpu-sim 1 -- \
 *         .venv/bin/python tests/differential/run_kernels.py array
 *
 * With GRAPH_EVAL_GRAPHS in the environment, equal work is replayed as CUDA graphs.
 *
 * Threads: one at a time. */
#ifndef MILLRACE_TESTS_TOOLS_TEST_DEVICE_H
#define MILLRACE_TESTS_TOOLS_TEST_DEVICE_H

#include "kernels/device.h"

/* The process' device, opened by the first call; NULL where GRAPH_EVAL_GPU is not set. Ends the
 * process with a message when the plugin cannot be opened. */
struct device *test_device(void);
/* Decides for each node of a graph, by id, whether it runs on the device: it has a row there, and
 * so have all nodes that share a variable or resource with it. */
void test_device_place(const struct graph *graph, bool *ret_is_on_device);
/* Makes *ret, which holds nothing, a copy of *from in the other memory. */
struct status *test_device_upload(struct device *device, const struct tensor *from,
                                  struct tensor *ret) MUST_USE;
struct status *test_device_download(struct device *device, const struct tensor *from,
                                    struct tensor *ret) MUST_USE;
/* Waits until the device has done what was enqueued. Errors: its failure. */
struct status *test_device_wait(struct device *device) MUST_USE;

#endif
