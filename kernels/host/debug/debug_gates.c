/* Keeps open gates by the server's address and the key of the watch. */
#include "kernels/host/debug/debug_gates.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"

/* Fields of EventReply, of DebugOpStateChange, and of our list of gates. */
enum { REPLY_CHANGE = 1, CHANGE_STATE = 1, CHANGE_NODE = 2, CHANGE_SLOT = 3, CHANGE_OP = 4 };
enum { LIST_GATE = 1, GATE_NAME = 1, GATE_STATE = 2 };

struct gate {
    enum debug_gate state;
    char name[];
};

void debug_gates_init(struct debug_gates *gates) { strmap_init(&gates->by_name); }

static void clear(struct debug_gates *gates) {
    size_t cursor = 0;
    struct span name;
    void *gate;
    while (strmap_next(&gates->by_name, &cursor, &name, &gate)) {
        strmap_remove_span(&gates->by_name, name);
        free(gate);
    }
}

void debug_gates_fini(struct debug_gates *gates) {
    clear(gates);
    strmap_fini(&gates->by_name);
}

enum debug_gate debug_gates_find(const struct debug_gates *gates, const char *address,
                                 const char *key) {
    struct str name = STR_INIT;
    str_addf(&name, "%s %s", address, key);
    const struct gate *gate = strmap_get(&gates->by_name, str_text(&name));
    str_fini(&name);
    return gate ? gate->state : GATE_CLOSED;
}

static struct status *set(struct debug_gates *gates, struct span name, uint64_t state) {
    bool is_open = state == GATE_READ || state == GATE_WRITE;
    struct gate *gate = strmap_get_span(&gates->by_name, name);
    if (!is_open) {
        strmap_remove_span(&gates->by_name, name);
        free(gate);
        return NULL;
    }
    if (!gate) {
        if (name.len > DEBUG_MAX_GATE_BYTES || gates->by_name.n_entries >= DEBUG_MAX_GATES)
            return status_exhausted("a debug server has opened more than %d gates, or one with a "
                                    "name of more than %d bytes",
                                    DEBUG_MAX_GATES, DEBUG_MAX_GATE_BYTES);
        gate = xcalloc(1, sizeof *gate + name.len + 1);
        memcpy(gate->name, name.data, name.len);
        strmap_put_span(&gates->by_name, (struct span){gate->name, name.len}, gate);
    }
    gate->state = (enum debug_gate)state;
    return NULL;
}

/* ---- what a server says ---- */

static struct status *malformed(const char *address) {
    return status_invalid("%s has sent a malformed EventReply", address);
}

static struct status *change(struct debug_gates *gates, const char *address, struct span bytes) {
    struct span node = {"", 0}, op = {"", 0};
    uint64_t state = 0, slot = 0;
    struct proto_field field;
    int more;
    while ((more = proto_next(&bytes, &field)) > 0) {
        if (proto_field_is(&field, CHANGE_STATE, 0))
            state = field.value;
        else if (proto_field_is(&field, CHANGE_NODE, 2))
            node = field.bytes;
        else if (proto_field_is(&field, CHANGE_SLOT, 0))
            slot = field.value;
        else if (proto_field_is(&field, CHANGE_OP, 2))
            op = field.bytes;
    }
    if (more < 0)
        return malformed(address);
    struct str name = STR_INIT;
    str_addf(&name, "%s %.*s:%d:%.*s", address, (int)node.len, node.data, (int)slot, (int)op.len,
             op.data);
    struct status *st = set(gates, (struct span){name.data, name.len}, state);
    str_fini(&name);
    return st;
}

struct status *debug_gates_apply(struct debug_gates *gates, const char *address,
                                 struct span reply) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&reply, &field)) > 0)
        if (proto_field_is(&field, REPLY_CHANGE, 2))
            TRY(change(gates, address, field.bytes));
    return more < 0 ? malformed(address) : NULL;
}

/* ---- from task to task ---- */

void debug_gates_write(const struct debug_gates *gates, struct str *out) {
    size_t cursor = 0;
    struct span name;
    void *value;
    while (strmap_next(&gates->by_name, &cursor, &name, &value)) {
        const struct gate *gate = value;
        size_t size = name.len + 8, begin = proto_begin(out, LIST_GATE, size);
        proto_add_bytes(out, GATE_NAME, name.data, name.len);
        proto_add_int(out, GATE_STATE, gate->state);
        proto_end(out, begin, size);
    }
}

static struct status *read_gate(struct debug_gates *gates, struct span bytes) {
    struct span name = {"", 0};
    struct proto_field field;
    uint64_t state = 0;
    int more;
    while ((more = proto_next(&bytes, &field)) > 0) {
        if (proto_field_is(&field, GATE_NAME, 2))
            name = field.bytes;
        else if (proto_field_is(&field, GATE_STATE, 0))
            state = field.value;
    }
    return more < 0 ? malformed("a task") : set(gates, name, state);
}

struct status *debug_gates_read(struct debug_gates *gates, struct span text) {
    struct proto_field field;
    int more;
    clear(gates);
    while ((more = proto_next(&text, &field)) > 0)
        if (proto_field_is(&field, LIST_GATE, 2))
            TRY(read_gate(gates, field.bytes));
    return more < 0 ? malformed("a task") : NULL;
}
