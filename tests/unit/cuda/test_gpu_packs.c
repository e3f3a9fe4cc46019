/* Variant packs are made once for their addresses, and the least recently used one makes room. The
 * library is one of the test's, which counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/dnn_packs.h"
#include "kernels/cuda/dnn_plan.h"

enum { FAILED = 5000 };

struct cudnnBackendDescriptor {
    bool is_final;
    const void *operands[DNN_OPERANDS], *workspace;
};

static int n_alive, n_calls, failing_call;

static bool fails(void) { return ++n_calls == failing_call; }

static int create(int type, cudnnBackendDescriptor_t *ret) {
    assert_int_equal(type, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    if (fails())
        return FAILED;
    *ret = calloc(1, sizeof **ret);
    assert_non_null(*ret);
    n_alive++;
    return 0;
}

static int set(cudnnBackendDescriptor_t pack, int name, int type, int64_t n, const void *elements) {
    assert_false(pack->is_final);
    if (fails())
        return FAILED;
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
        memcpy(pack->operands, elements, (size_t)n * sizeof(void *));
    else if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
        memcpy(&pack->workspace, elements, sizeof(void *));
    return 0;
}

static int finalize(cudnnBackendDescriptor_t pack) {
    if (fails())
        return FAILED;
    pack->is_final = true;
    return 0;
}

static int destroy(cudnnBackendDescriptor_t pack) {
    free(pack);
    n_alive--;
    return 0;
}

static struct dnn_packs packs;

static int begin(void **state) {
    dnn_api = (struct dnn_api){.cudnnBackendCreateDescriptor = create,
                               .cudnnBackendSetAttribute = set,
                               .cudnnBackendFinalize = finalize,
                               .cudnnBackendDestroyDescriptor = destroy};
    n_calls = failing_call = 0;
    return 0;
}

static int end(void **state) {
    dnn_packs_clear(&packs);
    return n_alive == 0 ? 0 : -1;
}

static const void *at(uintptr_t number) { return (const void *)(number << 8); }

static struct dnn_addresses addresses(uintptr_t in, uintptr_t filter, uintptr_t out,
                                      uintptr_t workspace) {
    return (struct dnn_addresses){{at(in), at(filter), at(out)}, at(workspace)};
}

static cudnnBackendDescriptor_t get(struct dnn_addresses wanted) {
    cudnnBackendDescriptor_t pack = NULL;
    assert_null(dnn_pack_get(&packs, &wanted, &pack));
    assert_true(pack->is_final);
    assert_memory_equal(pack->operands, wanted.operands, sizeof wanted.operands);
    assert_ptr_equal(pack->workspace, wanted.workspace);
    return pack;
}

static void test_equal_addresses_share_a_pack(void **state) {
    cudnnBackendDescriptor_t first = get(addresses(1, 2, 3, 0));
    int n = n_calls;
    assert_ptr_equal(get(addresses(1, 2, 3, 0)), first);
    assert_int_equal(n_calls, n);
}

static void test_each_address_counts(void **state) {
    get(addresses(1, 2, 3, 4));
    get(addresses(9, 2, 3, 4));
    get(addresses(1, 9, 3, 4));
    get(addresses(1, 2, 9, 4));
    get(addresses(1, 2, 3, 9));
    assert_int_equal(n_alive, 5);
}

/* A step that uses more addresses than are kept is served, too. */
static void test_the_number_of_packs_is_limited(void **state) {
    enum { N = DNN_PACK_SETS * DNN_PACK_WAYS };
    for (uintptr_t i = 1; i <= 2 * N; i++)
        get(addresses(i, 2, 3, 0));
    assert_in_range(n_alive, N / 2, N);
}

static void test_a_pack_in_use_stays(void **state) {
    cudnnBackendDescriptor_t kept = get(addresses(1, 2, 3, 0));
    for (uintptr_t i = 2; i < 4 * DNN_PACK_SETS * DNN_PACK_WAYS; i++) {
        get(addresses(i, 2, 3, 0));
        int n = n_calls;
        assert_ptr_equal(get(addresses(1, 2, 3, 0)), kept);
        assert_int_equal(n_calls, n);
    }
}

static void test_a_failure_keeps_nothing(void **state) {
    enum { CALLS_OF_A_PACK = 5 };
    struct dnn_addresses wanted = addresses(1, 2, 3, 0);
    for (int nth = 1; nth <= CALLS_OF_A_PACK; nth++) {
        cudnnBackendDescriptor_t pack = NULL;
        n_calls = 0;
        failing_call = nth;
        struct status *st = dnn_pack_get(&packs, &wanted, &pack);
        assert_int_equal(status_code(st), STATUS_INTERNAL);
        assert_non_null(strstr(status_message(st), "cuDNN status 5000"));
        status_unref(st);
        assert_null(pack);
        assert_int_equal(n_alive, 0);
    }
    failing_call = 0;
    get(wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_equal_addresses_share_a_pack, begin, end),
        cmocka_unit_test_setup_teardown(test_each_address_counts, begin, end),
        cmocka_unit_test_setup_teardown(test_the_number_of_packs_is_limited, begin, end),
        cmocka_unit_test_setup_teardown(test_a_pack_in_use_stays, begin, end),
        cmocka_unit_test_setup_teardown(test_a_failure_keeps_nothing, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
