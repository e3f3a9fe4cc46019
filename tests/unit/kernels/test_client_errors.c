/* Checks that what a client does wrong is never INTERNAL, which is for broken invariants of ours:
 * each row is a graph that a client can send, the code of the failure, and a part of its message.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_test.h"

/* A sparse tensor [2,2] whose only entry is at [5,0]. */
#define SPARSE_OUTSIDE                                      \
    "at = Const() {dtype=int64, value=int64[1,2]{5, 0}}\n"  \
    "value = Const() {dtype=int64, value=int64[1]{7}}\n"    \
    "shape = Const() {dtype=int64, value=int64[2]{2, 2}}\n" \
    "second = Const() {dtype=int32, value=int32[1]{1}}\n"

static const struct {
    const char *graph;
    enum status_code code;
    const char *words;
} rows[] = {
    {SPARSE_OUTSIDE "r = SparseReduceSum(at, value, shape, second) {T=int64}\n",
     STATUS_INVALID_ARGUMENT, "outside of bounds"},
    {SPARSE_OUTSIDE "r = EditDistance(at, value, shape, at, value, shape) {T=int64}\n",
     STATUS_INVALID_ARGUMENT, "outside of the buffer"},
    {SPARSE_OUTSIDE "r = SetSize(at, value, shape) {T=int64, validate_indices=false}\n",
     STATUS_INVALID_ARGUMENT, ""},
    {"at = Const() {dtype=int64, value=int64[1,2]{0, 0}}\n"
     "value = Const() {dtype=float, value=float[1]{1}}\n"
     "large = Const() {dtype=int64, value=int64[2]{4611686018427387904, 4611686018427387904}}\n"
     "r = SparseConcat(at, at, value, value, large, large) {N=2, T=float, concat_dim=0}\n",
     STATUS_INVALID_ARGUMENT, "Encountered overflow from large input shape"},
    {"size = Const() {dtype=int32, value=int32[]{5}}\n"
     "s = StackV2(size) {elem_type=float}\n"
     "r = StackPopV2(s) {elem_type=float}\n",
     STATUS_INVALID_ARGUMENT, "is empty when calling Pop()"},
    {"size = Const() {dtype=int32, value=int32[]{5}}\n"
     "x = Const() {dtype=float, value=float[]{5}}\n"
     "s = StackV2(size) {elem_type=float}\n"
     "push = StackPushV2(s, x) {T=float}\n"
     "r = StackPopV2(s, ^push) {elem_type=int32}\n",
     STATUS_INVALID_ARGUMENT, "does not match declared output type"},
    {"x = Const() {dtype=float, value=float[]{5}}\n"
     "put = Stage(x) {dtypes=[float], shared_name=\"s\"}\n"
     "r = Unstage(^put) {dtypes=[int32], shared_name=\"s\"}\n",
     STATUS_INVALID_ARGUMENT, "does not match declared output type"},
    {"key = Const() {dtype=int32, value=int32[]{5}}\n"
     "empty = EmptyTensorMap()\n"
     "map = TensorMapInsert(empty, key, key) {key_dtype=int32, value_dtype=int32}\n"
     "r = TensorMapLookup(map, key) {key_dtype=int32, value_dtype=float}\n",
     STATUS_INVALID_ARGUMENT, "does not match declared output type"},
    {"one = Const() {dtype=float, value=float[]{1}}\n"
     "delta = Const() {dtype=float, value=float[2]{1, 2}}\n"
     "v = VarHandleOp() {dtype=float, shape=[2], shared_name=\"nobody made it\"}\n"
     "step = ResourceApplyGradientDescent(v, one, delta) {T=float}\n"
     "r = ReadVariableOp(v, ^step) {dtype=float}\n",
     STATUS_FAILED_PRECONDITION, "Invalid variable reference."},
};

static void what_a_client_does_wrong_is_not_internal(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        kernel_test_fails(rows[i].graph, "r", rows[i].code, rows[i].words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_client_does_wrong_is_not_internal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
