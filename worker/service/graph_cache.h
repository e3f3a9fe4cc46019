/* Keeps the registered partitions of this worker: from handle to plan. Loop thread only, except
 * that any thread may give an entry's reference back.
 *
 * An entry belongs to the master that registered it and is removed when that master is lost for
 * good. */
#ifndef MILLRACE_WORKER_SERVICE_GRAPH_CACHE_H
#define MILLRACE_WORKER_SERVICE_GRAPH_CACHE_H

#include <stdatomic.h>

#include "common/base/list.h"
#include "common/base/pool.h"
#include "rpc/loop.h"
#include "worker/exchange/peer_call.h"
#include "worker/client_state.h"
#include "worker/container.h"
#include "worker/executor/function.h"
#include "worker/exchange/peer.h"
#include "worker/plan/plan.h"
#include "worker/exchange/rendezvous.h"
#include "worker/service/exchange.h"

struct graph_cache;

/* A client's process that has sessions here. */
struct cached_client {
    struct client_state *state;
    uint64_t id; /* the master's, random */
    uint32_t n_sessions;
};

/* A session that has graphs here. An isolated session stays until its master closes it. */
struct cached_session {
    struct session_state *state;
    struct cached_client *client;       /* NULL: none */
    struct container_table *containers; /* its own, when it is isolated; else NULL */
    struct session_credit *credit;
    uint64_t master_incarnation;
    uint32_t n_entries; /* one for each of its graphs, and one while it is isolated and open */
    bool is_open;       /* isolated, and not closed yet */
    bool is_kept;       /* used by graph_cache_keep only */
    char handle[];
};

struct graph_entry {
    _Atomic uint32_t n_refs;
    struct list link; /* the cache's */
    uint64_t handle, master_incarnation;
    struct cached_session *session;     /* loop thread; NULL once the entry has left the cache */
    struct container_table *containers; /* one reference; NULL: the task's */
    struct session_credit *credit;      /* its session's; one reference */
    struct plan *plan;
    uint8_t *feed_types;       /* plan->n_feeds of them; DT_INVALID where every type is accepted */
    struct exchange *exchange; /* of the cluster that it belongs to; one reference */
    struct peer **peers;       /* the tasks at the other ends of its channels; the exchange's */
    int n_peers;
    struct peer_call_task **others; /* the tasks that its kernels may call */
    int n_others;
    uint64_t n_runs; /* loop thread */
    /* what its runs have earned for the step ring, and how many nodes the last one ran */
    _Atomic int64_t ring_credit_ns;
    _Atomic uint64_t n_executed;
    bool is_kept; /* used by graph_cache_keep only */
    int64_t build_us;
};

enum {
    GRAPH_CACHE_MAX_GRAPHS = 1 << 20,
    /* smaller GraphDefs are built on the loop, because waking a thread costs as much */
    GRAPH_INLINE_BYTES = 4 * 1024,
};

struct graph_cache *graph_cache_new(struct loop *loop, struct pool *pool,
                                    const struct plan_options *options);
/* Removes all graphs. For a graph that is still being built, on_built is called with CANCELLED; the
 * memory is freed after that. */
void graph_cache_free(struct graph_cache *cache);

/* What RegisterGraph contains in addition to the graph. */
struct graph_registration {
    uint64_t master_incarnation;
    struct exchange *exchange; /* the entry gets a reference */
    uint64_t client;           /* whose session it is; 0: none */
    const char *session;
    bool is_isolated;
    struct span graphdef;                    /* points into `bytes` */
    const struct function_source *functions; /* their graphs point into `bytes`; borrowed */
    int n_functions;
    struct buffer *bytes; /* held until all is built; may be NULL */
    struct peer **peers;  /* taken (malloc'd) */
    int n_peers;
    struct peer_call_task **others; /* taken (malloc'd) */
    int n_others;
};

/* Builds a plan from a serialized GraphDef and adds it. `on_built` is called exactly once, on the
 * loop, perhaps inside this call: with the entry, which it borrows, or with a status, which it
 * takes. */
typedef void graph_built_fn(void *arg, struct graph_entry *entry, struct status *status_take);
void graph_cache_register(struct graph_cache *cache, const struct graph_registration *registration,
                          graph_built_fn *on_built, void *arg);
/* Closes a session for its master: an isolated session's containers are freed with its last
 * graph. */
void graph_cache_close_session(struct graph_cache *cache, uint64_t master_incarnation,
                               struct span session);

/* Borrowed; NULL: there is no such graph. */
struct graph_entry *graph_cache_find(struct graph_cache *cache, uint64_t handle);
struct graph_entry *graph_entry_ref(struct graph_entry *entry);
void graph_entry_unref(struct graph_entry *entry);
void graph_cache_remove(struct graph_cache *cache, uint64_t handle, uint64_t master_incarnation);
void graph_cache_remove_master(struct graph_cache *cache, uint64_t master_incarnation);
/* Removes a master's graphs and closes its isolated sessions, except those listed. A listed one
 * that is not here is ignored. */
void graph_cache_keep(struct graph_cache *cache, uint64_t master_incarnation,
                      const uint64_t *graphs, size_t n_graphs, char *const *sessions,
                      size_t n_sessions);
void graph_cache_remove_all(struct graph_cache *cache);
size_t graph_cache_n_graphs(const struct graph_cache *cache);
/* Appends JSON rows. After max_rows rows, one more says how many are left out: {"more":N}. */
void graph_cache_describe(struct graph_cache *cache, size_t max_rows, struct str *out);

#endif
