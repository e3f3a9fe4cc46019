/* Runs puts and gets on staging areas and maps (kernels/host/resources/staging.h). */
#include "kernels/host/resources/staging.h"

#include <stdlib.h>

enum { LINE_PUTS, LINE_GETS };

/* ---- tuples ---- */

struct staging_tuple *staging_tuple_new(int n) {
    size_t size = sizeof(struct staging_tuple) + (size_t)n * sizeof(struct tensor);
    struct staging_tuple *staged = aligned_alloc(_Alignof(struct staging_tuple), size);
    if (!staged)
        out_of_memory(size);
    memset(staged, 0, size);
    list_init(&staged->link);
    staged->n = n;
    return staged;
}

void staging_tuple_free(struct staging_tuple *staged) {
    if (!staged)
        return;
    tensor_clear(&staged->key_value);
    for (int i = 0; i < staged->n; i++)
        tensor_clear(&staged->values[i]);
    free(staged);
}

/* The size that counts against a memory limit. As in TensorFlow, a string has a header of 24
 * bytes. */
static int64_t tensor_weight(const struct tensor *t) {
    enum { STRING_HEADER_BYTES = 24 };
    if (t->storage == TENSOR_NONE)
        return 0;
    if (t->dtype != DT_STRING)
        return (int64_t)tensor_size_bytes(t);
    int64_t weight = 0;
    for (int64_t i = 0; i < t->n_elements; i++)
        weight += STRING_HEADER_BYTES + (int64_t)tensor_string(t, i).len;
    return weight;
}

static int64_t staging_tuple_bytes(const struct staging_tuple *staged) {
    int64_t weight = 0;
    for (int i = 0; i < staged->n; i++)
        weight += tensor_weight(&staged->values[i]);
    return weight;
}

/* ---- lifetime ---- */

static void drop_map(struct u64map *map) {
    size_t cursor = 0;
    uint64_t key;
    void *value;
    while (u64map_next(map, &cursor, &key, &value)) {
        u64map_remove(map, key);
        staging_tuple_free(value);
    }
}

static void drop_all(struct staging *staging) {
    for (struct list *link; (link = list_pop_front(&staging->tuples));) {
        struct staging_tuple *staged = LIST_ENTRY(link, struct staging_tuple, link);
        u64map_remove(&staging->by_key, (uint64_t)staged->key);
        staging_tuple_free(staged);
    }
    drop_map(&staging->incomplete);
    staging->n = staging->size_bytes = staging->incomplete_bytes = 0;
}

static void staging_free(struct object *object) {
    struct staging *staging = (struct staging *)object;
    drop_all(staging);
    u64map_fini(&staging->by_key);
    u64map_fini(&staging->incomplete);
    wait_room_fini(&staging->room);
    free(staging);
}

const struct object_type staging_area_type = {.name = "tensorflow::Buffer", .free = staging_free};
const struct object_type staging_map_type = {.name = "tensorflow::StagingMap<false>",
                                             .free = staging_free};
const struct object_type staging_ordered_map_type = {.name = "tensorflow::StagingMap<true>",
                                                     .free = staging_free};

struct staging *staging_new(const struct object_type *type, const struct staging_options *options) {
    struct staging *staging = xcalloc(1, sizeof(*staging));
    object_init(&staging->object, type);
    wait_room_init(&staging->room, &staging->object);
    /* gets wait for different tuples, so one that waits must not hold up the next */
    staging->room.lines[LINE_GETS].is_scanned = true;
    /* the rest of a tuple must not wait behind another tuple */
    staging->room.lines[LINE_PUTS].is_scanned = type != &staging_area_type;
    staging->options = *options;
    staging->is_ordered = type == &staging_ordered_map_type;
    list_init(&staging->tuples);
    u64map_init(&staging->by_key);
    u64map_init(&staging->incomplete);
    return staging;
}

static bool is_map(const struct staging *staging) {
    return staging->object.type != &staging_area_type;
}

/* ---- put ---- */

struct put {
    struct wait wait;
    struct staging *staging;      /* the wait holds a reference */
    struct staging_tuple *staged; /* NULL once it is in the area */
    int64_t weight;
};

/* Inserts at the tuple's position in the list. Keys mostly rise, so the search starts at the
 * end. */
static void insert(struct staging *staging, struct staging_tuple *staged) {
    struct list *after = staging->tuples.prev;
    while (staging->is_ordered && after != &staging->tuples &&
           LIST_ENTRY(after, struct staging_tuple, link)->key > staged->key)
        after = after->prev;
    list_push_front(after, &staged->link);
    if (is_map(staging))
        u64map_put(&staging->by_key, (uint64_t)staged->key, staged);
    staging->n++;
    staging->size_bytes += staging_tuple_bytes(staged);
}

/* When the key exists already, the old tuple is kept and the new one is dropped, as in
 * TensorFlow. */
static void insert_or_drop(struct staging *staging, struct staging_tuple *staged) {
    if (is_map(staging) && u64map_get(&staging->by_key, (uint64_t)staged->key))
        staging_tuple_free(staged);
    else
        insert(staging, staged);
}

/* Tuples with gaps count against the memory limit, but not against the number of tuples. */
static bool has_memory(const struct staging *staging, int64_t weight) {
    int64_t limit = staging->options.memory_limit;
    return limit <= 0 || staging->size_bytes + staging->incomplete_bytes + weight <= limit;
}

static enum wait_result put_incomplete(struct put *put) {
    struct staging *staging = put->staging;
    struct staging_tuple *there = u64map_get(&staging->incomplete, (uint64_t)put->staged->key);
    if (!has_memory(staging, put->weight))
        return WAIT_STUCK;
    if (!there) {
        staging->incomplete_bytes += put->weight;
        u64map_put(&staging->incomplete, (uint64_t)put->staged->key, put->staged);
        put->staged = NULL;
        return WAIT_ENDED;
    }
    for (int i = 0; i < there->n; i++) {
        if (put->staged->values[i].storage == TENSOR_NONE ||
            there->values[i].storage == TENSOR_NONE)
            continue;
        put->wait.status =
            status_invalid("The tensor for index '%d' for key '%lld' was already initialized '%d'.",
                           i, (long long)there->key, there->n);
        return WAIT_ENDED;
    }
    staging->incomplete_bytes += put->weight;
    for (int i = 0; i < there->n; i++) {
        if (put->staged->values[i].storage == TENSOR_NONE)
            continue;
        tensor_move(&there->values[i], &put->staged->values[i]);
        there->n_present++;
    }
    if (there->n_present == there->n) {
        u64map_remove(&staging->incomplete, (uint64_t)there->key);
        staging->incomplete_bytes -= staging_tuple_bytes(there);
        insert_or_drop(staging, there);
    }
    return WAIT_ENDED;
}

static bool has_room(const struct staging *staging, int64_t weight) {
    const struct staging_options *options = &staging->options;
    return (options->capacity <= 0 || staging->n < options->capacity) &&
           has_memory(staging, weight);
}

static enum wait_result put_attempt(struct wait *wait) {
    struct put *put = CONTAINER_OF(wait, struct put, wait);
    struct staging *staging = put->staging;
    if (put->staged->n_present < put->staged->n)
        return put_incomplete(put);
    if (!has_room(staging, put->weight))
        return WAIT_STUCK;
    insert_or_drop(staging, put->staged);
    put->staged = NULL;
    return WAIT_ENDED;
}

static void put_free(struct wait *wait) {
    struct put *put = CONTAINER_OF(wait, struct put, wait);
    staging_tuple_free(put->staged);
    free(put);
}

static const struct wait_kind put_kind = {
    .cancelled = "Stage operation was cancelled", .attempt = put_attempt, .free = put_free};

enum kernel_result staging_put(struct staging *staging, struct kernel_ctx *ctx,
                               struct staging_tuple *staged) {
    int64_t weight = staging_tuple_bytes(staged), limit = staging->options.memory_limit;
    if (limit > 0 && weight > limit) {
        staging_tuple_free(staged);
        return kernel_fail(ctx, status_exhausted("Attempted to insert tensors with combined size "
                                                 "of '%lld' bytes into Staging Area with a "
                                                 "memory limit of '%lld'.",
                                                 (long long)weight, (long long)limit));
    }
    struct put *put = xcalloc(1, sizeof(*put));
    put->wait.kind = &put_kind;
    put->staging = staging;
    put->staged = staged;
    put->weight = weight;
    return wait_room_enter(&staging->room, LINE_PUTS, ctx, &put->wait);
}

/* ---- get ---- */

struct get {
    struct wait wait;
    struct staging *staging; /* the wait holds a reference */
    struct staging_request request;
    int32_t *indices; /* NULL: all components */
    int n_indices;
    struct staging_tuple *got; /* the components in the order of the outputs */
};

static struct staging_tuple *find(const struct get *get) {
    struct staging *staging = get->staging;
    if (get->request.choice == STAGING_KEY)
        return u64map_get(&staging->by_key, (uint64_t)get->request.at);
    int64_t at = get->request.choice == STAGING_AT ? get->request.at : 0;
    if (at >= staging->n)
        return NULL;
    struct list *link = staging->tuples.next;
    while (at-- > 0)
        link = link->next;
    return LIST_ENTRY(link, struct staging_tuple, link);
}

static struct status *check_indices(const struct get *get, const struct staging_tuple *staged) {
    for (int i = 0; i < get->n_indices; i++) {
        int32_t index = get->indices[i];
        if (index < 0 || index >= staged->n)
            return status_invalid("Index '%d' for key '%lld' was out of bounds '%d'.", index,
                                  (long long)staged->key, staged->n);
        if (staged->values[index].storage == TENSOR_NONE)
            return status_invalid("Tensor at index '%d' for key '%lld' has already been removed.",
                                  index, (long long)staged->key);
    }
    return NULL;
}

static void remove_tuple(struct staging *staging, struct staging_tuple *staged) {
    list_remove(&staged->link);
    if (is_map(staging))
        u64map_remove(&staging->by_key, (uint64_t)staged->key);
    staging->n--;
}

/* Copies or moves components out. A tuple without components left is freed. */
static void take_components(struct get *get, struct staging_tuple *staged) {
    int n = get->indices ? get->n_indices : staged->n;
    get->got = staging_tuple_new(n);
    tensor_copy(&get->got->key_value, &staged->key_value);
    for (int i = 0; i < n; i++) {
        struct tensor *from = &staged->values[get->indices ? get->indices[i] : i];
        if (get->request.is_peek) {
            tensor_copy(&get->got->values[i], from);
            continue;
        }
        get->staging->size_bytes -= tensor_weight(from);
        tensor_move(&get->got->values[i], from);
        staged->n_present--;
    }
    if (staged->n_present > 0)
        return;
    remove_tuple(get->staging, staged);
    staging_tuple_free(staged);
}

static enum wait_result get_attempt(struct wait *wait) {
    struct get *get = CONTAINER_OF(wait, struct get, wait);
    struct staging_tuple *staged = find(get);
    if (!staged)
        return WAIT_STUCK;
    wait->status = check_indices(get, staged);
    if (!wait->status)
        take_components(get, staged);
    return WAIT_ENDED;
}

static struct status *get_finish(struct wait *wait) {
    struct get *get = CONTAINER_OF(wait, struct get, wait);
    struct kernel_ctx *ctx = wait->ctx;
    const struct kernel_instance *instance = ctx->instance;
    int first = get->request.gives_key, n = instance->n_outputs - first;
    if (get->got->n != n)
        return status_invalid("Mismatch stage/unstage: %d vs. %d", get->got->n, n);
    for (int i = 0; i < n; i++) {
        enum dtype type = (enum dtype)get->got->values[i].dtype,
                   declared = (enum dtype)instance->out_types[first + i];
        if (type != declared)
            return status_invalid(
                "Output %d of type %s does not match declared output type %s for node {{node %s}}",
                first + i, dtype_name(type), dtype_name(declared), instance->node->name);
    }
    if (first)
        tensor_move(&ctx->outputs[0], &get->got->key_value);
    for (int i = 0; i < n; i++)
        tensor_move(&ctx->outputs[first + i], &get->got->values[i]);
    return NULL;
}

static void get_free(struct wait *wait) {
    struct get *get = CONTAINER_OF(wait, struct get, wait);
    staging_tuple_free(get->got);
    free(get->indices);
    free(get);
}

static const struct wait_kind get_kind = {.cancelled = "Unstage operation was cancelled",
                                          .attempt = get_attempt,
                                          .finish = get_finish,
                                          .free = get_free};

enum kernel_result staging_get(struct staging *staging, struct kernel_ctx *ctx,
                               struct staging_request request) {
    struct get *get = xcalloc(1, sizeof(*get));
    get->wait.kind = &get_kind;
    get->staging = staging;
    get->request = request;
    if (request.indices) {
        get->n_indices = (int)request.indices->n_elements;
        get->indices = xcalloc((size_t)get->n_indices + 1, sizeof(*get->indices));
        memcpy(get->indices, tensor_cdata(request.indices),
               (size_t)get->n_indices * sizeof(*get->indices));
        get->request.indices = NULL;
    }
    return wait_room_enter(&staging->room, LINE_GETS, ctx, &get->wait);
}

/* ---- inspection ---- */

void staging_clear(struct staging *staging) {
    wait_room_lock(&staging->room);
    drop_all(staging);
    wait_room_unlock(&staging->room);
}

int64_t staging_size(struct staging *staging) {
    wait_room_lock(&staging->room);
    int64_t n = staging->n;
    pthread_mutex_unlock(&staging->room.lock);
    return n;
}

int64_t staging_incomplete_size(struct staging *staging) {
    wait_room_lock(&staging->room);
    int64_t n = (int64_t)staging->incomplete.n_entries;
    pthread_mutex_unlock(&staging->room.lock);
    return n;
}
