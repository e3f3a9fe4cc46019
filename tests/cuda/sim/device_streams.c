/* The queues of the streams, and which operation runs next: any legal order, by the seed. */
#include "tests/cuda/sim/device.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The driver makes a launch wait when about this many operations are queued in a stream. */
enum { MAX_QUEUED = 1000 };

struct stream {
    struct operation *first, *last;
    uint32_t n_queued;
    uint32_t device;
    uint32_t ended; /* the last operation that has ended */
    struct clocks clocks;
    struct time {
        uint32_t clock;
        uint64_t start_ns, end_ns;
    } * times; /* in the order of their clocks */
    size_t n_times, max_times;
};
static struct stream streams[SIM_MAX_STREAMS];

struct event {
    struct clocks clocks;
    uint32_t stream, clock; /* where it was recorded last; clock 0: never */
    uint64_t time_ns;       /* when that record ran */
};
static struct event *events[SIM_MAX_EVENTS];
static bool keeps_times;

int device_errors[SIM_MAX_DEVICES];
bool devices_are_held;

void device_fail(uint32_t device, int error) {
    if (device_errors[device] != 0)
        return;
    device_errors[device] = error;
    struct sim_answer answer = {.kind = SIM_ERROR, .device = device, .result = error};
    answer_send(&answer, NULL);
}

static struct event *event_at(uint32_t number) {
    if (events[number] == NULL)
        events[number] = calloc(1, sizeof **events);
    if (events[number] == NULL)
        abort();
    return events[number];
}

static const char *operation_name(const struct sim_message *message, const void *bytes) {
    switch (message->command) {
    case SIM_KERNEL:
        return kernels_name(((const struct sim_launch *)bytes)->kernel);
    case SIM_HOST:
        return host_functions_name(((const struct sim_host_operation *)bytes)->function);
    case SIM_COPY_IN:
        return "copy to the device";
    case SIM_COPY_OUT:
        return "copy to the host";
    case SIM_COPY:
        return "copy";
    case SIM_FILL:
        return "fill";
    case SIM_BLOCK_NEW:
        return "new block";
    case SIM_BLOCK_FREED:
        return "freed block";
    default:
        return "event";
    }
}

/* Clocks follow from the order in which the host enqueues, whatever the order of running. */
static void operation_order(struct operation *operation, struct stream *stream) {
    struct sim_message *message = &operation->message;
    clocks_join(&stream->clocks, &host_clocks);
    if (message->command == SIM_WAIT) {
        struct event *event = event_at(message->event);
        operation->waits_stream = event->stream;
        operation->waits_clock = event->clock;
        clocks_join(&stream->clocks, &event->clocks);
    }
    stream->clocks.of[message->stream] = message->clock;
    operation->clocks = stream->clocks;
    if (message->command == SIM_RECORD) {
        struct event *event = event_at(message->event);
        event->stream = message->stream;
        event->clock = message->clock;
        event->clocks = stream->clocks;
    }
}

void stream_enqueue(const struct sim_message *message, const void *bytes) {
    struct stream *stream = &streams[message->stream];
    struct operation *operation = malloc(sizeof *operation + message->n_bytes + 1);
    if (operation == NULL)
        abort();
    *operation = (struct operation){.message = *message,
                                    .name = name_intern(operation_name(message, bytes))};
    memcpy(operation->bytes, bytes, message->n_bytes);
    stream->device = message->device;
    operation_order(operation, stream);
    if (stream->first == NULL)
        stream->first = operation;
    else
        stream->last->next = operation;
    stream->last = operation;
    if (++stream->n_queued <= MAX_QUEUED)
        return;
    if (!devices_are_held)
        stream_run_until(message->stream, stream->first->message.clock);
    else if (stream->n_queued == MAX_QUEUED + 1)
        report("the driver would make its caller wait: %u operations are queued",
               (unsigned)stream->n_queued);
}

bool stream_has_ended(uint32_t stream, uint32_t clock) { return streams[stream].ended >= clock; }

static bool is_ready(const struct stream *stream) {
    const struct operation *first = stream->first;
    return first != NULL && (first->message.command != SIM_WAIT ||
                             stream_has_ended(first->waits_stream, first->waits_clock));
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void note_time(const struct operation *operation) {
    struct event *event = event_at(operation->message.event);
    if (event->stream == operation->message.stream && event->clock == operation->message.clock)
        event->time_ns = now_ns();
}

static void keep_time(struct stream *stream, uint32_t clock, uint64_t start_ns) {
    if (stream->n_times == stream->max_times) {
        stream->max_times = 2 * stream->max_times + 256;
        stream->times = realloc(stream->times, stream->max_times * sizeof *stream->times);
        if (stream->times == NULL)
            abort();
    }
    stream->times[stream->n_times++] = (struct time){clock, start_ns, now_ns()};
}

static void run_first(struct stream *stream) {
    struct operation *operation = stream->first;
    uint64_t start_ns = keeps_times ? now_ns() : 0;
    stream->first = operation->next;
    stream->n_queued--;
    if (operation->message.command == SIM_RECORD)
        note_time(operation);
    else if (device_errors[stream->device] == 0)
        operation_run(operation);
    if (keeps_times)
        keep_time(stream, operation->message.clock, start_ns);
    stream->ended = operation->message.clock;
    free(operation);
}

/* The stream whose first operation has to run for the stream to go on. */
static struct stream *needed_for(struct stream *stream) {
    while (!is_ready(stream))
        stream = &streams[stream->first->waits_stream];
    return stream;
}

static struct stream *draw_ready(void) {
    struct stream *ready[SIM_MAX_STREAMS];
    int n = 0;
    for (int s = 0; s < SIM_MAX_STREAMS; s++)
        if (is_ready(&streams[s]))
            ready[n++] = &streams[s];
    return n == 0 ? NULL : ready[draw((uint64_t)n)];
}

/* How each seed behaves, in eighths: how readily an operation runs when it arrives, and how often
 * what runs is what is waited for. 0 and 8 together are the laziest device. */
static int eagerness = -1, focus;

static void draw_habits(void) {
    static const int eagernesses[] = {0, 1, 4, 8}, focuses[] = {0, 4, 8};
    eagerness = settings.order == ORDER_DRAWN ? eagernesses[draw(4)]
                                              : (settings.order == ORDER_LAZY ? 0 : 8);
    focus = settings.order == ORDER_DRAWN ? focuses[draw(3)] : 8;
}

void stream_run_until(uint32_t number, uint32_t clock) {
    if (eagerness < 0)
        draw_habits();
    struct stream *stream = &streams[number];
    while (stream->ended < clock && stream->first != NULL)
        run_first(draw(8) < (uint64_t)focus ? needed_for(stream) : draw_ready());
}

void stream_run_one_for(uint32_t number) {
    if (streams[number].first != NULL)
        run_first(needed_for(&streams[number]));
}

void streams_run_one(void) {
    struct stream *stream = draw_ready();
    if (stream != NULL)
        run_first(stream);
}

void streams_run_device(uint32_t device) {
    for (uint32_t s = 0; s < SIM_MAX_STREAMS; s++)
        if (streams[s].device == device && streams[s].first != NULL)
            stream_run_until(s, streams[s].last->message.clock);
}

bool streams_run_some(void) {
    if (eagerness < 0)
        draw_habits();
    while (draw(8) < (uint64_t)eagerness) {
        struct stream *stream = draw_ready();
        if (stream == NULL)
            return false;
        run_first(stream);
    }
    return settings.order != ORDER_LAZY && draw_ready() != NULL;
}

void streams_drop(uint32_t device) {
    for (int s = 0; s < SIM_MAX_STREAMS; s++) {
        struct stream *stream = &streams[s];
        while (stream->device == device && stream->first != NULL) {
            struct operation *operation = stream->first;
            stream->first = operation->next;
            stream->n_queued--;
            stream->ended = operation->message.clock;
            free(operation);
        }
    }
}

struct clocks streams_clocks_after(uint32_t device) {
    struct clocks all = {{0}};
    for (int s = 0; s < SIM_MAX_STREAMS; s++)
        if (streams[s].device == device)
            clocks_join(&all, &streams[s].clocks);
    return all;
}

struct clocks stream_clocks(uint32_t stream) {
    return streams[stream].clocks;
}

struct clocks event_clocks(uint32_t number) {
    return event_at(number)->clocks;
}

void streams_keep_times(void) { keeps_times = true; }

bool stream_time(uint32_t number, uint32_t clock, uint64_t *ret_start_ns, uint64_t *ret_end_ns) {
    const struct stream *stream = &streams[number];
    for (size_t i = stream->n_times; i > 0 && stream->times[i - 1].clock >= clock; i--)
        if (stream->times[i - 1].clock == clock) {
            *ret_start_ns = stream->times[i - 1].start_ns;
            *ret_end_ns = stream->times[i - 1].end_ns;
            return true;
        }
    return false;
}

uint64_t event_elapsed_ns(uint32_t start, uint32_t end) {
    return event_at(end)->time_ns - event_at(start)->time_ns;
}
