/* Lists the transports and chooses one for a pair of tasks. */
#include "worker/exchange/transport.h"

static bool local_accepts(const struct transport_endpoint *here,
                          const struct transport_endpoint *there, struct str *why) {
    bool is_same = strcmp(here->task, there->task) == 0;
    str_add(why, is_same ? "the same task" : "another task");
    return is_same;
}

static struct transport_channel *
local_open(struct loop *loop, const struct transport_endpoint *there, enum channel_kind kind,
           const struct transport_handlers *handlers, void *owner) {
    return NULL;
}

static struct buffer *local_alloc(struct allocator *allocator, size_t size_bytes) {
    return buffer_alloc(allocator, size_bytes);
}

const struct transport transport_local = {
    .name = "local", .accepts = local_accepts, .open = local_open, .alloc = local_alloc};

const struct transport *const transports[] = {&transport_local, &transport_shm, &transport_unix,
                                              &transport_rdma, &transport_tcp};
const size_t n_transports = ARRAY_LEN(transports);

const struct transport *transport_choose(const struct transport_endpoint *here,
                                         const struct transport_endpoint *there, struct str *why) {
    for (size_t i = 0; i < n_transports; i++) {
        str_addf(why, "%s%s: ", i > 0 ? "; " : "", transports[i]->name);
        if (transports[i]->accepts(here, there, why))
            return transports[i];
    }
    return transports[n_transports - 1]; /* tcp accepts every pair */
}
