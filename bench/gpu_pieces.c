/* What does it gain to move a value piece by piece (worker/exchange/peer_pieces.h and
 * peer_arrivals.h), without the messages: a device's copies and a link, one after the other and at
 * the same time (gpu_pieces.h). */
#include "bench/gpu_pieces.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/tensor/growing_buffer.h"
#include "tests/tools/test_device.h"

enum { ROUNDS = 9, PIECE_BYTES = 4 << 20 };

struct bench {
    struct device *device;
    size_t size_bytes;
    char *there;             /* the other end's memory */
    struct tensor on_device; /* what is sent */
    double rates[5][ROUNDS]; /* in the order of struct pieces_rates */
};

static void must(struct status *st) {
    if (!st)
        return;
    fprintf(stderr, "gpu_pieces: %s\n", status_message(st));
    exit(70);
}

/* ---- a copy or a wait, and a thread that waits for it ---- */

struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_come;
};

static void event_init(struct event *event) {
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    event->has_come = false;
}

static void event_come(struct event *event) {
    pthread_mutex_lock(&event->lock);
    event->has_come = true;
    pthread_cond_signal(&event->changed);
    pthread_mutex_unlock(&event->lock);
}

static void event_await(struct event *event) {
    pthread_mutex_lock(&event->lock);
    while (!event->has_come)
        pthread_cond_wait(&event->changed, &event->lock);
    event->has_come = false;
    pthread_mutex_unlock(&event->lock);
}

struct transfer {
    struct device_copy copy;
    struct event ended;
};

static void on_copied(struct device_copy *copy) {
    event_come(&CONTAINER_OF(copy, struct transfer, copy)->ended);
}

static void transfer_start(struct transfer *transfer, struct bench *bench, bool is_in,
                           const struct tensor *from, struct tensor *ret) {
    transfer->copy =
        (struct device_copy){.src = is_in ? NULL : bench->device,
                             .dst = is_in ? bench->device : NULL,
                             .allocator = is_in ? bench->device->allocator : allocator_host(),
                             .ret = ret,
                             .on_done = on_copied,
                             .growing = transfer->copy.growing};
    event_init(&transfer->ended);
    tensor_copy(&transfer->copy.from, from);
    if (bench->device->ops->copy_start(bench->device, &transfer->copy))
        event_come(&transfer->ended);
}

static void transfer_end(struct transfer *transfer) {
    event_await(&transfer->ended);
    must(transfer->copy.status);
}

/* ---- the link ---- */

static size_t piece_end(const struct bench *bench, size_t begin) {
    return MIN(begin + PIECE_BYTES, bench->size_bytes);
}

static void link_move(const struct bench *bench, char *to, const char *from) {
    for (size_t at = 0; at < bench->size_bytes; at = piece_end(bench, at))
        memcpy(to + at, from + at, piece_end(bench, at) - at);
}

struct piece_wait {
    struct growing_wait wait;
    struct event reached;
};

static void on_reached(struct growing_wait *wait) {
    event_come(&CONTAINER_OF(wait, struct piece_wait, wait)->reached);
}

static void await_bytes(struct buffer *growing, struct piece_wait *piece, size_t n_bytes) {
    piece->wait.on_reached = on_reached;
    if (!growing_buffer_wait(growing, &piece->wait, n_bytes))
        event_await(&piece->reached);
}

/* ---- rounds ---- */

static struct tensor host_value(const struct bench *bench, struct buffer *buffer) {
    struct tensor value = TENSOR_INIT;
    int64_t n = (int64_t)bench->size_bytes;
    must(tensor_view(buffer, buffer->data, DT_UINT8, (struct shape){1, &n}, &value));
    return value;
}

static void send_whole(struct bench *bench) {
    struct transfer transfer = {.copy = {.growing = NULL}};
    struct tensor value = TENSOR_INIT;
    transfer_start(&transfer, bench, false, &bench->on_device, &value);
    transfer_end(&transfer);
    link_move(bench, bench->there, tensor_cdata(&value));
    tensor_clear(&value);
}

static void send_in_pieces(struct bench *bench) {
    struct buffer *growing = growing_buffer_new(allocator_host(), bench->size_bytes);
    struct transfer transfer = {.copy = {.growing = growing}};
    struct piece_wait piece;
    struct tensor unused = TENSOR_INIT;
    CHECK(growing);
    event_init(&piece.reached);
    transfer_start(&transfer, bench, false, &bench->on_device, &unused);
    for (size_t at = 0, end; at < bench->size_bytes; at = end) {
        end = piece_end(bench, at);
        await_bytes(growing, &piece, end);
        memcpy(bench->there + at, growing->data + at, end - at);
    }
    transfer_end(&transfer);
    growing_buffer_end(growing, NULL);
    buffer_unref(growing);
}

static void receive_whole(struct bench *bench) {
    struct buffer *buffer = buffer_alloc(allocator_host(), bench->size_bytes);
    struct transfer transfer = {.copy = {.growing = NULL}};
    struct tensor value = host_value(bench, buffer), ret = TENSOR_INIT;
    link_move(bench, buffer->data, bench->there);
    transfer_start(&transfer, bench, true, &value, &ret);
    transfer_end(&transfer);
    must(test_device_wait(bench->device));
    tensor_clear(&value);
    tensor_clear(&ret);
    buffer_unref(buffer);
}

static void receive_in_pieces(struct bench *bench) {
    struct buffer *growing = growing_buffer_new(allocator_host(), bench->size_bytes);
    struct transfer transfer = {.copy = {.growing = NULL}};
    CHECK(growing);
    struct tensor value = host_value(bench, growing), ret = TENSOR_INIT;
    transfer_start(&transfer, bench, true, &value, &ret);
    for (size_t at = 0, end; at < bench->size_bytes; at = end) {
        end = piece_end(bench, at);
        memcpy(growing->data + at, bench->there + at, end - at);
        growing_buffer_advance(growing, end);
    }
    growing_buffer_end(growing, NULL);
    transfer_end(&transfer);
    must(test_device_wait(bench->device));
    tensor_clear(&value);
    tensor_clear(&ret);
    buffer_unref(growing);
}

static void link_alone(struct bench *bench) {
    struct buffer *buffer = buffer_alloc(allocator_host(), bench->size_bytes);
    link_move(bench, buffer->data, bench->there);
    buffer_unref(buffer);
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void measure_pieces(struct device *device, size_t size_bytes, struct pieces_rates *ret) {
    static void (*const ways[5])(struct bench *) = {send_whole, send_in_pieces, receive_whole,
                                                    receive_in_pieces, link_alone};
    double *rates[5] = {&ret->sent_whole, &ret->sent_in_pieces, &ret->received_whole,
                        &ret->received_in_pieces, &ret->link};
    struct bench bench = {.device = device, .size_bytes = size_bytes, .there = xmalloc(size_bytes)};
    struct buffer *first = buffer_alloc(allocator_host(), size_bytes);
    struct tensor value = host_value(&bench, first);
    memset(first->data, 1, size_bytes);
    memset(bench.there, 1, size_bytes);
    must(test_device_upload(device, &value, &bench.on_device));
    for (int r = -1; r < ROUNDS; r++) /* the first round warms up; ways alternate */
        for (int i = 0; i < 5; i++) {
            int64_t began = clock_now_ns();
            ways[i](&bench);
            if (r >= 0)
                bench.rates[i][r] = (double)size_bytes / ((double)(clock_now_ns() - began) / 1e9);
        }
    for (int i = 0; i < 5; i++) {
        qsort(bench.rates[i], ROUNDS, sizeof(double), compare_double);
        *rates[i] = bench.rates[i][ROUNDS / 2];
    }
    tensor_clear(&bench.on_device);
    tensor_clear(&value);
    buffer_unref(first);
    free(bench.there);
}
