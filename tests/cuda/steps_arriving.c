/* A mode of cuda_steps, and one of its programs: values that are copied to a GPU while they arrive,
 * as a connection fills them.
 *
 *   connection ── growing buffer ──► GPU:0 ──► private memory */
#include "tests/cuda/steps.h"

#include <stdio.h>

#include "common/tensor/growing_buffer.h"

enum {
    PIECE = 4 << 20, /* of the plugin */
    N_FLOATS = (18 << 20) / 4 + 3,
    VALUE_BYTES = N_FLOATS * 4,
    N_PIECES = 5,
};

/* To or from GPU:0. */
static void start_copy(struct transfer *transfer, bool is_in, const struct tensor *from,
                       struct tensor *ret) {
    transfer_start(transfer, is_in ? 0 : 1, is_in ? 1 : 0, allocator_host(), from, ret);
}

static struct status *copy(bool is_in, const struct tensor *from, struct tensor *ret) {
    struct transfer transfer;
    start_copy(&transfer, is_in, from, ret);
    return transfer_end(&transfer);
}

/* ---- a value that arrives ---- */

struct arrival {
    struct buffer *growing;
    struct tensor value, made, back;
    struct transfer transfer;
    uint32_t seed;
};

static uint32_t bits_of(uint32_t i, uint32_t seed) { return i * 2654435761u + seed; }

static void arrival_begin(struct arrival *arrival, uint32_t seed) {
    int64_t n = N_FLOATS;
    *arrival = (struct arrival){.growing = growing_buffer_new(allocator_host(), VALUE_BYTES),
                                .value = TENSOR_INIT,
                                .made = TENSOR_INIT,
                                .back = TENSOR_INIT,
                                .seed = seed};
    CHECK(arrival->growing);
    struct status *st = tensor_view(arrival->growing, arrival->growing->data, DT_FLOAT,
                                    (struct shape){1, &n}, &arrival->value);
    CHECK(!st);
    start_copy(&arrival->transfer, true, &arrival->value, &arrival->made);
}

static void fill(struct arrival *arrival, size_t n_bytes) {
    uint32_t *bits = (uint32_t *)(void *)arrival->growing->data;
    size_t i = growing_buffer_filled(arrival->growing) / 4;
    for (; i < n_bytes / 4; i++)
        bits[i] = bits_of((uint32_t)i, arrival->seed);
    growing_buffer_advance(arrival->growing, n_bytes);
}

static void fill_to_the_end(struct arrival *arrival) {
    fill(arrival, VALUE_BYTES);
    growing_buffer_end(arrival->growing, NULL);
}

static struct status *check(struct arrival *arrival) {
    TRY(copy(false, &arrival->made, &arrival->back));
    const uint32_t *bits = (const uint32_t *)(const void *)tensor_cdata(&arrival->back);
    for (uint32_t i = 0; i < N_FLOATS; i++)
        if (bits[i] != bits_of(i, arrival->seed))
            return status_internal("a wrong value at %u", i);
    return NULL;
}

static void arrival_fini(struct arrival *arrival) {
    tensor_clear(&arrival->value);
    tensor_clear(&arrival->made);
    tensor_clear(&arrival->back);
    buffer_unref(arrival->growing);
}

/* ---- the program ---- */

/* Two values at once, in parts of no round size, and an ordinary one meanwhile. */
static struct status *receive_two(uint32_t seed) {
    struct arrival two[2];
    struct tensor other = TENSOR_INIT, made = TENSOR_INIT;
    int64_t n = 1 << 20;
    for (int i = 0; i < 2; i++)
        arrival_begin(&two[i], seed + (uint32_t)i);
    struct status *st = tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &other);
    CHECK(!st);
    memset(tensor_data(&other), 0, (size_t)n * 4);
    for (size_t at = 0; at + 1234568 < VALUE_BYTES; at += 1234568)
        for (int i = 0; i < 2; i++)
            fill(&two[i], at);
    st = copy(true, &other, &made);
    for (int i = 0; i < 2; i++) {
        fill_to_the_end(&two[i]);
        struct status *ended = transfer_end(&two[i].transfer);
        if (!ended && !st)
            ended = check(&two[i]);
        if (!st)
            st = ended;
        else
            status_unref(ended);
        arrival_fini(&two[i]);
    }
    tensor_clear(&other);
    tensor_clear(&made);
    return st;
}

bool run_arriving_program(void) {
    int n_ok = 0;
    for (int tries = 0; n_ok < 2 && tries < 2 + MAX_TRIES; tries++) {
        struct status *st = receive_two((uint32_t)tries);
        printf("arriving: %s%s\n", st ? "failed: " : "ok", st ? status_message(st) : "");
        n_ok += !st;
        status_unref(st);
    }
    return n_ok == 2;
}

/* ---- the mode ---- */

static bool is_well(const char *what, bool is_so) {
    printf("%s: %s\n", what, is_so ? "yes" : "no");
    return is_so;
}

static int64_t in_use(void) { return atomic_load(&devices[1].allocator->in_use_bytes); }

static unsigned long n_copies(void) { return driver.count("cuMemcpyHtoDAsync"); }

/* Each piece is copied before the next one is there, and other copies do not wait for it. */
static bool copies_each_piece(void) {
    struct arrival arrival, other;
    unsigned long before = n_copies();
    arrival_begin(&arrival, 1);
    for (unsigned i = 1; i < N_PIECES; i++) {
        fill(&arrival, (size_t)i * PIECE);
        await_calls("cuMemcpyHtoDAsync", before + i);
    }
    bool well = is_well("waits for the last piece", !atomic_load(&arrival.transfer.has_ended));
    well &= is_well("each piece was copied once", n_copies() == before + N_PIECES - 1);
    arrival_begin(&other, 2);
    fill_to_the_end(&other);
    struct status *st = transfer_end(&other.transfer);
    well &= is_well("another value passes it", !st && !check(&other));
    fill_to_the_end(&arrival);
    st = transfer_end(&arrival.transfer);
    well &= is_well("it is whole in the end", !st && !check(&arrival));
    arrival_fini(&arrival);
    arrival_fini(&other);
    return well;
}

static bool ends_with(struct arrival *arrival, struct status *why) {
    growing_buffer_end(arrival->growing, why);
    struct status *st = transfer_end(&arrival->transfer);
    bool is_so = status_code(st) == status_code(why) && arrival->made.storage == TENSOR_NONE;
    status_unref(st);
    arrival_fini(arrival);
    return is_so;
}

/* A value that stops after some pieces leaves no memory. */
static bool gives_back(void) {
    struct status *why = status_unavailable("the connection is lost");
    bool well = true;
    for (unsigned n = 0; n < N_PIECES; n++) {
        struct arrival arrival;
        int64_t before = in_use();
        unsigned long n_before = n_copies();
        arrival_begin(&arrival, n);
        fill(&arrival, (size_t)n * PIECE);
        await_calls("cuMemcpyHtoDAsync", n_before + n);
        well &= is_well("it ends with its failure", ends_with(&arrival, why));
        well &= is_well("its memory is given back", in_use() == before);
    }
    status_unref(why);
    return well;
}

/* The device is still copying a piece when the value is given up. */
static bool waits_for_the_device(void) {
    struct status *why = status_new(STATUS_CANCELLED, "cancelled");
    struct arrival arrival;
    int64_t before = in_use();
    unsigned long n_before = n_copies();
    CHECK(driver.hold(1) == 0);
    arrival_begin(&arrival, 3);
    fill(&arrival, PIECE);
    await_calls("cuMemcpyHtoDAsync", n_before + 1);
    growing_buffer_end(arrival.growing, why);
    bool well = is_well("it does not end while a piece is being copied",
                        !atomic_load(&arrival.transfer.has_ended));
    well &= is_well("nor is its memory given back", in_use() > before);
    CHECK(driver.hold(0) == 0);
    struct status *st = transfer_end(&arrival.transfer);
    well &= is_well("it ends then", status_code(st) == STATUS_CANCELLED && in_use() == before);
    status_unref(st);
    status_unref(why);
    arrival_fini(&arrival);
    return well;
}

/* Without memory for it now, a value is copied when it is whole, and holds up no other. */
static bool does_without_memory(void) {
    struct arrival arrival;
    struct buffer *most = buffer_alloc(devices[1].allocator, 80 << 20);
    CHECK(most);
    arrival_begin(&arrival, 4);
    fill(&arrival, 2 * PIECE);
    buffer_unref(most);
    fill_to_the_end(&arrival);
    struct status *st = transfer_end(&arrival.transfer);
    bool well = is_well("it waits for memory", !st && !check(&arrival));
    arrival_fini(&arrival);
    return well;
}

bool run_arriving(void) {
    bool well = run_arriving_program();
    well &= copies_each_piece();
    well &= gives_back();
    well &= waits_for_the_device();
    well &= does_without_memory();
    return well;
}
