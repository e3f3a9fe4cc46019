/* Opens CUPTI, and keeps the records of recordings (activity.h).
 *
 * Records are appended in the order in which they arrive. A recording reads those since its begin,
 * and what no recording needs any more is dropped. Buffers and records have limits, after which
 * CUPTI drops what it has, or we do. */
#include "kernels/cuda/activity.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "kernels/cuda/activity_api.h"
#include "kernels/cuda/library.h"

enum {
    BUFFER_BYTES = 256 << 10,
    MAX_BUFFERS = 64,
    MAX_RECORDS = 1 << 18,
    MAX_NAMES = 8192,
    MAX_NAME_BYTES = 512,
    VERSION_FIRST = 18, /* CUDA 12.0; 13.0 counts as 130000 and so on */
    VERSION_END = 140000,
};

static const char *const library_names[] = {"libcupti.so.13", "libcupti.so.12"};
static const struct gpu_library_call calls[] = {
#define ACTIVITY_CALL(name, arguments) {#name, offsetof(struct activity_api, name)},
#include "kernels/cuda/activity_calls.inc"
};
static const uint32_t kinds[] = {CUPTI_KIND_EXTERNAL, CUPTI_KIND_DRIVER, CUPTI_KIND_RUNTIME,
                                 CUPTI_KIND_KERNEL,   CUPTI_KIND_MEMCPY, CUPTI_KIND_MEMCPY_PEER,
                                 CUPTI_KIND_MEMSET};

/* Set by gpu_activity_setup, then constant. */
static char *folders;
static bool is_off = true;

/* Whether CUPTI records. Its calls are made with this lock, except those of its threads. */
static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;
static struct activity_api api; /* constant once has_opened */
static bool has_opened, has_callbacks, is_refused;
static uint32_t version;
static struct str why = STR_INIT; /* why nothing is recorded */
static int n_recordings;

/* What CUPTI's threads fill. Nothing is called with this lock. */
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer_slot {
    uint8_t *memory;
    bool is_out; /* CUPTI has it */
} buffers[MAX_BUFFERS];
static struct record {
    struct gpu_activity activity;
    bool is_mark; /* the call `correlation` was made under the mark */
} * records;
static size_t n_records, capacity;
static uint64_t first_record; /* the number of records[0] */
static uint64_t n_begun;
static struct gpu_recording *recordings;
static struct strmap names; /* → the same text, kept for good */
static bool has_names;

void gpu_activity_setup(const char *set_folders, bool set_off) {
    free(folders);
    folders = set_folders ? xstrdup(set_folders) : NULL;
    is_off = set_off;
}

/* ---- CUPTI's threads ---- */

static uint64_t now(void) { return (uint64_t)clock_now_ns(); }

static void buffer_wanted(uint8_t **ret_buffer, size_t *ret_size, size_t *ret_max_records) {
    *ret_buffer = NULL; /* without a buffer CUPTI drops records */
    *ret_size = *ret_max_records = 0;
    pthread_mutex_lock(&records_lock);
    for (int i = 0; i < MAX_BUFFERS && !*ret_buffer; i++) {
        struct buffer_slot *slot = &buffers[i];
        if (slot->is_out)
            continue;
        if (!slot->memory)
            slot->memory = aligned_alloc(CUPTI_RECORD_ALIGNMENT, BUFFER_BYTES);
        if (!slot->memory)
            break;
        slot->is_out = true;
        *ret_buffer = slot->memory;
        *ret_size = BUFFER_BYTES;
    }
    pthread_mutex_unlock(&records_lock);
}

static const char *intern(const char *name) {
    if (!name || !*name)
        return "kernel";
    if (!has_names)
        strmap_init(&names);
    has_names = true;
    struct span key = {name, strnlen(name, MAX_NAME_BYTES)};
    char *kept = strmap_get_span(&names, key);
    if (kept)
        return kept;
    if (names.n_entries >= MAX_NAMES)
        return "kernel";
    kept = xmalloc(key.len + 1);
    memcpy(kept, name, key.len);
    kept[key.len] = '\0';
    strmap_put_span(&names, (struct span){kept, key.len}, kept);
    return kept;
}

static void add_record(const struct gpu_activity *activity, bool is_mark) {
    if (n_records == MAX_RECORDS)
        return;
    if (n_records == capacity) {
        capacity = MAX((size_t)1024, capacity * 2);
        records = xreallocarray(records, capacity, sizeof *records);
    }
    records[n_records++] = (struct record){*activity, is_mark};
}

#define TIMED(record, what)                                                             \
    {                                                                                   \
        .start_ns = (int64_t)(record)->start_ns, .end_ns = (int64_t)(record)->end_ns,   \
        .graph_node = (record)->graph_node, .name = (what), .stream = (record)->stream, \
        .correlation = (record)->correlation                                            \
    }

/* Unknown kinds are passed over. */
static void take_record(const struct cupti_record *record) {
    const struct cupti_kernel *kernel = (const void *)record;
    const struct cupti_memcpy *copy = (const void *)record;
    const struct cupti_memcpy_peer *peer = (const void *)record;
    const struct cupti_memset *fill = (const void *)record;
    const struct cupti_external *external = (const void *)record;
    switch (record->kind) {
    case CUPTI_KIND_KERNEL:
        add_record(&(struct gpu_activity)TIMED(kernel, intern(kernel->name)), false);
        break;
    case CUPTI_KIND_MEMCPY:
        add_record(&(struct gpu_activity)TIMED(copy, "copy"), false);
        break;
    case CUPTI_KIND_MEMCPY_PEER:
        add_record(&(struct gpu_activity)TIMED(peer, "copy"), false);
        break;
    case CUPTI_KIND_MEMSET:
        add_record(&(struct gpu_activity)TIMED(fill, "fill"), false);
        break;
    case CUPTI_KIND_EXTERNAL:
        if (external->external_kind == CUPTI_EXTERNAL_CUSTOM && external->mark != 0)
            add_record(&(struct gpu_activity){.mark = external->mark,
                                              .correlation = external->correlation},
                       true);
        break;
    default:
        break;
    }
}

static void buffer_filled(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                          size_t n_valid) {
    (void)context;
    (void)stream;
    (void)size;
    struct cupti_record *record = NULL;
    pthread_mutex_lock(&records_lock);
    struct buffer_slot *slot = buffers;
    while (slot < buffers + MAX_BUFFERS && !(slot->is_out && slot->memory == buffer))
        slot++;
    if (slot < buffers + MAX_BUFFERS) {
        while (recordings && n_valid > 0 &&
               api.cuptiActivityGetNextRecord(buffer, n_valid, &record) == 0)
            take_record(record);
        slot->is_out = false;
    }
    pthread_mutex_unlock(&records_lock);
}

/* ---- opening, with the control lock ---- */

static void add_result(struct str *out, const char *call, int result) {
    const char *text = NULL;
    if (api.cuptiGetResultString(result, &text) != 0 || !text)
        text = "unknown";
    str_addf(out, "%s failed with CUPTI status %d (%s)", call, result, text);
}

static bool open_library(struct str *reason) {
    void *library = gpu_library_open(folders, library_names, ARRAY_LEN(library_names), reason);
    if (!library || !gpu_library_find(library, calls, ARRAY_LEN(calls), &api, reason))
        return false;
    int result = api.cuptiGetVersion(&version);
    if (result != 0) {
        add_result(reason, "cuptiGetVersion", result);
        return false;
    }
    if (version < VERSION_FIRST || version >= VERSION_END) {
        str_addf(reason, "its version %u is unknown", version);
        return false;
    }
    return true;
}

/* Must be called before anything is recorded. */
static bool set_callbacks(struct str *reason) {
    int result = api.cuptiActivityRegisterTimestampCallback(now);
    if (result != 0) {
        add_result(reason, "cuptiActivityRegisterTimestampCallback", result);
        return false;
    }
    result = api.cuptiActivityRegisterCallbacks(buffer_wanted, buffer_filled);
    if (result != 0)
        add_result(reason, "cuptiActivityRegisterCallbacks", result);
    return result == 0;
}

static void disable(size_t n) {
    while (n > 0)
        api.cuptiActivityDisable(kinds[--n]);
}

/* Who may not profile at all is not asked again. */
static bool enable(struct str *reason) {
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        int result = api.cuptiActivityEnable(kinds[i]);
        if (result == 0)
            continue;
        add_result(reason, "cuptiActivityEnable", result);
        is_refused = result == CUPTI_INSUFFICIENT_PRIVILEGES;
        disable(i);
        return false;
    }
    return true;
}

/* Returns whether CUPTI records from now on. */
static bool start(struct str *reason) {
    if (!has_opened && !open_library(reason)) {
        is_refused = true;
        return false;
    }
    has_opened = true;
    if (!has_callbacks)
        has_callbacks = set_callbacks(reason);
    return has_callbacks && enable(reason);
}

static bool start_or_say_why(void) {
    struct str reason = STR_INIT;
    bool is_started = start(&reason);
    if (!is_started && (why.len != reason.len || memcmp(why.data, reason.data, why.len) != 0))
        log_event(EVENT_GPU_TROUBLE, "times of traced steps are taken by events, without CUPTI: %s",
                  str_text(&reason));
    str_fini(&why);
    why = reason;
    return is_started;
}

void gpu_activity_describe(struct str *out) {
    if (is_off)
        return;
    pthread_mutex_lock(&control_lock);
    if (why.len > 0)
        str_addf(out, "; times of traced steps by events, because CUPTI cannot be used: %s",
                 str_text(&why));
    else if (has_opened)
        str_addf(out, "; times of traced steps by CUPTI %u", version);
    pthread_mutex_unlock(&control_lock);
}

/* ---- recordings ---- */

bool gpu_recording_begin(struct gpu_recording *recording) {
    if (is_off)
        return false;
    pthread_mutex_lock(&control_lock);
    bool is_on = n_recordings > 0 || (!is_refused && start_or_say_why());
    n_recordings += is_on;
    pthread_mutex_unlock(&control_lock);
    if (!is_on)
        return false;
    pthread_mutex_lock(&records_lock);
    recording->number = ++n_begun;
    recording->from = first_record + n_records;
    recording->next = recordings;
    recordings = recording;
    pthread_mutex_unlock(&records_lock);
    return true;
}

/* Forgets what no recording needs. With the records' lock. */
static void drop_records(void) {
    uint64_t from = first_record + n_records;
    for (const struct gpu_recording *at = recordings; at; at = at->next)
        from = MIN(from, at->from);
    size_t n = (size_t)(from - first_record);
    memmove(records, records + n, (n_records - n) * sizeof *records);
    n_records -= n;
    first_record = from;
    if (!recordings) {
        free(records);
        records = NULL;
        capacity = 0;
    }
}

void gpu_recording_end(struct gpu_recording *recording) {
    pthread_mutex_lock(&records_lock);
    struct gpu_recording **at = &recordings;
    while (*at != recording)
        at = &(*at)->next;
    *at = recording->next;
    if (n_records > 0)
        drop_records();
    pthread_mutex_unlock(&records_lock);
    pthread_mutex_lock(&control_lock);
    if (--n_recordings == 0)
        disable(ARRAY_LEN(kinds));
    pthread_mutex_unlock(&control_lock);
}

void gpu_activity_push(uint64_t mark) {
    api.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CUSTOM, mark);
}

void gpu_activity_pop(void) {
    uint64_t mark;
    api.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CUSTOM, &mark);
}

/* ---- reading ---- */

static int compare_correlations(const void *a, const void *b) {
    uint32_t x = ((const struct gpu_activity *)a)->correlation,
             y = ((const struct gpu_activity *)b)->correlation;
    return x < y ? -1 : x > y;
}

static int compare_activities(const void *a, const void *b) {
    const struct gpu_activity *x = a, *y = b;
    if (x->mark != y->mark)
        return x->mark < y->mark ? -1 : 1;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

/* Copies the records of one sort from a number on. With the records' lock. */
static struct gpu_activity *copy_records(uint64_t from, bool is_mark, size_t *ret_n) {
    struct gpu_activity *copies = xcalloc(n_records + 1, sizeof *copies);
    size_t n = 0;
    for (size_t i = (size_t)(from - first_record); i < n_records; i++)
        if (records[i].is_mark == is_mark)
            copies[n++] = records[i].activity;
    *ret_n = n;
    return copies;
}

struct gpu_activity *gpu_recording_read(struct gpu_recording *recording, bool is_forced,
                                        size_t *ret_n) {
    size_t n_marks, n_activities, n = 0;
    pthread_mutex_lock(&control_lock);
    api.cuptiActivityFlushAll(is_forced ? CUPTI_FLUSH_FORCED : 0);
    pthread_mutex_unlock(&control_lock);
    pthread_mutex_lock(&records_lock);
    struct gpu_activity *marks = copy_records(recording->from, true, &n_marks);
    struct gpu_activity *activities = copy_records(recording->from, false, &n_activities);
    pthread_mutex_unlock(&records_lock);
    qsort(marks, n_marks, sizeof *marks, compare_correlations);
    for (size_t i = 0; i < n_activities; i++) {
        const struct gpu_activity *mark =
            bsearch(&activities[i], marks, n_marks, sizeof *marks, compare_correlations);
        if (!mark || mark->mark >> GPU_MARK_BITS != recording->number)
            continue;
        activities[n] = activities[i];
        activities[n++].mark = mark->mark;
    }
    free(marks);
    qsort(activities, n, sizeof *activities, compare_activities);
    *ret_n = n;
    return activities;
}
