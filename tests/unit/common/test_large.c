/* Checks sizes beyond 2^31 and 2^32 bytes. The content of a TensorProto is in memory that is mapped
 * but never touched: it becomes a view, its head describes it, and a graph refuses it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/graph/graph_proto.h"
#include "common/tensor/npy.h"
#include "common/tensor/tensor_proto.h"

static const int64_t sizes[] = {(1ll << 31) - 1, 1ll << 31, (1ll << 31) + 7, (1ll << 32) + 5};

/* A message in memory that takes no pages but the first and the last. */
struct message {
    char *data;
    size_t len;
};

/* `head`, then n zeros, the last of which is 7. */
static struct message message_new(const struct str *head, int64_t n) {
    struct message message = {.len = head->len + (size_t)n};
    message.data = mmap(NULL, message.len, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(message.data != MAP_FAILED);
    memcpy(message.data, head->data, head->len);
    message.data[message.len - 1] = 7;
    return message;
}

static void assert_code(struct status *st, enum status_code code, const char *words) {
    if (status_code(st) != code || !strstr(status_message(st), words))
        fail_msg("%s: %s", status_code_name(status_code(st)), status_message(st));
    status_unref(st);
}

static void message_release(void *arg) {
    struct message *message = arg;
    munmap(message->data, message->len);
}

/* dtype, shape, and the tag and length of tensor_content, which follows. */
static void add_head(struct str *out, int64_t n) {
    proto_add_int(out, 1, DT_UINT8);
    proto_add_shape(out, 2, (struct shape){1, &n});
    proto_add_tag(out, 4, 2);
    proto_add_varint(out, (uint64_t)n);
}

static void large_content_becomes_a_view(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        int64_t n = sizes[i];
        struct str head = STR_INIT, again = STR_INIT;
        add_head(&head, n);
        struct message message = message_new(&head, n);
        struct buffer *owner = buffer_wrap(message.data, message.len, message_release, &message);
        struct tensor t = TENSOR_INIT, last = TENSOR_INIT;
        assert_null(tensor_from_proto((struct span){message.data, message.len}, owner,
                                      allocator_host(), &t));
        buffer_unref(owner);
        assert_true(t.n_elements == n && tensor_size_bytes(&t) == (size_t)n);
        assert_ptr_equal(tensor_cdata(&t), message.data + head.len);
        tensor_proto_head(&t, &again);
        assert_true(again.len == head.len && memcmp(again.data, head.data, head.len) == 0);
        assert_true(tensor_proto_size(&t) == head.len + (size_t)n);
        assert_null(tensor_slice_rows(&t, n - 1, n, &last));
        assert_int_equal(*(const uint8_t *)tensor_cdata(&last), 7);
        str_clear(&again);
        assert_null(npy_head(&t, &again));
        char shape[64];
        snprintf(shape, sizeof(shape), "'shape': (%lld,)", (long long)n);
        assert_non_null(strstr(again.data + 10, shape));
        tensor_clear(&last);
        tensor_clear(&t);
        str_fini(&head);
        str_fini(&again);
    }
}

/* A stranger's length is compared with what there is. */
static void a_length_beyond_the_message_is_refused(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct str head = STR_INIT;
        struct tensor t = TENSOR_INIT;
        add_head(&head, sizes[i]);
        assert_code(
            tensor_from_proto((struct span){head.data, head.len}, NULL, allocator_host(), &t),
            STATUS_INVALID_ARGUMENT, "");
        str_fini(&head);
    }
}

/* Writes a GraphDef up to the content: node 1 { name 1, op 2, attr 5 { key 1, value 2 { tensor 8
 * { … } } } }. */
static void add_graph_head(struct str *out, int64_t n) {
    struct str tensor = STR_INIT, node = STR_INIT;
    uint64_t rest = (uint64_t)n;
    add_head(&tensor, n);
    uint64_t tensor_len = tensor.len + rest,
             value_len = 1 + proto_varint_size(tensor_len) + tensor_len,
             entry_len = 7 + 1 + proto_varint_size(value_len) + value_len;
    proto_add_bytes(&node, 1, "c", 1);
    proto_add_bytes(&node, 2, "Const", 5);
    uint64_t node_len = node.len + 1 + proto_varint_size(entry_len) + entry_len;
    proto_add_tag(out, 1, 2);
    proto_add_varint(out, node_len);
    str_add_bytes(out, node.data, node.len);
    proto_add_tag(out, 5, 2);
    proto_add_varint(out, entry_len);
    proto_add_bytes(out, 1, "value", 5);
    proto_add_tag(out, 2, 2);
    proto_add_varint(out, value_len);
    proto_add_tag(out, 8, 2);
    proto_add_varint(out, tensor_len);
    str_add_bytes(out, tensor.data, tensor.len);
    str_fini(&tensor);
    str_fini(&node);
}

static void a_constant_beyond_the_limit_is_refused_by_its_node(void **state) {
    for (size_t i = 2; i < ARRAY_LEN(sizes); i++) {
        struct str head = STR_INIT;
        struct graph graph;
        struct graph_limits limits;
        add_graph_head(&head, sizes[i]);
        struct message message = message_new(&head, sizes[i]);
        graph_init(&graph);
        graph_limits_default(&limits);
        assert_code(graph_add_graphdef(&graph, (struct span){message.data, message.len}, &limits),
                    STATUS_RESOURCE_EXHAUSTED, "{{node c}}");
        assert_int_equal(graph.n_live, 0);
        graph_fini(&graph);
        message_release(&message);
        str_fini(&head);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_content_becomes_a_view),
        cmocka_unit_test(a_length_beyond_the_message_is_refused),
        cmocka_unit_test(a_constant_beyond_the_limit_is_refused_by_its_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
