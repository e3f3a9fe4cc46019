/* Lists the devices of a master. */
#include "client/c_api.h"

#include <stdlib.h>

#include "client/c_api_internal.h"
#include "common/tensor/tensor_proto.h"

struct TF_DeviceList {
    struct arena arena;
    struct device_row {
        const char *name, *type;
        int64_t memory_bytes;
        uint64_t incarnation;
    } * rows;
    int n;
};

static void read_device(struct span message, TF_DeviceList *list) {
    struct device_row *row = &list->rows[list->n++];
    struct proto_field field;
    *row = (struct device_row){"", "", 0, 0};
    while (proto_next(&message, &field) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            row->name = arena_strndup(&list->arena, field.bytes.data, field.bytes.len);
        else if (field.number == 2 && field.wire_type == 2)
            row->type = arena_strndup(&list->arena, field.bytes.data, field.bytes.len);
        else if (field.number == 4)
            row->memory_bytes = (int64_t)field.value;
        else if (field.number == 6)
            row->incarnation = field.value;
    }
}

TF_DeviceList *TF_DeprecatedSessionListDevices(TF_DeprecatedSession *session, TF_Status *status) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    struct proto_field field;
    if (!session) {
        tf_status_set(status, null_refused(__func__, "session"));
        return NULL;
    }
    pthread_mutex_lock(&session->lock);
    if (session->handle.len)
        proto_add_bytes(&request, 1, session->handle.data, session->handle.len);
    pthread_mutex_unlock(&session->lock);
    struct status *st = session_call(session, "ListDevices", &request, &reply);
    str_fini(&request);
    TF_DeviceList *list = NULL;
    if (!st) {
        list = xcalloc(1, sizeof *list);
        arena_init(&list->arena);
        struct span counted = reply.body, body = reply.body;
        int n = 0;
        while (proto_next(&counted, &field) > 0)
            n++;
        list->rows = arena_array(&list->arena, struct device_row, n + 1);
        while (proto_next(&body, &field) > 0)
            if (field.wire_type == 2 && (field.number == 1 || field.number == 2))
                read_device(field.bytes, list);
    }
    buffer_unref(reply.buffer);
    tf_status_set(status, st);
    return list;
}

void TF_DeleteDeviceList(TF_DeviceList *list) {
    if (!list)
        return;
    arena_fini(&list->arena);
    free(list);
}

int TF_DeviceListCount(const TF_DeviceList *list) { return list ? list->n : 0; }

static const struct device_row *device_at(const char *function, const TF_DeviceList *list,
                                          int index, TF_Status *status) {
    static const struct device_row none = {"", "", 0, 0};
    bool is_there = list && index >= 0 && index < list->n;
    struct status *st = NULL;
    if (!is_there)
        st = list ? status_invalid("%s: device %d of %d", function, index, list->n)
                  : null_refused(function, "list");
    tf_status_set(status, st);
    return is_there ? &list->rows[index] : &none;
}

const char *TF_DeviceListName(const TF_DeviceList *list, int index, TF_Status *status) {
    return device_at(__func__, list, index, status)->name;
}
const char *TF_DeviceListType(const TF_DeviceList *list, int index, TF_Status *status) {
    return device_at(__func__, list, index, status)->type;
}
int64_t TF_DeviceListMemoryBytes(const TF_DeviceList *list, int index, TF_Status *status) {
    return device_at(__func__, list, index, status)->memory_bytes;
}
uint64_t TF_DeviceListIncarnation(const TF_DeviceList *list, int index, TF_Status *status) {
    return device_at(__func__, list, index, status)->incarnation;
}
