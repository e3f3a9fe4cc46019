/* Writes and reads the blocks of a table: entries with shared key prefixes. */
#include <stdlib.h>

#include "common/io/table.h"
#include "common/tensor/tensor_proto.h"

int table_compare(struct span a, struct span b) {
    size_t n = MIN(a.len, b.len);
    int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* ---- building ---- */

static void add_restart(struct table_block_builder *block) {
    if (block->n_restarts == block->capacity) {
        block->capacity = block->capacity ? 2 * block->capacity : 16;
        block->restarts = xreallocarray(block->restarts, block->capacity, sizeof(*block->restarts));
    }
    block->restarts[block->n_restarts++] = (uint32_t)block->data.len;
    block->n_since_restart = 0;
}

void table_block_add(struct table_block_builder *block, struct span key, struct span value) {
    size_t n_shared = 0;
    if (block->n_restarts == 0 || block->n_since_restart == block->interval)
        add_restart(block);
    else
        while (n_shared < key.len && n_shared < block->last_key.len &&
               key.data[n_shared] == block->last_key.data[n_shared])
            n_shared++;
    block->n_since_restart++;
    proto_add_varint(&block->data, n_shared);
    proto_add_varint(&block->data, key.len - n_shared);
    proto_add_varint(&block->data, value.len);
    str_add_bytes(&block->data, key.data + n_shared, key.len - n_shared);
    str_add_bytes(&block->data, value.data, value.len);
    block->last_key.len = n_shared;
    str_add_bytes(&block->last_key, key.data + n_shared, key.len - n_shared);
}

struct span table_block_end(struct table_block_builder *block) {
    if (block->n_restarts == 0)
        add_restart(block);
    uint32_t n = (uint32_t)block->n_restarts;
    str_add_bytes(&block->data, block->restarts, block->n_restarts * sizeof(*block->restarts));
    str_add_bytes(&block->data, &n, sizeof(n));
    return (struct span){block->data.data, block->data.len};
}

void table_block_clear(struct table_block_builder *block) {
    str_clear(&block->data);
    str_clear(&block->last_key);
    block->n_restarts = 0;
}

void table_block_fini(struct table_block_builder *block) {
    str_fini(&block->data);
    str_fini(&block->last_key);
    free(block->restarts);
}

/* ---- reading ---- */

bool table_block_entries(struct span block, size_t *ret_end) {
    uint32_t n_restarts;
    if (block.len < sizeof(n_restarts))
        return false;
    memcpy(&n_restarts, block.data + block.len - sizeof(n_restarts), sizeof(n_restarts));
    if (n_restarts > (block.len - sizeof(n_restarts)) / sizeof(uint32_t))
        return false;
    *ret_end = block.len - (1 + (size_t)n_restarts) * sizeof(uint32_t);
    return true;
}

void table_block_iter_init(struct table_block_iter *iter, struct span entries) {
    iter->entries = entries;
    iter->next = 0;
    iter->value = (struct span){NULL, 0};
    str_clear(&iter->key);
}

void table_block_iter_fini(struct table_block_iter *iter) { str_fini(&iter->key); }

int table_block_next(struct table_block_iter *iter) {
    struct span in = {iter->entries.data + iter->next, iter->entries.len - iter->next};
    uint64_t n_shared, n_own, n_value;
    if (in.len == 0)
        return 0;
    if (!proto_read_varint(&in, &n_shared) || !proto_read_varint(&in, &n_own) ||
        !proto_read_varint(&in, &n_value))
        return -1;
    if (n_shared > iter->key.len || n_own > in.len || n_value > in.len - n_own)
        return -1;
    iter->key.len = (size_t)n_shared;
    str_add_bytes(&iter->key, in.data, (size_t)n_own);
    iter->value = (struct span){in.data + n_own, (size_t)n_value};
    iter->next = (size_t)(iter->value.data + n_value - iter->entries.data);
    return 1;
}

/* ---- ranges ---- */

void table_range_add(struct str *out, struct table_range range) {
    proto_add_varint(out, (uint64_t)range.offset);
    proto_add_varint(out, (uint64_t)range.size);
}

bool table_range_read(struct span *in, struct table_range *ret) {
    uint64_t offset, size;
    if (!proto_read_varint(in, &offset) || !proto_read_varint(in, &size) || offset > INT64_MAX ||
        size > INT64_MAX)
        return false;
    *ret = (struct table_range){(int64_t)offset, (int64_t)size};
    return true;
}
