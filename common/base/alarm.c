/* Keeps alarms in a binary heap by time (alarm.h). Each alarm knows its position in the heap, so
 * that it can be removed. */
#include "common/base/alarm.h"

#include <pthread.h>
#include <stdlib.h>

struct alarm_clock {
    struct alarm_clock_options options;
    bool is_closing;      /* used by the driver's thread only */
    pthread_mutex_t lock; /* guards the fields below */
    struct alarm **heap;  /* [1 … n]: [0] is not used */
    size_t n, capacity;
};

struct alarm_clock *alarm_clock_new(const struct alarm_clock_options *options) {
    struct alarm_clock *clock = xcalloc(1, sizeof(*clock));
    clock->options = *options;
    CHECK(pthread_mutex_init(&clock->lock, NULL) == 0);
    return clock;
}

/* In a clock that is being freed every alarm is due. */
int64_t alarm_clock_now_ns(const struct alarm_clock *clock) {
    return clock->is_closing ? INT64_MAX - 1 : clock->options.now_ns(clock->options.arg);
}

/* ---- the heap, with the lock held ---- */

static void put(struct alarm_clock *clock, size_t place, struct alarm *alarm) {
    clock->heap[place] = alarm;
    alarm->place = place;
}

static void sift_up(struct alarm_clock *clock, size_t place, struct alarm *alarm) {
    for (; place > 1 && clock->heap[place / 2]->at_ns > alarm->at_ns; place /= 2)
        put(clock, place, clock->heap[place / 2]);
    put(clock, place, alarm);
}

static void sift_down(struct alarm_clock *clock, size_t place, struct alarm *alarm) {
    for (size_t child; (child = 2 * place) <= clock->n; place = child) {
        if (child < clock->n && clock->heap[child + 1]->at_ns < clock->heap[child]->at_ns)
            child++;
        if (clock->heap[child]->at_ns >= alarm->at_ns)
            break;
        put(clock, place, clock->heap[child]);
    }
    put(clock, place, alarm);
}

static void insert(struct alarm_clock *clock, struct alarm *alarm) {
    if (clock->n + 1 >= clock->capacity) {
        clock->capacity = MAX(2 * clock->capacity, (size_t)8);
        clock->heap = xreallocarray(clock->heap, clock->capacity, sizeof(*clock->heap));
    }
    sift_up(clock, ++clock->n, alarm);
}

static void take_out(struct alarm_clock *clock, struct alarm *alarm) {
    size_t place = alarm->place;
    struct alarm *last = clock->heap[clock->n--];
    alarm->place = 0;
    if (last == alarm)
        return;
    if (place > 1 && clock->heap[place / 2]->at_ns > last->at_ns)
        sift_up(clock, place, last);
    else
        sift_down(clock, place, last);
}

/* ---- the public functions ---- */

void alarm_set(struct alarm_clock *clock, struct alarm *alarm, int64_t after_us) {
    int64_t now_ns = alarm_clock_now_ns(clock);
    alarm->at_ns = after_us < (INT64_MAX - now_ns) / 1000
                       ? now_ns + MAX(after_us, (int64_t)0) * 1000
                       : INT64_MAX - 1;
    pthread_mutex_lock(&clock->lock);
    CHECK(alarm->place == 0);
    insert(clock, alarm);
    bool is_first = alarm->place == 1;
    pthread_mutex_unlock(&clock->lock);
    if (is_first && !clock->is_closing)
        clock->options.wake(clock->options.arg);
}

bool alarm_clear(struct alarm_clock *clock, struct alarm *alarm) {
    pthread_mutex_lock(&clock->lock);
    bool was_set = alarm->place != 0;
    if (was_set)
        take_out(clock, alarm);
    pthread_mutex_unlock(&clock->lock);
    return was_set;
}

/* Removes and returns the next alarm that is due at that time. Otherwise returns NULL, and
 * *ret_next is when the next one will be due. */
static struct alarm *take_due(struct alarm_clock *clock, int64_t now_ns, int64_t *ret_next_ns) {
    pthread_mutex_lock(&clock->lock);
    struct alarm *first = clock->n > 0 ? clock->heap[1] : NULL;
    *ret_next_ns = first ? first->at_ns : INT64_MAX;
    if (first && first->at_ns <= now_ns)
        take_out(clock, first);
    else
        first = NULL;
    pthread_mutex_unlock(&clock->lock);
    return first;
}

int64_t alarm_clock_run(struct alarm_clock *clock) {
    int64_t next_ns, now_ns = alarm_clock_now_ns(clock);
    for (struct alarm *alarm; (alarm = take_due(clock, now_ns, &next_ns));)
        alarm->ring(alarm);
    return next_ns;
}

void alarm_clock_free(struct alarm_clock *clock) {
    int64_t next_ns;
    if (!clock)
        return;
    clock->is_closing = true;
    for (struct alarm *alarm; (alarm = take_due(clock, INT64_MAX, &next_ns));)
        alarm->ring(alarm);
    pthread_mutex_destroy(&clock->lock);
    free(clock->heap);
    free(clock);
}
