/* Computes hash buckets and base64 of strings. */
#include <stdlib.h>

#include "kernels/support/hashes.h"
#include "kernels/host/text/string_internal.h"

/* ---- StringToHashBucket… ---- */

enum hash_kind { HASH_FAST, HASH_PLAIN, HASH_STRONG };

struct hash_state {
    enum hash_kind kind;
    uint64_t n_buckets, key[2];
};

static struct status *read_key(const struct node *node, uint64_t key[2]) {
    const struct attr_value *values;
    int n;
    TRY(node_get_list(node, "key", &values, &n));
    if (n != 2)
        return status_invalid("Key must have 2 elements");
    key[0] = (uint64_t)values[0].i;
    key[1] = (uint64_t)values[1].i;
    return NULL;
}

struct status *string_hash_init(struct kernel_init *init) {
    int64_t n_buckets;
    struct hash_state state = {
        .kind = node_is_op(init->node, "StringToHashBucketFast") ? HASH_FAST : HASH_PLAIN};
    TRY(node_get_i(init->node, "num_buckets", &n_buckets));
    if (n_buckets < 1)
        return status_invalid("num_buckets must be at least 1, got %lld", (long long)n_buckets);
    state.n_buckets = (uint64_t)n_buckets;
    if (node_is_op(init->node, "StringToHashBucketStrong")) {
        state.kind = HASH_STRONG;
        TRY(read_key(init->node, state.key));
    }
    init->state = xmalloc(sizeof(state));
    memcpy(init->state, &state, sizeof(state));
    return NULL;
}

struct hash_job {
    const struct hash_state *state;
    const struct tensor *input;
    int64_t *out;
};

static void hash_range(void *arg, int64_t begin, int64_t end) {
    const struct hash_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        struct span text = tensor_string(job->input, i);
        uint64_t hash;
        if (job->state->kind == HASH_FAST)
            hash = hash_fingerprint64(text.data, text.len);
        else if (job->state->kind == HASH_PLAIN)
            hash = hash_murmur64(text.data, text.len, 0xdecafcaffeu);
        else
            hash = hash_sip24(text.data, text.len, job->state->key[0], job->state->key[1]);
        job->out[i] = (int64_t)(hash % job->state->n_buckets);
    }
}

/* StringToHashBucketFast (FarmHash), StringToHashBucket (Murmur), StringToHashBucketStrong (SipHash
 * with the attr key): the string's hash modulo num_buckets, int64, of the input's shape.
 * Errors   INVALID_ARGUMENT   at init: a key that is not two numbers */
enum kernel_result string_hash(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, tensor_shape(input)));
    struct hash_job job = {ctx->instance->state, input, tensor_data(&ctx->outputs[0])};
    pool_parallel_for(ctx->pool, input->n_elements, 20, hash_range, &job);
    return KERNEL_DONE;
}

/* ---- base64 [RFC 4648], the alphabet of URLs ---- */

struct base64_state {
    bool pads;
};

struct status *string_base64_init(struct kernel_init *init) {
    struct base64_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return node_get_b(init->node, "pad", &state->pads);
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static struct bytes *encode(struct span text, bool pads) {
    size_t left = text.len % 3, len = text.len / 3 * 4 + (left ? (pads ? 4 : left + 1) : 0);
    struct bytes *out = bytes_new_uninit(len);
    const unsigned char *from = (const unsigned char *)text.data;
    char *to = out ? out->data : NULL;
    size_t i = 0;
    for (; i + 3 <= text.len && pool_goes_on((int64_t)i); i += 3) {
        unsigned bits = (unsigned)from[i] << 16 | (unsigned)from[i + 1] << 8 | from[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6)
            *to++ = alphabet[bits >> shift & 63];
    }
    if (left) {
        unsigned bits = (unsigned)from[i] << 16 | (left == 2 ? (unsigned)from[i + 1] << 8 : 0);
        for (size_t k = 0; k <= left; k++)
            *to++ = alphabet[bits >> (18 - 6 * k) & 63];
        for (size_t k = left + 1; pads && k < 4; k++)
            *to++ = '=';
    }
    return out;
}

/* EncodeBase64: the attr pad adds '=' up to a multiple of four. */
enum kernel_result string_encode_base64(struct kernel_ctx *ctx) {
    const struct base64_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, tensor_shape(input)));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++)
        out[i] = encode(tensor_string(input, i), state->pads);
    return KERNEL_DONE;
}

static struct status *decode(struct span text, struct bytes **ret) {
    if (text.len % 4 == 1)
        return status_invalid("Base64 string length cannot be 1 modulo 4.");
    size_t n = text.len;
    if (n % 4 == 0) { /* only a complete last group may be padded */
        for (int i = 0; i < 2 && n > 0 && text.data[n - 1] == '='; i++)
            n--;
    }
    struct bytes *out = bytes_new_uninit(n * 6 / 8);
    unsigned bits = 0;
    int n_bits = 0;
    size_t to = 0;
    for (size_t i = 0; i < n && pool_goes_on((int64_t)i); i++) {
        char c = text.data[i];
        int digit = base64_digit(c);
        if (digit < 0 || c == '+' || c == '/') { /* only the alphabet of URLs is accepted */
            object_unref(out ? &out->object : NULL);
            return status_invalid("Invalid character found in base64.");
        }
        bits = bits << 6 | (unsigned)digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out->data[to++] = (char)(bits >> n_bits & 0xff);
        }
    }
    *ret = out;
    return NULL;
}

/* DecodeBase64: the text may be padded or not.
 * Errors   INVALID_ARGUMENT   a character outside of the alphabet, an impossible length */
enum kernel_result string_decode_base64(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, tensor_shape(input)));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++)
        KERNEL_TRY(ctx, decode(tensor_string(input, i), &out[i]));
    return KERNEL_DONE;
}
