/* Few kernels of our own for the tests of passes (test_kernels.c). */
#ifndef MILLRACE_TESTS_UNIT_MASTER_TEST_KERNELS_H
#define MILLRACE_TESTS_UNIT_MASTER_TEST_KERNELS_H

int test_kernels_n_calls(void); /* of kernels that count: all but StringJoin */
/* rows for a device type GPU: AddV2, Const, VariableV2 and Assign only */
void test_kernels_add_gpu(void);

#endif
