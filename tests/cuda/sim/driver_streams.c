/* Streams, events, copies and fills. */
#include "tests/cuda/sim/driver.h"
#include <stdlib.h>
#include <string.h>

enum { STREAM_MAGIC = 0x5354524d, EVENT_MAGIC = 0x45564e54 };

struct CUevent_st {
    uint32_t magic, number;
    int device;
    unsigned flags;
    uint32_t stream, clock; /* where it was recorded last; clock 0: never */
    int stream_device;
    struct CUevent_st *next;
};

/* Guarded by the link's lock. */
static struct CUstream_st *streams;
static struct CUevent_st *events;
static bool stream_numbers[SIM_MAX_STREAMS];
static uint32_t clocks[SIM_MAX_STREAMS]; /* operations so far; they go on with the next stream */
static bool event_numbers[SIM_MAX_EVENTS];
static uint32_t n_streams_ever, n_events_ever;

/* ---- streams ---- */

CUresult cuStreamCreateWithPriority(CUstream *ret_stream, unsigned flags, int priority) {
    struct CUctx_st *context;
    BEGIN(cuStreamCreateWithPriority);
    TRY(context_now(&context));
    if ((flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link_lock();
    /* In turn: operations of a destroyed stream still run under its number. */
    uint32_t number = n_streams_ever % SIM_MAX_STREAMS, n_tried = 0;
    for (; n_tried < SIM_MAX_STREAMS && stream_numbers[number]; n_tried++)
        number = (number + 1) % SIM_MAX_STREAMS;
    bool is_free = n_tried < SIM_MAX_STREAMS;
    if (is_free) {
        n_streams_ever = number + 1;
        stream_numbers[number] = true;
        *stream = (struct CUstream_st){.magic = STREAM_MAGIC,
                                       .number = number,
                                       .device = context->device,
                                       .priority = priority,
                                       .next = streams};
        streams = stream;
    }
    link_unlock();
    if (!is_free) {
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

/* The handles 0, 1 and 2 are the legacy and the per-thread default stream: not simulated. */
CUresult stream_check(CUstream stream, const struct CUctx_st *context) {
    if ((uint64_t)stream <= 2)
        return CUDA_ERROR_NOT_SUPPORTED;
    return stream->magic == STREAM_MAGIC && (context == NULL || stream->device == context->device)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_begin(CUstream stream, enum sim_command command, struct sim_message *message) {
    struct CUctx_st *context;
    TRY(context_now(&context));
    TRY(stream_check(stream, context));
    TRY(capture_check(stream, command));
    link_lock();
    message->command = command;
    message->device = (uint32_t)stream->device;
    message->stream = stream->number;
    message->clock = stream->capture != NULL ? 0 : ++clocks[stream->number];
    return CUDA_SUCCESS;
}

void stream_finish(const struct sim_message *message, const void *bytes) {
    bool is_captured = capture_add(message, bytes);
    if (!is_captured)
        link_send(message, bytes, -1);
    link_unlock();
    if (!is_captured)
        watch_operation(message, bytes);
}

/* Waits until an operation has ended, or asks whether it has. Under the lock, which is released. */
static CUresult wait_for(int device, uint32_t stream, uint32_t clock, uint32_t event, bool waits) {
    struct sim_message message = {.command = SIM_SYNCHRONIZE,
                                  .device = (uint32_t)device,
                                  .stream = stream,
                                  .clock = clock,
                                  .event = event,
                                  .value = !waits};
    struct sim_answer answer;
    return link_request(&message, NULL, &answer);
}

static CUresult stream_wait(CUstream stream, bool waits) {
    TRY(stream_check(stream, NULL));
    TRY((CUresult)atomic_load(&device_errors[stream->device]));
    TRY(capture_refuse(stream));
    link_lock();
    return wait_for(stream->device, stream->number, clocks[stream->number], 0, waits);
}

CUresult cuStreamSynchronize(CUstream stream) {
    BEGIN(cuStreamSynchronize);
    return stream_wait(stream, true);
}

CUresult cuStreamQuery(CUstream stream) {
    BEGIN(cuStreamQuery);
    return stream_wait(stream, false);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    BEGIN(cuStreamDestroy_v2);
    TRY(stream_check(stream, NULL));
    link_lock();
    for (struct CUstream_st **at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    capture_drop(stream);
    stream_numbers[stream->number] = false;
    stream->magic = 0;
    free(stream);
    link_unlock();
    return CUDA_SUCCESS;
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *ret_event, unsigned flags) {
    struct CUctx_st *context;
    BEGIN(cuEventCreate);
    TRY(context_now(&context));
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (event == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link_lock();
    uint32_t number = 0; /* the next free one in turn; 0 is none's */
    for (uint32_t i = 0; number == 0 && i < SIM_MAX_EVENTS - 1; i++) {
        uint32_t candidate = 1 + n_events_ever++ % (SIM_MAX_EVENTS - 1);
        number = event_numbers[candidate] ? 0 : candidate;
    }
    if (number != 0) {
        event_numbers[number] = true;
        *event = (struct CUevent_st){.magic = EVENT_MAGIC,
                                     .number = number,
                                     .device = context->device,
                                     .flags = flags,
                                     .next = events};
        events = event;
    }
    link_unlock();
    if (number == 0) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_event = event;
    return CUDA_SUCCESS;
}

static CUresult event_check(CUevent event) {
    return event != NULL && event->magic == EVENT_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventDestroy_v2(CUevent event) {
    BEGIN(cuEventDestroy_v2);
    TRY(event_check(event));
    link_lock();
    for (struct CUevent_st **at = &events; *at != NULL; at = &(*at)->next)
        if (*at == event) {
            *at = event->next;
            break;
        }
    event_numbers[event->number] = false;
    event->magic = 0;
    free(event);
    link_unlock();
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    struct sim_message message = {0};
    BEGIN(cuEventRecord);
    TRY(event_check(event));
    TRY(stream_check(stream, NULL));
    if (event->device != stream->device)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_begin(stream, SIM_RECORD, &message));
    message.event = event->number;
    event->stream = message.stream;
    event->stream_device = stream->device;
    event->clock = message.clock;
    stream_finish(&message, NULL);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    struct sim_message message = {0};
    BEGIN(cuStreamWaitEvent);
    TRY(event_check(event));
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_begin(stream, SIM_WAIT, &message));
    message.event = event->number;
    if (event->clock == 0)
        message.command = SIM_NOTHING; /* it was never recorded */
    stream_finish(&message, NULL);
    return CUDA_SUCCESS;
}

static CUresult event_wait(CUevent event, bool waits) {
    TRY(event_check(event));
    TRY((CUresult)atomic_load(&device_errors[event->device]));
    link_lock();
    if (event->clock == 0) {
        link_unlock();
        return CUDA_SUCCESS;
    }
    return wait_for(event->stream_device, event->stream, event->clock, event->number, waits);
}

CUresult cuEventSynchronize(CUevent event) {
    BEGIN(cuEventSynchronize);
    return event_wait(event, true);
}

CUresult cuEventQuery(CUevent event) {
    BEGIN(cuEventQuery);
    return event_wait(event, false);
}

CUresult cuEventElapsedTime(float *ret_ms, CUevent start, CUevent end) {
    struct sim_answer answer;
    BEGIN(cuEventElapsedTime);
    TRY(event_check(start));
    TRY(event_check(end));
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || start->clock == 0 ||
        end->clock == 0)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(event_wait(start, false));
    TRY(event_wait(end, false));
    link_lock();
    TRY(link_request(&(struct sim_message){.command = SIM_ELAPSED,
                                           .device = (uint32_t)end->device,
                                           .at = start->number,
                                           .from = end->number},
                     NULL, &answer));
    *ret_ms = (float)(int64_t)answer.value * 1e-6f;
    return CUDA_SUCCESS;
}

void streams_reset(int device) {
    for (struct CUstream_st **at = &streams; *at != NULL;) {
        struct CUstream_st *stream = *at;
        if (stream->device != device) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        stream_numbers[stream->number] = false;
        free(stream);
    }
    for (struct CUevent_st **at = &events; *at != NULL;) {
        struct CUevent_st *event = *at;
        if (event->device != device) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        event_numbers[event->number] = false;
        free(event);
    }
}

/* ---- copies and fills ---- */

static CUresult copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    struct sim_message message = {.at = to, .size = size};
    TRY(stream_begin(stream, SIM_COPY_IN, &message));
    bool is_pinned = pinned_find(from, size, &message.value, &message.from);
    if (!is_pinned)
        message.command = SIM_NOTHING; /* its number is taken already */
    else
        pinned_protect(from, size, false, &message);
    pinned_check_pages(from);
    stream_finish(&message, NULL);
    if (is_pinned)
        return CUDA_SUCCESS;
    link_report("a copy from memory that is not pinned");
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    BEGIN(cuMemcpyHtoDAsync_v2);
    return size == 0 ? CUDA_SUCCESS : copy_in(to, from, size, stream);
}

/* A graph protects the memory when it is launched. */
static void finish_copy_out(CUstream stream, const struct sim_message *message, void *to) {
    bool is_captured = capture_add(message, NULL);
    if (is_captured)
        capture_name_host(stream, to);
    else
        link_send(message, NULL, -1);
    link_unlock();
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    struct sim_message message = {.from = from, .size = size};
    TRY(stream_begin(stream, SIM_COPY_OUT, &message));
    bool is_pinned = pinned_find(to, size, &message.value, &message.at),
         may_write = is_pinned && pinned_may_write(to);
    if (!may_write)
        message.command = SIM_NOTHING;
    else if (stream->capture == NULL)
        pinned_protect(to, size, true, &message);
    pinned_check_pages(to);
    finish_copy_out(stream, &message, to);
    if (may_write)
        return CUDA_SUCCESS;
    link_report(is_pinned ? "a copy to memory that was registered as READ_ONLY"
                          : "a copy to memory that is not pinned");
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    BEGIN(cuMemcpyDtoHAsync_v2);
    return size == 0 ? CUDA_SUCCESS : copy_out(to, from, size, stream);
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size, bool is_peer, CUstream stream) {
    struct sim_message message = {.at = to, .from = from, .size = size, .value = is_peer};
    if (size == 0)
        return CUDA_SUCCESS;
    TRY(stream_begin(stream, SIM_COPY, &message));
    stream_finish(&message, NULL);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    BEGIN(cuMemcpyDtoDAsync_v2);
    return copy(to, from, size, false, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t size, CUstream stream) {
    BEGIN(cuMemcpyPeerAsync);
    if (to_context == NULL || from_context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim.has_peers && to_context != from_context)
        return CUDA_ERROR_NOT_SUPPORTED;
    return copy(to, from, size, true, stream);
}

static CUresult fill(CUdeviceptr to, unsigned value, size_t width, size_t n, CUstream stream) {
    struct sim_message message = {.at = to, .from = width, .size = n * width, .value = value};
    if (to % width != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (n == 0)
        return CUDA_SUCCESS;
    TRY(stream_begin(stream, SIM_FILL, &message));
    stream_finish(&message, NULL);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
    BEGIN(cuMemsetD8Async);
    return fill(to, value, 1, n, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, CUstream stream) {
    BEGIN(cuMemsetD32Async);
    return fill(to, value, 4, n, stream);
}
