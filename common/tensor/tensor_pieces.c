/* Decodes and encodes strings in pieces (tensor_pieces.h); tensor_pieces_plain.c decodes numbers.
 * The steps of a decoder:
 *
 *   visit the fields ─► tensor_content: check the lengths ─► make the objects
 *                    └► a list: make an object of each field, repeat the last one */
#include "common/tensor/tensor_pieces.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto_internal.h"

enum {
    LONG_STRING_BYTES = 1 << 20, /* a longer one is copied in pieces of this size */
    MUCH_TEXT_ELEMENTS = 1000,
    MUCH_TEXT_BYTES = 256 << 10,
};

static int64_t units_of(size_t bytes) { return 1 + (int64_t)(bytes / TENSOR_UNIT_BYTES); }

/* ---- decoding ---- */

void tensor_decoder_init(struct tensor_decoder *decoder, struct span proto,
                         struct allocator *allocator) {
    memset(decoder, 0, sizeof(*decoder));
    decoder->proto = decoder->fields = proto;
    decoder->allocator = allocator;
}

void tensor_decoder_fini(struct tensor_decoder *decoder) {
    if (decoder->string)
        object_unref(&decoder->string->object);
    decoder->string = NULL;
    tensor_clear(&decoder->value);
}

static enum dtype type_of(const struct tensor_decoder *decoder) {
    return (enum dtype)decoder->parts.type;
}

/* The fields have been visited. */
static struct status *begin_elements(struct tensor_decoder *decoder) {
    struct shape shape = {decoder->parts.rank, decoder->parts.dims};
    if (!dtype_is_object(type_of(decoder)))
        return tensor_plain_begin(decoder);
    TRY(shape_n_elements(shape, &decoder->n_elements));
    decoder->lengths = decoder->bytes = decoder->parts.content;
    decoder->phase = decoder->parts.content.len > 0 ? DECODER_LENGTHS : DECODER_LIST;
    decoder->fields = decoder->proto;
    if (decoder->phase == DECODER_LIST)
        return tensor_new(decoder->allocator, type_of(decoder), shape, &decoder->value);
    return (uint64_t)decoder->n_elements > decoder->parts.content.len
               ? tensor_proto_malformed("tensor_content is too short for its strings")
               : NULL;
}

void tensor_decoder_init_parts(struct tensor_decoder *decoder, struct span proto,
                               const struct tensor_parts *parts, struct allocator *allocator) {
    tensor_decoder_init(decoder, proto, allocator);
    decoder->fields = (struct span){proto.data, 0};
    decoder->parts = *parts;
}

static struct status *visit_fields(struct tensor_decoder *decoder, int64_t *units) {
    struct proto_field field;
    int more = 1;
    while (*units > 0 && (more = proto_next(&decoder->fields, &field)) > 0) {
        TRY(tensor_parts_add(&decoder->parts, &field));
        --*units;
    }
    if (more < 0)
        return tensor_proto_malformed("its fields cannot be read");
    if (more > 0)
        return NULL;
    TRY(tensor_parts_check(&decoder->parts));
    return begin_elements(decoder);
}

static struct status *check_lengths(struct tensor_decoder *decoder, int64_t *units) {
    struct span content = decoder->parts.content;
    for (; decoder->n_done<decoder->n_elements && * units> 0; decoder->n_done++, --*units) {
        uint64_t length;
        if (!proto_read_varint(&decoder->bytes, &length) || length > content.len ||
            (decoder->total_bytes += length) > content.len)
            return tensor_proto_malformed("the lengths of its strings cannot be read");
    }
    if (decoder->n_done < decoder->n_elements)
        return NULL;
    if (decoder->total_bytes != decoder->bytes.len)
        return tensor_proto_malformed("the lengths of its strings do not add up to its content");
    decoder->n_done = 0;
    decoder->phase = DECODER_CONTENT;
    return tensor_new(decoder->allocator, type_of(decoder),
                      (struct shape){decoder->parts.rank, decoder->parts.dims}, &decoder->value);
}

/* Copies on with a long string, which becomes an element at its end. */
static void copy_string(struct tensor_decoder *decoder, int64_t *units) {
    size_t n = MIN(decoder->from.len - decoder->n_copied, (size_t)LONG_STRING_BYTES);
    memcpy(decoder->string->data + decoder->n_copied, decoder->from.data + decoder->n_copied, n);
    decoder->n_copied += n;
    *units -= units_of(n);
    if (decoder->n_copied < decoder->from.len)
        return;
    tensor_set_object(&decoder->value, decoder->n_done++, &decoder->string->object);
    decoder->string = NULL;
}

static struct status *add_object(struct tensor_decoder *decoder, struct span bytes,
                                 int64_t *units) {
    struct object *object;
    if (type_of(decoder) == DT_STRING && bytes.len > LONG_STRING_BYTES) {
        decoder->string = bytes_new_uninit(bytes.len);
        decoder->from = bytes;
        decoder->n_copied = 0;
        return NULL;
    }
    if (!tensor_object_decode(type_of(decoder), bytes, &object))
        return tensor_proto_malformed("a resource handle cannot be read");
    tensor_set_object(&decoder->value, decoder->n_done++, object);
    *units -= units_of(bytes.len);
    return NULL;
}

/* The bytes of the next element. False: there is none in the list. */
static bool next_element(struct tensor_decoder *decoder, struct span *ret, int64_t *units) {
    struct proto_field field;
    uint64_t length;
    if (decoder->phase == DECODER_CONTENT) {
        CHECK(proto_read_varint(&decoder->lengths, &length)); /* as check_lengths has found */
        *ret = (struct span){decoder->bytes.data, (size_t)length};
        decoder->bytes.data += length;
        return true;
    }
    while (proto_next(&decoder->fields, &field) > 0) {
        if (field.number == tensor_parts_list_field(type_of(decoder)) && field.wire_type == 2) {
            *ret = field.bytes;
            return true;
        }
        --*units;
    }
    return false;
}

/* A list that is too short repeats its last value. */
static void repeat_last(struct tensor_decoder *decoder, int64_t *units) {
    struct object **objects = tensor_data(&decoder->value);
    struct object *last = decoder->n_done > 0 ? objects[decoder->n_done - 1] : NULL;
    if (!last)
        decoder->n_done = decoder->n_elements; /* empty strings are NULL, as the rest is */
    for (; decoder->n_done<decoder->n_elements && * units> 0; decoder->n_done++, --*units)
        objects[decoder->n_done] = object_ref(last);
}

static struct status *make_elements(struct tensor_decoder *decoder, int64_t *units) {
    struct span bytes;
    while (decoder->n_done<decoder->n_elements && * units> 0) {
        if (decoder->string) {
            copy_string(decoder, units);
        } else if (!decoder->is_list_over && next_element(decoder, &bytes, units)) {
            TRY(add_object(decoder, bytes, units));
        } else {
            decoder->is_list_over = true;
            repeat_last(decoder, units);
        }
    }
    return NULL;
}

struct status *tensor_decoder_run(struct tensor_decoder *decoder, int64_t *units,
                                  struct tensor *ret) {
    if (decoder->phase == DECODER_FIELDS)
        TRY(visit_fields(decoder, units));
    if (decoder->phase == DECODER_LENGTHS)
        TRY(check_lengths(decoder, units));
    if (decoder->phase < DECODER_CONTENT)
        return NULL;
    if (decoder->phase >= DECODER_PLAIN_CONTENT)
        TRY(tensor_plain_run(decoder, units));
    else
        TRY(make_elements(decoder, units));
    if (decoder->phase < DECODER_PLAIN_CONTENT ? decoder->n_done == decoder->n_elements
                                               : decoder->phase == DECODER_DONE) {
        tensor_move(ret, &decoder->value);
        decoder->value = TENSOR_INIT;
    }
    return NULL;
}

/* ---- encoding ---- */

enum { ENCODER_SIZE, ENCODER_LENGTHS, ENCODER_BYTES, ENCODER_DONE };

void tensor_encoder_init(struct tensor_encoder *encoder, const struct tensor *value) {
    CHECK(value->dtype == DT_STRING);
    *encoder = (struct tensor_encoder){.value = value, .out = STR_INIT};
}

void tensor_encoder_fini(struct tensor_encoder *encoder) { str_fini(&encoder->out); }

/* One element of the phase, or a piece of a long one. */
static void encode_element(struct tensor_encoder *encoder, int64_t *units) {
    struct span text = tensor_string(encoder->value, encoder->n_done);
    size_t n = 0;
    if (encoder->phase == ENCODER_SIZE) {
        encoder->content_bytes += proto_varint_size(text.len) + text.len;
    } else if (encoder->phase == ENCODER_LENGTHS) {
        proto_add_varint(&encoder->out, text.len);
    } else {
        n = MIN(text.len - encoder->n_copied, (size_t)LONG_STRING_BYTES);
        if (n > 0)
            str_add_bytes(&encoder->out, text.data + encoder->n_copied, n);
        encoder->n_copied += n;
    }
    *units -= units_of(n);
    if (encoder->phase == ENCODER_BYTES && encoder->n_copied < text.len)
        return;
    encoder->n_copied = 0;
    encoder->n_done++;
}

bool tensor_encoder_run(struct tensor_encoder *encoder, int64_t *units) {
    while (encoder->phase < ENCODER_DONE) {
        while (encoder->n_done<encoder->value->n_elements && * units> 0)
            encode_element(encoder, units);
        if (encoder->n_done < encoder->value->n_elements)
            return false;
        if (encoder->phase == ENCODER_SIZE) {
            tensor_proto_add_head(encoder->value, encoder->content_bytes, &encoder->out);
            str_reserve(&encoder->out, encoder->content_bytes);
        }
        encoder->n_done = 0;
        encoder->phase++;
    }
    return true;
}

/* ---- how much it is ---- */

bool tensor_has_much_text(const struct tensor *t) {
    size_t bytes = 0;
    if (t->dtype != DT_STRING || !tensor_has_value(t))
        return false;
    if (t->n_elements > MUCH_TEXT_ELEMENTS)
        return true;
    for (int64_t i = 0; i < t->n_elements; i++)
        bytes += tensor_string(t, i).len;
    return bytes > MUCH_TEXT_BYTES;
}

/* ---- releasing on the pool ---- */

struct release_job {
    struct pool_task task;
    struct pool *pool;
    struct tensor value;
};

static void release_piece(struct pool_task *task) {
    struct release_job *job = CONTAINER_OF(task, struct release_job, task);
    int64_t units = 2 * TENSOR_UNITS_PER_MS;
    if (tensor_release(&job->value, &units))
        free(job);
    else
        pool_submit(job->pool, task);
}

void tensor_release_later(struct pool *pool, struct tensor *t) {
    if (!pool || !tensor_has_much_text(t)) {
        tensor_clear(t);
        return;
    }
    struct release_job *job = aligned_alloc(_Alignof(struct release_job), sizeof(*job));
    if (!job)
        out_of_memory(sizeof(*job));
    *job = (struct release_job){.task = {.run = release_piece}, .pool = pool, .value = TENSOR_INIT};
    tensor_move(&job->value, t);
    pool_submit(pool, &job->task);
}
