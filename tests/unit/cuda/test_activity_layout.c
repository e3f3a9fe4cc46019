/* What is read of CUPTI's records is where it is in CUDA 12.0 to 13.0, and in NVIDIA's header where
 * the build has found one. */
#ifdef HAS_CUPTI_HEADER
#include <cuda.h>
#include <cupti.h>
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cuda/activity_records.h"

static void test_fields_have_their_places(void **state) {
    (void)state;
    assert_int_equal(offsetof(struct cupti_kernel, start_ns), 16);
    assert_int_equal(offsetof(struct cupti_kernel, device), 40);
    assert_int_equal(offsetof(struct cupti_kernel, correlation), 92);
    assert_int_equal(offsetof(struct cupti_kernel, name), 104);
    assert_int_equal(offsetof(struct cupti_kernel, graph_node), 144);
    assert_int_equal(offsetof(struct cupti_memcpy, correlation), 44);
    assert_int_equal(offsetof(struct cupti_memcpy, graph_node), 64);
    assert_int_equal(offsetof(struct cupti_memcpy_peer, correlation), 60);
    assert_int_equal(offsetof(struct cupti_memcpy_peer, graph_node), 72);
    assert_int_equal(offsetof(struct cupti_memset, correlation), 44);
    assert_int_equal(offsetof(struct cupti_memset, graph_node), 64);
    assert_int_equal(offsetof(struct cupti_external, mark), 8);
    assert_int_equal(offsetof(struct cupti_external, correlation), 16);
}

#if defined(HAS_CUPTI_HEADER) && CUPTI_API_VERSION >= 28 /* CUDA 12.9 */

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 their_kernel;
#else
typedef CUpti_ActivityKernel9 their_kernel;
#endif

#define SAME(ours, field, theirs, their_field) \
    assert_int_equal(offsetof(struct ours, field), offsetof(theirs, their_field))
#define SAME_TIMES(ours, theirs)                        \
    do {                                                \
        SAME(ours, kind, theirs, kind);                 \
        SAME(ours, start_ns, theirs, start);            \
        SAME(ours, end_ns, theirs, end);                \
        SAME(ours, device, theirs, deviceId);           \
        SAME(ours, context, theirs, contextId);         \
        SAME(ours, stream, theirs, streamId);           \
        SAME(ours, correlation, theirs, correlationId); \
        SAME(ours, graph_node, theirs, graphNodeId);    \
    } while (0)

static void test_records_are_those_of_the_header(void **state) {
    (void)state;
    SAME_TIMES(cupti_kernel, their_kernel);
    SAME(cupti_kernel, name, their_kernel, name);
    SAME_TIMES(cupti_memcpy, CUpti_ActivityMemcpy6);
    SAME_TIMES(cupti_memcpy_peer, CUpti_ActivityMemcpyPtoP4);
    SAME_TIMES(cupti_memset, CUpti_ActivityMemset4);
    SAME(cupti_external, external_kind, CUpti_ActivityExternalCorrelation, externalKind);
    SAME(cupti_external, mark, CUpti_ActivityExternalCorrelation, externalId);
    SAME(cupti_external, correlation, CUpti_ActivityExternalCorrelation, correlationId);
}

static void test_numbers_are_those_of_the_header(void **state) {
    (void)state;
    assert_int_equal(CUPTI_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
    assert_int_equal(CUPTI_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
    assert_int_equal(CUPTI_KIND_DRIVER, CUPTI_ACTIVITY_KIND_DRIVER);
    assert_int_equal(CUPTI_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_RUNTIME);
    assert_int_equal(CUPTI_KIND_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    assert_int_equal(CUPTI_KIND_MEMCPY_PEER, CUPTI_ACTIVITY_KIND_MEMCPY2);
    assert_int_equal(CUPTI_KIND_EXTERNAL, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    assert_int_equal(CUPTI_EXTERNAL_CUSTOM, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    assert_int_equal(CUPTI_INSUFFICIENT_PRIVILEGES, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    assert_int_equal(CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    assert_int_equal(CUPTI_RECORD_ALIGNMENT, ACTIVITY_RECORD_ALIGNMENT);
}

#else

static void test_records_are_those_of_the_header(void **state) {
    (void)state;
    skip(); /* the build has found no header, or an older one */
}
#define test_numbers_are_those_of_the_header test_records_are_those_of_the_header

#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields_have_their_places),
                                       cmocka_unit_test(test_records_are_those_of_the_header),
                                       cmocka_unit_test(test_numbers_are_those_of_the_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
