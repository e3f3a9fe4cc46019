#include "master/request/repeats.h"

#include "common/base/map.h"

static const int64_t window_ns = REPEATS_WINDOW_MS * 1000000ll;

uint64_t repeats_key(uint64_t connection, struct span body) {
    uint64_t key = hash_mix(hash_bytes(body.data, body.len, 0), connection);
    return key ? key : 1;
}

void repeats_note(struct repeats *repeats, uint64_t key, int64_t now_ns) {
    struct repeat *row = &repeats->rows[repeats->at++ % REPEATS_KEPT];
    *row = (struct repeat){.key = key, .until_ns = now_ns + window_ns, .n_left = REPEATS_PER_CALL};
}

bool repeats_take(struct repeats *repeats, uint64_t key, int64_t now_ns) {
    for (int i = 0; i < REPEATS_KEPT; i++) {
        struct repeat *row = &repeats->rows[i];
        if (row->key != key || now_ns > row->until_ns)
            continue;
        row->until_ns = now_ns + window_ns;
        if (--row->n_left == 0)
            row->key = 0;
        return true;
    }
    return false;
}

bool repeats_any(const struct repeats *repeats, int64_t now_ns) {
    for (int i = 0; i < REPEATS_KEPT; i++)
        if (repeats->rows[i].key != 0 && now_ns <= repeats->rows[i].until_ns)
            return true;
    return false;
}
