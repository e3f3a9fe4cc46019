/* Watches how a kernel asks whether its result is still wanted (common/base/pool_cancel.h), and
 * makes it unwanted. Times are of the kernel's thread on its core, so the machine's load does not
 * matter. */
#ifndef MILLRACE_TESTS_TOOLS_TEST_POLLS_H
#define MILLRACE_TESTS_TOOLS_TEST_POLLS_H

#include "kernels/kernel.h"

/* Reads the environment. GRAPH_EVAL_POLLS=OP watches the kernels of an op ("*": of every op), and
 * writes for each execution
 *   polls OP asked N longest NS all NS
 * to stderr: how often it asked, the longest time between two questions, begin or end, and the time
 * of the whole. With GRAPH_EVAL_CANCEL=1 the result becomes unwanted with the first question. */
void test_polls_init(void);
/* Around an execution, on its thread. */
void test_polls_begin(const struct kernel_instance *instance);
void test_polls_end(struct kernel_ctx *ctx, enum kernel_result result);
/* A kernel asks its host; it is told whether the result is unwanted. */
bool test_polls_ask(void);

#endif
