/* What a debugger gets: events of tensors in chunks, and gates that servers open and close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/host/debug/debug_event.h"
#include "kernels/host/debug/debug_gates.h"

/* ---- events ---- */

struct seen {
    int n;
    size_t max_bytes, n_content_bytes;
    struct str metadata; /* of all events */
};

/* The bytes of the field that a path of field numbers leads to. */
static struct span find(struct span bytes, const int *path) {
    for (; *path; path++) {
        struct proto_field field = {0};
        while (proto_next(&bytes, &field) > 0 && field.number != (uint32_t)*path)
            continue;
        assert_int_equal(field.number, *path);
        bytes = field.bytes;
    }
    return bytes;
}

static struct status *note(void *arg, struct span event) {
    static const int content[] = {5, 1, 8, 0}, metadata[] = {5, 1, 9, 1, 2, 0};
    struct seen *seen = arg;
    struct span tensor = find(event, content), text = find(event, metadata);
    struct proto_field field;
    while (proto_next(&tensor, &field) > 0)
        if (field.number == 4 || field.number == 8)
            seen->n_content_bytes += field.bytes.len;
    seen->n++;
    seen->max_bytes = MAX(seen->max_bytes, event.len);
    str_add_bytes(&seen->metadata, text.data, text.len);
    return NULL;
}

static struct seen events_of(const struct tensor *t, size_t chunk_bytes) {
    struct seen seen = {0};
    struct debug_tensor tensor = {.device = span_of("/d"),
                                  .name = span_of("n"),
                                  .slot = span_of("0"),
                                  .op = "DebugIdentity",
                                  .t = t,
                                  .dtype = DT_FLOAT};
    assert_null(debug_tensor_events(&tensor, chunk_bytes, note, &seen));
    return seen;
}

static void numbers_are_divided_by_bytes(void **state) {
    const int64_t n = 25;
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &t));
    struct seen whole = events_of(&t, 0), parts = events_of(&t, 40), exact = events_of(&t, 50);
    assert_int_equal(whole.n, 1);
    assert_int_equal(parts.n, 3);
    assert_int_equal(exact.n, 2);
    assert_int_equal(whole.n_content_bytes, 100);
    assert_int_equal(parts.n_content_bytes, 100);
    assert_non_null(strstr(str_text(&parts.metadata), "\"numChunks\":3,\"chunkIndex\":2"));
    str_fini(&whole.metadata);
    str_fini(&parts.metadata);
    str_fini(&exact.metadata);
    tensor_clear(&t);
}

static void strings_are_divided_between_them(void **state) {
    const int64_t n = 5;
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new_zeroed(allocator_host(), DT_STRING, (struct shape){1, &n}, &t));
    for (int i = 0; i < n; i++) {
        static const char text[40];
        struct bytes *bytes = bytes_new(text, i == 2 ? 40 : 4);
        ((struct object **)tensor_data(&t))[i] = &bytes->object;
    }
    struct seen parts = events_of(&t, 20); /* {4, 4}, {40}, {4, 4}: a long one is alone */
    assert_int_equal(parts.n, 3);
    assert_int_equal(parts.n_content_bytes, 56);
    str_fini(&parts.metadata);
    tensor_clear(&t);
}

static void empty_and_uninitialized_tensors_are_one_event(void **state) {
    const int64_t n = 0;
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &t));
    struct seen empty = events_of(&t, 40), missing = events_of(NULL, 40);
    assert_int_equal(empty.n, 1);
    assert_int_equal(missing.n, 1);
    str_fini(&empty.metadata);
    str_fini(&missing.metadata);
    tensor_clear(&t);
}

/* ---- gates ---- */

/* An EventReply with one change. */
static struct str change(int state, const char *node, int slot, const char *op) {
    struct str inner = STR_INIT, out = STR_INIT;
    proto_add_int(&inner, 1, (uint64_t)state);
    proto_add_bytes(&inner, 2, node, strlen(node));
    proto_add_int(&inner, 3, (uint64_t)slot);
    proto_add_bytes(&inner, 4, op, strlen(op));
    proto_add_bytes(&out, 1, inner.data, inner.len);
    str_fini(&inner);
    return out;
}

static void apply(struct debug_gates *gates, int state, const char *node) {
    struct str reply = change(state, node, 1, "DebugIdentity");
    assert_null(debug_gates_apply(gates, "h:1", (struct span){reply.data, reply.len}));
    str_fini(&reply);
}

static void gates_open_and_close_for_one_server(void **state) {
    struct debug_gates gates;
    debug_gates_init(&gates);
    apply(&gates, GATE_READ, "a");
    assert_int_equal(debug_gates_find(&gates, "h:1", "a:1:DebugIdentity"), GATE_READ);
    assert_int_equal(debug_gates_find(&gates, "h:2", "a:1:DebugIdentity"), GATE_CLOSED);
    assert_int_equal(debug_gates_find(&gates, "h:1", "a:0:DebugIdentity"), GATE_CLOSED);
    apply(&gates, GATE_WRITE, "a");
    assert_int_equal(debug_gates_find(&gates, "h:1", "a:1:DebugIdentity"), GATE_WRITE);
    apply(&gates, GATE_CLOSED, "a");
    apply(&gates, GATE_CLOSED, "b");
    assert_int_equal(debug_gates_find(&gates, "h:1", "a:1:DebugIdentity"), GATE_CLOSED);
    debug_gates_fini(&gates);
}

static void gates_are_told_to_other_tasks(void **state) {
    struct debug_gates from, to;
    struct str text = STR_INIT;
    debug_gates_init(&from);
    debug_gates_init(&to);
    apply(&from, GATE_READ, "a");
    apply(&to, GATE_READ, "old");
    debug_gates_write(&from, &text);
    assert_null(debug_gates_read(&to, (struct span){text.data, text.len}));
    assert_int_equal(debug_gates_find(&to, "h:1", "a:1:DebugIdentity"), GATE_READ);
    assert_int_equal(debug_gates_find(&to, "h:1", "old:1:DebugIdentity"), GATE_CLOSED);
    str_fini(&text);
    debug_gates_fini(&from);
    debug_gates_fini(&to);
}

static void malformed_replies_and_long_names_are_refused(void **state) {
    static char long_name[DEBUG_MAX_GATE_BYTES + 1];
    struct debug_gates gates;
    debug_gates_init(&gates);
    memset(long_name, 'n', sizeof long_name - 1);
    struct status *st = debug_gates_apply(&gates, "h:1", span_of("\x0a\x7f"));
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    struct str reply = change(GATE_READ, long_name, 0, "DebugIdentity");
    st = debug_gates_apply(&gates, "h:1", (struct span){reply.data, reply.len});
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    status_unref(st);
    str_fini(&reply);
    debug_gates_fini(&gates);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_divided_by_bytes),
        cmocka_unit_test(strings_are_divided_between_them),
        cmocka_unit_test(empty_and_uninitialized_tensors_are_one_event),
        cmocka_unit_test(gates_open_and_close_for_one_server),
        cmocka_unit_test(gates_are_told_to_other_tasks),
        cmocka_unit_test(malformed_replies_and_long_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
