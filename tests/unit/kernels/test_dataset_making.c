/* Makes a dataset of each kind with one argument at a time that is wrong, and checks that a
 * half-made dataset or iterator is freed without harm. Run it under AddressSanitizer, too.
 *
 * A row is a node of the kind with good arguments. The name of an argument tells what it is (v_ a
 * dataset, i_ an int64, b_ a bool, s_ a string, x_ a tensor); each is replaced in turn by every
 * wrong one of the same type. An allocator that fails at its first, second, … request does the
 * same for what the iterators allocate, and so do calls of functions. A function of this file has
 * its signature in its name: f_ARGS_RETS, a letter for each type. It returns its last arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "common/io/file_root.h"
#include "tests/tools/test_host.h"

static const char prelude[] =
    "i_one = Const() {dtype=int64, value=int64[]{1}}\n"
    "i_two = Const() {dtype=int64, value=int64[]{2}}\n"
    "i_zero = Const() {dtype=int64, value=int64[]{0}}\n"
    "i_five = Const() {dtype=int64, value=int64[]{5}}\n"
    "i_minus = Const() {dtype=int64, value=int64[]{-7}}\n"
    "i_least = Const() {dtype=int64, value=int64[]{-9223372036854775808}}\n"
    "i_vector = Const() {dtype=int64, value=int64[2]{1, 2}}\n"
    "i_square = Const() {dtype=int64, value=int64[2]{2, 2}}\n"
    "i_empty = Const() {dtype=int64, value=int64[0]{}}\n"
    "i_matrix = Const() {dtype=int64, value=int64[1,1]{0}}\n"
    "i_row = Const() {dtype=int64, value=int64[1]{2}}\n"
    "n_two = Const() {dtype=int32, value=int32[]{2}}\n"
    "n_vector = Const() {dtype=int32, value=int32[2]{1, 2}}\n"
    "r_half = Const() {dtype=float, value=float[]{0.5}}\n"
    "r_vector = Const() {dtype=float, value=float[2]{0.5, 2}}\n"
    "i_shape = Const() {dtype=int64, value=int64[0]{}}\n"
    "i_indices = Const() {dtype=int64, value=int64[2,2]{0, 0, 1, 1}}\n"
    "i_unsorted = Const() {dtype=int64, value=int64[2,2]{1, 1, 0, 0}}\n"
    "b_yes = Const() {dtype=bool, value=bool[]{true}}\n"
    "b_vector = Const() {dtype=bool, value=bool[2]{true, false}}\n"
    "s_none = Const() {dtype=string, value=string[]{\"\"}}\n"
    "s_text = Const() {dtype=string, value=string[]{\"GZIP\"}}\n"
    "s_comma = Const() {dtype=string, value=string[]{\",\"}}\n"
    "s_missing = Const() {dtype=string, value=string[]{\"/nonexistent/file\"}}\n"
    "s_vector = Const() {dtype=string, value=string[2]{\"a\", \"b\"}}\n"
    "s_matrix = Const() {dtype=string, value=string[1,1]{\"a\"}}\n"
    "x_matrix = Const() {dtype=int64, value=int64[3,2]{1, 2, 3, 4, 5, 6}}\n"
    "shape0 = Const() {dtype=int32, value=int32[0]{}}\n"
    "v_list = EmptyTensorList(shape0, limit) {element_dtype=float, shape_type=int32}\n"
    "limit = Const() {dtype=int32, value=int32[]{-1}}\n"
    "v_range = RangeDataset(i_zero, i_five, i_one) {output_types=[int64], output_shapes=[[]]}\n"
    "v_rows = TensorSliceDataset(x_matrix) {Toutput_types=[int64], output_shapes=[[2]]}\n"
    "v_uneven = ConcatenateDataset(v_range, v_rows) {output_types=[int64], "
    "output_shapes=[<unknown>]}\n"
    "v_texts = TensorSliceDataset(s_vector) {Toutput_types=[string], output_shapes=[[]]}\n"
    "v_pair = ZipDataset(v_range, v_rows) {N=2, output_types=[int64, int64], "
    "output_shapes=[[], [2]]}\n";

#define ONE "output_types=[int64], output_shapes=[<unknown>]"

static const char *const rows[] = {
    "TensorDataset(i_one) {Toutput_types=[int64], output_shapes=[[]]}",
    "TensorSliceDataset(x_matrix) {Toutput_types=[int64], output_shapes=[[2]]}",
    "SparseTensorSliceDataset(i_indices, i_vector, i_square) {Tvalues=int64}",
    "RangeDataset(i_zero, i_five, i_one) {" ONE "}",
    "TakeDataset(v_range, i_two) {" ONE "}",
    "SkipDataset(v_range, i_two) {" ONE "}",
    "ShardDataset(v_range, i_two, i_one) {" ONE "}",
    "RepeatDataset(v_range, i_two) {" ONE "}",
    "ZipDataset(v_range, v_rows) {N=2, output_types=[int64, int64], output_shapes=[[], [2]]}",
    "ConcatenateDataset(v_range, v_rows) {" ONE "}",
    "DirectedInterleaveDataset(v_range, v_range, v_rows) {N=2, " ONE "}",
    "BatchDataset(v_range, i_two) {" ONE "}",
    "BatchDatasetV2(v_range, i_two, b_yes) {" ONE "}",
    "ParallelBatchDataset(v_range, i_two, i_one, b_yes) {" ONE "}",
    "PaddedBatchDataset(v_range, i_two, i_shape, i_zero) {N=1, Toutput_types=[int64], "
    "output_shapes=[<unknown>]}",
    "PaddedBatchDatasetV2(v_range, i_two, i_shape, i_zero, b_yes) {N=1, Toutput_types=[int64], "
    "output_shapes=[<unknown>]}",
    "UnbatchDataset(v_rows) {" ONE "}",
    "RebatchDatasetV2(v_rows, i_vector, b_yes) {" ONE "}",
    "WindowDataset(v_range, i_two, i_one, i_one, b_yes) {output_types=[variant], "
    "output_shapes=[[]]}",
    "SlidingWindowDataset(v_range, i_two, i_one, i_one) {" ONE "}",
    "ShuffleDataset(v_range, i_two, i_one, i_two) {" ONE "}",
    "ShuffleAndRepeatDataset(v_range, i_two, i_one, i_two, i_two) {" ONE "}",
    "RandomDataset(i_one, i_two) {" ONE "}",
    "PrefetchDataset(v_range, i_two) {" ONE "}",
    "CacheDataset(v_range, s_none) {" ONE "}",
    "UniqueDataset(v_range) {" ONE "}",
    "IgnoreErrorsDataset(v_range) {" ONE "}",
    "AssertCardinalityDataset(v_range, i_five) {" ONE "}",
    "TextLineDataset(s_missing, s_none, i_zero)",
    "TFRecordDataset(s_missing, s_none, i_zero)",
    "TFRecordDatasetV2(s_missing, s_none, i_zero, i_empty)",
    "FixedLengthRecordDataset(s_missing, i_zero, i_one, i_zero, i_zero)",
    "FixedLengthRecordDatasetV2(s_missing, i_zero, i_one, i_zero, i_zero, s_none)",
    "CSVDataset(s_missing, s_none, i_five, b_yes, s_comma, b_yes, s_none, i_empty, i_empty) {" ONE
    "}",
    "ListDataset(i_one, i_two) {Tinput_types=[int64, int64], " ONE "}",
    "ParseExampleDataset(v_texts, i_one, i_one) {sparse_keys=[], dense_keys=[\"a\"], "
    "sparse_types=[], Tdense=[int64], dense_shapes=[[]], " ONE "}",
    "ChooseFastestDataset(v_range, v_range) {N=2, num_experiments=1, " ONE "}",
    "OptionsDataset(v_range) {serialized_options=\"\", " ONE "}",
    "AutoShardDataset(v_range, i_two, i_one) {" ONE "}",
    "DenseToSparseBatchDataset(v_rows, i_two, i_row) {output_types=[variant], "
    "output_shapes=[<unknown>]}",
    "SamplingDataset(v_range, r_half, i_one, i_two) {" ONE "}",
    "MatchingFilesDataset(s_vector)",
    "ParseExampleDatasetV2(v_texts, i_one, i_one) {sparse_keys=[], dense_keys=[\"a\"], "
    "sparse_types=[], Tdense=[int64], dense_shapes=[[]], ragged_keys=[], ragged_value_types=[], "
    "ragged_split_types=[], " ONE "}",
    "ModelDataset(v_range) {" ONE "}",
    "MaxIntraOpParallelismDataset(v_range, i_two) {" ONE "}",
    "PrivateThreadPoolDataset(v_range, i_two) {" ONE "}",
    /* functions */
    "MapDataset(v_range) {f=&f_i_i, Targuments=[], " ONE "}",
    "MapDataset(v_range, i_vector) {f=&f_ii_i, Targuments=[int64], " ONE "}",
    "ParallelMapDataset(v_range, n_two) {f=&f_i_i, Targuments=[], " ONE "}",
    "ParallelMapDatasetV2(v_range, i_two) {f=&f_i_i, Targuments=[], " ONE "}",
    "MapAndBatchDataset(v_range, i_two, i_two, b_yes) {f=&f_i_i, Targuments=[], " ONE "}",
    "FilterDataset(v_range, b_yes) {predicate=&f_ib_b, Targuments=[bool], " ONE "}",
    "ParallelFilterDataset(v_range, b_yes, i_two) {predicate=&f_ib_b, Targuments=[bool], " ONE "}",
    "TakeWhileDataset(v_range, b_yes) {predicate=&f_ib_b, Targuments=[bool], " ONE "}",
    "FlatMapDataset(v_range, v_rows) {f=&f_iv_v, Targuments=[variant], " ONE "}",
    "InterleaveDataset(v_range, v_rows, i_two, i_one) {f=&f_iv_v, Targuments=[variant], " ONE "}",
    "ParallelInterleaveDatasetV2(v_range, v_rows, i_two, i_one, i_two) {f=&f_iv_v, "
    "Targuments=[variant], " ONE "}",
    "ParallelInterleaveDatasetV4(v_range, v_rows, i_two, i_one, i_zero, i_zero, i_two) {f=&f_iv_v, "
    "Targuments=[variant], " ONE "}",
    "LegacyParallelInterleaveDatasetV2(v_range, v_rows, i_two, i_one, i_one, i_one) {f=&f_iv_v, "
    "Targuments=[variant], " ONE "}",
    "ScanDataset(v_range, i_zero) {f=&f_ii_ii, Tstate=[int64], Targuments=[], " ONE "}",
    "GroupByWindowDataset(v_range) {key_func=&f_i_i, reduce_func=&f_iv_v, "
    "window_size_func=&f_i_i, Tkey_func_other_arguments=[], Treduce_func_other_arguments=[], "
    "Twindow_size_func_other_arguments=[], " ONE "}",
    "GroupByReducerDataset(v_range) {key_func=&f_i_i, init_func=&f_i_i, reduce_func=&f_ii_i, "
    "finalize_func=&f_i_i, Tkey_func_other_arguments=[], Tinit_func_other_arguments=[], "
    "Treduce_func_other_arguments=[], Tfinalize_func_other_arguments=[], " ONE "}",
};

/* ---- an allocator that fails once ---- */

static int n_until_failure; /* below 0: never, or it has failed */

static struct buffer *alloc_or_fail(struct allocator *allocator, size_t size) {
    if (n_until_failure-- == 0)
        return NULL;
    return buffer_alloc(allocator_host(), size);
}
static struct allocator failing = {.name = "failing", .alloc = alloc_or_fail};

/* ---- functions ---- */

enum { MAX_ARGS = 4 };

struct fake_function {
    struct function base;
    uint8_t arg_types[MAX_ARGS], ret_types[MAX_ARGS];
};

static void fake_free(struct object *object) { free(object); }
static const struct object_type fake_type = {.name = "fake function", .free = fake_free};

/* Reads letters up to '_' or the end. */
static const char *read_types(const char *letters, uint8_t *types, int *n) {
    for (*n = 0; *letters && *letters != '_'; letters++)
        types[(*n)++] = *letters == 'i' ? DT_INT64 : *letters == 'b' ? DT_BOOL : DT_VARIANT;
    return letters + (*letters == '_');
}

static struct status *find_function(struct kernel_ctx *ctx, const char *attr,
                                    struct function **ret) {
    const struct attr_value *value = node_attr(ctx->instance->node, attr);
    assert_non_null(value);
    struct fake_function *fake = xcalloc(1, sizeof(*fake));
    object_init(&fake->base.object, &fake_type);
    fake->base.host = ctx->host;
    fake->base.name = "fake";
    fake->base.arg_types = fake->arg_types;
    fake->base.ret_types = fake->ret_types;
    const char *letters = read_types(value->func->name + 2, fake->arg_types, &fake->base.n_args);
    read_types(letters, fake->ret_types, &fake->base.n_rets);
    *ret = &fake->base;
    return NULL;
}

static struct status *fresh_function(struct function *function, struct object **scope,
                                     struct function **ret) {
    object_ref(&function->object);
    *ret = function;
    return NULL;
}

static void no_call(struct function_call *call) {}
static void no_cancel(struct function_call *call, struct status *why) {}

static enum kernel_result call_function(struct function_call *call) {
    int n = call->function->n_rets;
    if (n_until_failure-- == 0) {
        call->status = status_exhausted("The function fails");
        return KERNEL_DONE;
    }
    for (int i = 0; i < call->n_args; i++)
        if (i >= call->function->n_args || call->args[i].dtype != call->function->arg_types[i]) {
            call->status = status_invalid("Argument %d has another type", i);
            return KERNEL_DONE;
        }
    for (int i = 0; i < n; i++)
        tensor_copy(&call->rets[i], &call->args[call->n_args - n + i]);
    return KERNEL_DONE;
}

static struct test_host *host_with_functions(void) {
    struct test_host *host = test_host_new(0);
    host->host.function_find = find_function;
    host->host.function_fresh = fresh_function;
    host->host.function_prepare = no_call;
    host->host.function_call = call_function;
    host->host.function_cancel = no_cancel;
    host->host.function_finish = no_call;
    return host;
}

/* ---- one graph ---- */

enum { MAX_TEXT = 8192 };

/* Makes dataset `d` of the text and pulls its only element, which hardly ever is one. */
static bool make(const char *dataset_text, bool is_expected) {
    char text[MAX_TEXT];
    struct tensor value = TENSOR_INIT, element = TENSOR_INIT;
    struct test_graph graph;
    struct test_host *host = host_with_functions();
    const char *fetches[] = {"d", "e"};
    snprintf(text, sizeof(text),
             "%sd = %s\none = TakeDataset(d, i_one) {" ONE "}\n"
             "e = DatasetToSingleElement(one) {" ONE "}\n",
             prelude, dataset_text);
    test_graph_init(&graph, host);
    struct status *st = graph_parse(text, &graph.graph);
    if (!st)
        st = test_graph_prepare(&graph);
    if (!st)
        st = test_graph_run(&graph, NULL, 0, &fetches[0], 1, NULL, 0, &value);
    bool is_made = !st;
    bool has_failed = true;
    for (int k = -1; is_made && has_failed; k++) {
        n_until_failure = k;
        struct status *failure = test_graph_run(&graph, NULL, 0, &fetches[1], 1, NULL, 0, &element);
        has_failed = k < 0 || n_until_failure < 0;
        status_unref(failure);
        tensor_clear(&element);
        for (int i = 0; i < graph.n_instances; i++) /* from the second run on */
            graph.instances[i].allocator = &failing;
    }
    if (st && (status_code(st) == STATUS_INTERNAL || is_expected))
        fail_msg("%s: %s", dataset_text, status_message(st));
    status_unref(st);
    tensor_clear(&value);
    tensor_clear(&element);
    test_graph_fini(&graph);
    test_host_free(host);
    return is_made;
}

/* The names in the prelude of the same type as `name`, one by one; NULL at the end. */
static const char *next_of_type(const char *name, const char *after, char out[32]) {
    const char *at = after ? strstr(prelude, after) : prelude;
    if (after)
        at = strchr(at, '\n') + 1;
    for (; *at; at = strchr(at, '\n') + 1) {
        size_t len = strcspn(at, " ");
        char type = name[0] == 'x' ? 'i' : name[0], line_type = at[0] == 'x' ? 'i' : at[0];
        if (at[1] != '_' || line_type != type || len >= 30)
            continue;
        memcpy(out, at, len);
        memcpy(out + len, " ", 2);
        return out;
    }
    return NULL;
}

/* ---- tests ---- */

static void each_kind_is_made_of_good_arguments(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!make(rows[i], true))
            fail_msg("not made: %s", rows[i]);
}

static void replace_argument(const char *row, const char *argument, size_t len) {
    char text[1024], name[32], other[32];
    const char *after = NULL;
    memcpy(name, argument, len);
    name[len] = 0;
    while ((after = next_of_type(name, after, other))) {
        snprintf(text, sizeof(text), "%.*s%.*s%s", (int)(argument - row), row,
                 (int)strcspn(other, " "), other, argument + len);
        make(text, false);
    }
}

static void wrong_arguments_leave_nothing_half_made(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *at = strchr(rows[i], '(') + 1, *end = strchr(rows[i], ')');
        for (; at < end; at += strcspn(at, ",)") + 2)
            replace_argument(rows[i], at, strcspn(at, ",)"));
    }
}

static int set_up(void **state) {
    file_roots_set_whole();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_made_of_good_arguments),
        cmocka_unit_test(wrong_arguments_leave_nothing_half_made),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
