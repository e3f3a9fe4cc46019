/* Writes /memz: how much of each device's memory is in use, and who holds most of it. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/host/resources/resource_held.h"
#include "rpc/daemon/page.h"
#include "worker/service/service_internal.h"

enum { MAX_HOLDERS = 100, HOLDER_NAME_BYTES = 200 };

/* The largest holders so far, the largest first. */
struct holders {
    struct holder {
        int64_t size_bytes, n_items;
        char name[HOLDER_NAME_BYTES], container[HOLDER_NAME_BYTES];
        const char *kind;
        const char *memory; /* the device's name, or NULL */
    } * rows;               /* MAX_HOLDERS */
    int n;
    size_t n_more;
    int64_t more_bytes; /* of those that are not in `rows` */
    int n_looks;        /* at tensors, that are left */
    size_t n_uncounted; /* resources for which no look was left */
};

/* Returns the new holder's row, or NULL if it is not one of the largest. */
static struct holder *add_holder(struct holders *holders, int64_t size_bytes) {
    int at = holders->n;
    while (at > 0 && holders->rows[at - 1].size_bytes < size_bytes)
        at--;
    if (holders->n == MAX_HOLDERS) {
        holders->n_more++;
        holders->more_bytes +=
            at == MAX_HOLDERS ? size_bytes : holders->rows[MAX_HOLDERS - 1].size_bytes;
        if (at == MAX_HOLDERS)
            return NULL;
    } else {
        holders->n++;
    }
    memmove(&holders->rows[at + 1], &holders->rows[at],
            (size_t)(holders->n - 1 - at) * sizeof(holders->rows[0]));
    holders->rows[at] = (struct holder){.size_bytes = size_bytes};
    return &holders->rows[at];
}

static void copy_name(char *to, const char *from) { snprintf(to, HOLDER_NAME_BYTES, "%s", from); }

static void visit_resource(void *arg, const char *container, const char *name,
                           struct object *resource) {
    struct holders *holders = arg;
    struct resource_held held;
    if (!resource_held(resource, &holders->n_looks, &held)) {
        holders->n_uncounted += holders->n_looks == 0;
        return;
    }
    struct holder *holder = held.size_bytes > 0 ? add_holder(holders, held.size_bytes) : NULL;
    if (!holder)
        return;
    copy_name(holder->name, name);
    copy_name(holder->container, container);
    holder->kind = resource->type->name;
    holder->n_items = held.n_items;
    holder->memory = held.memory;
}

static void add_holders(const struct holders *holders, struct str *out) {
    page_open(out, "resources", '[');
    for (int i = 0; i < holders->n; i++) {
        const struct holder *holder = &holders->rows[i];
        page_open(out, NULL, '{');
        page_name(out, "name", holder->name);
        page_int(out, "size_bytes", holder->size_bytes);
        page_int(out, "items", holder->n_items);
        page_name(out, "kind", holder->kind);
        page_name(out, "container", holder->container);
        page_text(out, "memory", holder->memory);
        page_close(out, '}');
    }
    page_more(out, holders->n_more + holders->n_uncounted);
    page_close(out, ']');
}

static int64_t held_bytes(const struct holders *holders) {
    int64_t sum = holders->more_bytes;
    for (int i = 0; i < holders->n; i++)
        sum += holders->rows[i].size_bytes;
    return sum;
}

static void add_devices(const struct worker_service *service, struct str *out) {
    page_open(out, "devices", '[');
    for (int i = 0; i < service->options.n_devices; i++) {
        const struct device *device = &service->options.devices[i];
        page_open(out, NULL, '{');
        page_text(out, "device", device->full_name);
        page_int(out, "memory_in_use_bytes", atomic_load(&device->allocator->in_use_bytes));
        page_int(out, "memory_peak_bytes", atomic_load(&device->allocator->peak_bytes));
        page_int(out, "memory_limit_bytes", device->memory_limit_bytes);
        page_close(out, '}');
    }
    page_close(out, ']');
}

void worker_service_page_memory(struct worker_service *service, struct str *out) {
    struct holder *rows = xcalloc(MAX_HOLDERS, sizeof(*rows));
    struct holders holders = {.rows = rows, .n_looks = RESOURCE_HELD_MAX_LOOKS};
    container_for_each(service->containers, visit_resource, &holders);
    page_open(out, NULL, '{');
    page_int(out, "resources_bytes", held_bytes(&holders));
    page_int(out, "resources_not_counted", (int64_t)holders.n_uncounted);
    add_devices(service, out);
    add_holders(&holders, out);
    page_close(out, '}');
    str_add_char(out, '\n');
    free(rows);
}
