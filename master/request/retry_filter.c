/* Keeps the keys of failed requests in a small ring. */
#include "master/request/retry_filter.h"

#include "common/base/map.h"

static const int64_t window_ns = RETRY_WINDOW_MS * 1000000ll;

uint64_t retry_filter_key(uint64_t connection, struct span body) {
    uint64_t key = hash_mix(hash_bytes(body.data, body.len, 0), connection);
    return key ? key : 1;
}

void retry_filter_note(struct retry_filter *filter, uint64_t key, int64_t now_ns) {
    struct retry_row *row = &filter->rows[filter->at++ % RETRY_FILTER_ROWS];
    *row =
        (struct retry_row){.key = key, .until_ns = now_ns + window_ns, .n_left = RETRIES_PER_CALL};
}

bool retry_filter_take(struct retry_filter *filter, uint64_t key, int64_t now_ns) {
    for (int i = 0; i < RETRY_FILTER_ROWS; i++) {
        struct retry_row *row = &filter->rows[i];
        if (row->key != key || now_ns > row->until_ns)
            continue;
        row->until_ns = now_ns + window_ns;
        if (--row->n_left == 0)
            row->key = 0;
        return true;
    }
    return false;
}

bool retry_filter_any(const struct retry_filter *filter, int64_t now_ns) {
    for (int i = 0; i < RETRY_FILTER_ROWS; i++)
        if (filter->rows[i].key != 0 && now_ns <= filter->rows[i].until_ns)
            return true;
    return false;
}
