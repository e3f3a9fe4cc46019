/* Keeps memory registered that values are sent from again and again. */
#include "rpc/rdma/rdma_regions.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/list.h"

struct rdma_regions {
    const struct verbs *verbs;
    struct ibv_pd *pd;
    struct rdma_exporter *exporter; /* NULL: there are no devices with memory of their own */
    int64_t max_bytes;

    /* Guards what follows, and the fields of each region. Not held while memory is registered or
     * unregistered. */
    pthread_mutex_t lock;
    struct list kept; /* most recently used first */
    int64_t kept_bytes;
    int n_kept;
    uint64_t n_found, n_registered, n_dropped;
};

struct rdma_region {
    struct rdma_regions *regions;
    struct list link; /* regions->kept, or a list of its own */
    struct ibv_mr *mr;
    const char *data;
    size_t size_bytes;
    int n_uses;
    bool is_kept;
};

/* ---- the list; the lock is held ---- */

static void drop(struct rdma_region *region, struct list *dropped) {
    struct rdma_regions *regions = region->regions;
    list_remove(&region->link);
    region->is_kept = false;
    regions->kept_bytes -= (int64_t)region->size_bytes;
    regions->n_kept--;
    regions->n_dropped++;
    if (region->n_uses == 0) /* otherwise it is unregistered after the last use */
        list_push_back(dropped, &region->link);
}

static void make_room(struct rdma_regions *regions, struct list *dropped) {
    struct list *link = regions->kept.prev;
    while (link != &regions->kept &&
           (regions->kept_bytes > regions->max_bytes || regions->n_kept > RDMA_REGIONS_MAX)) {
        struct rdma_region *region = LIST_ENTRY(link, struct rdma_region, link);
        link = link->prev;
        if (region->n_uses == 0)
            drop(region, dropped);
    }
}

/* Unregisters the regions of the list. The lock is not held. */
static void withdraw(struct list *dropped) {
    for (struct list *link; (link = list_pop_front(dropped));) {
        struct rdma_region *region = LIST_ENTRY(link, struct rdma_region, link);
        rdma_unregister(region->regions->verbs, region->mr);
        free(region);
    }
}

/* ---- memory that returns to the system ---- */

static bool overlaps(const struct rdma_region *region, const char *data, size_t size_bytes) {
    return region->data < data + size_bytes && data < region->data + region->size_bytes;
}

static void on_memory_released(void *arg, const char *data, size_t size_bytes) {
    struct rdma_regions *regions = arg;
    struct list dropped;
    list_init(&dropped);
    pthread_mutex_lock(&regions->lock);
    LIST_FOR_EACH_SAFE (link, next, &regions->kept)
        if (overlaps(LIST_ENTRY(link, struct rdma_region, link), data, size_bytes))
            drop(LIST_ENTRY(link, struct rdma_region, link), &dropped);
    pthread_mutex_unlock(&regions->lock);
    withdraw(&dropped);
}

/* ---- life ---- */

struct rdma_regions *rdma_regions_new(const struct verbs *verbs, struct ibv_pd *pd,
                                      int64_t max_bytes) {
    struct rdma_regions *regions = xcalloc(1, sizeof(*regions));
    regions->verbs = verbs;
    regions->pd = pd;
    regions->max_bytes = max_bytes;
    list_init(&regions->kept);
    CHECK(pthread_mutex_init(&regions->lock, NULL) == 0);
    allocator_host_set_release_hook(on_memory_released, regions);
    return regions;
}

void rdma_regions_free(struct rdma_regions *regions) {
    if (!regions)
        return;
    struct list dropped;
    list_init(&dropped);
    allocator_host_set_release_hook(NULL, NULL);
    LIST_FOR_EACH_SAFE (link, next, &regions->kept) {
        CHECK(LIST_ENTRY(link, struct rdma_region, link)->n_uses == 0);
        drop(LIST_ENTRY(link, struct rdma_region, link), &dropped);
    }
    withdraw(&dropped);
    pthread_mutex_destroy(&regions->lock);
    free(regions);
}

void rdma_regions_set_exporter(struct rdma_regions *regions, struct rdma_exporter *exporter) {
    regions->exporter = exporter;
}

/* ---- use ---- */

struct rdma_region *rdma_regions_find(struct rdma_regions *regions, const char *data,
                                      size_t size_bytes) {
    struct rdma_region *found = NULL;
    pthread_mutex_lock(&regions->lock);
    LIST_FOR_EACH (link, &regions->kept) {
        struct rdma_region *region = LIST_ENTRY(link, struct rdma_region, link);
        if (region->data <= data && size_bytes <= region->size_bytes &&
            data - region->data <= (ptrdiff_t)(region->size_bytes - size_bytes)) {
            found = region;
            break;
        }
    }
    if (found) {
        found->n_uses++;
        regions->n_found++;
        list_remove(&found->link);
        list_push_front(&regions->kept, &found->link);
    }
    pthread_mutex_unlock(&regions->lock);
    return found;
}

struct status *rdma_regions_add(struct rdma_regions *regions, const struct buffer *buffer,
                                const char *data, size_t size_bytes, struct rdma_region **ret) {
    struct rdma_exporter *exporter = regions->exporter;
    bool is_kept = buffer_is_recycled(buffer);
    struct ibv_mr *mr;
    struct list dropped;
    if (exporter && buffer_is_of_device(buffer)) {
        *ret =
            rdma_regions_find(regions, data, size_bytes); /* another value may have been faster */
        if (*ret)
            return NULL;
        exporter->widen(exporter, buffer, &data, &size_bytes);
        is_kept = true;
    }
    struct rdma_memory memory = rdma_memory_of(exporter, buffer, data, size_bytes);
    TRY(rdma_register(regions->verbs, regions->pd, &memory, RDMA_READ_HERE, &mr));
    struct rdma_region *region = xcalloc(1, sizeof(*region));
    *region = (struct rdma_region){
        .regions = regions, .mr = mr, .data = data, .size_bytes = size_bytes, .n_uses = 1};
    list_init(&region->link);
    list_init(&dropped);
    region->is_kept = is_kept;
    pthread_mutex_lock(&regions->lock);
    regions->n_registered++;
    if (region->is_kept) {
        list_push_front(&regions->kept, &region->link);
        regions->kept_bytes += (int64_t)size_bytes;
        regions->n_kept++;
        make_room(regions, &dropped);
    }
    pthread_mutex_unlock(&regions->lock);
    withdraw(&dropped);
    *ret = region;
    return NULL;
}

void rdma_region_release(struct rdma_region *region) {
    if (!region)
        return;
    struct rdma_regions *regions = region->regions;
    struct list dropped;
    list_init(&dropped);
    pthread_mutex_lock(&regions->lock);
    if (--region->n_uses == 0 && !region->is_kept)
        list_push_back(&dropped, &region->link);
    else
        make_room(regions, &dropped); /* a region that was in use could not be dropped before */
    pthread_mutex_unlock(&regions->lock);
    withdraw(&dropped);
}

uint32_t rdma_region_key(const struct rdma_region *region) { return region->mr->lkey; }

void rdma_regions_describe(struct rdma_regions *regions, struct str *out) {
    pthread_mutex_lock(&regions->lock);
    str_addf(out,
             "{\"kept\":%d,\"kept_bytes\":%lld,\"limit_bytes\":%lld,\"found\":%llu,\"registered\":%"
             "llu,\"dropped\":%llu}",
             regions->n_kept, (long long)regions->kept_bytes, (long long)regions->max_bytes,
             (unsigned long long)regions->n_found, (unsigned long long)regions->n_registered,
             (unsigned long long)regions->n_dropped);
    pthread_mutex_unlock(&regions->lock);
}
