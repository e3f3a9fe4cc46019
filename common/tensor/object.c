/* Makes strings and resource handles: each is one block of memory, with its text at the end. */
#include "common/tensor/object.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/pool_cancel.h"

static void bytes_free(struct object *object) { free(CONTAINER_OF(object, struct bytes, object)); }

const struct object_type bytes_type = {.name = "string", .free = bytes_free};

struct bytes *bytes_new_uninit(size_t len) {
    if (len == 0)
        return NULL;
    CHECK(len < SIZE_MAX - sizeof(struct bytes) - 1);
    struct bytes *bytes = xmalloc(sizeof(*bytes) + len + 1);
    object_init(&bytes->object, &bytes_type);
    bytes->len = len;
    bytes->data[len] = '\0';
    return bytes;
}

struct bytes *bytes_new(const void *data, size_t len) {
    struct bytes *bytes = bytes_new_uninit(len);
    if (bytes)
        pool_copy(bytes->data, data, len);
    return bytes;
}

static void resource_handle_free(struct object *object) {
    struct resource_handle *handle = CONTAINER_OF(object, struct resource_handle, object);
    object_unref(handle->entry);
    free(handle);
}

const struct object_type resource_handle_type = {.name = "resource", .free = resource_handle_free};

static const char *append_text(char **at, const char *text, size_t len) {
    char *begin = *at;
    memcpy(begin, text, len);
    begin[len] = '\0';
    *at = begin + len + 1;
    return begin;
}

struct resource_handle *resource_handle_new(const char *device, const char *container,
                                            const char *name, const char *type_name,
                                            enum dtype dtype, struct object *entry_take) {
    struct span texts[4] = {span_of(device), span_of(container), span_of(name), span_of(type_name)};
    if (texts[1].len == 0)
        texts[1] = span_of("localhost");
    size_t text_bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        text_bytes += texts[i].len + 1;
        if (!texts[i].data)
            texts[i].data = "";
    }
    struct resource_handle *handle = xmalloc(sizeof(*handle) + text_bytes);
    object_init(&handle->object, &resource_handle_type);
    char *at = (char *)(handle + 1);
    handle->device = append_text(&at, texts[0].data, texts[0].len);
    handle->container = append_text(&at, texts[1].data, texts[1].len);
    handle->name = append_text(&at, texts[2].data, texts[2].len);
    handle->type_name = append_text(&at, texts[3].data, texts[3].len);
    handle->hash =
        hash_bytes(texts[2].data, texts[2].len, hash_bytes(texts[1].data, texts[1].len, 0));
    handle->dtype = dtype;
    handle->entry = entry_take;
    return handle;
}
