/* The registered partitions of this worker: handle → plan. Loop thread only, but for references,
 * which any thread may let go.
 *
 * Graphs are keyed by the master that registered them: when it is gone for good, they go. */
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

struct graph_cache;

/* A client's process that has sessions here. */
struct cached_client {
    struct client_state *state;
    uint64_t id; /* the master's, random */
    uint32_t n_sessions;
};

/* A session that has graphs here; an isolated one, until its master closes it. */
struct cached_session {
    struct session_state *state;
    struct cached_client *client;       /* NULL: nobody's */
    struct container_table *containers; /* of its own, when it is isolated */
    struct session_credit *credit;
    uint64_t master_incarnation;
    uint32_t n_entries; /* its graphs, and one for an isolated session that is open */
    bool is_open;       /* isolated, and not closed yet */
    bool is_kept;       /* graph_cache_keep's */
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
    uint8_t *feed_types; /* plan->n_feeds; DT_INVALID where any will do */
    struct peer **peers; /* that its channels go to and come from */
    int n_peers;
    struct peer_call_task **others; /* that its kernels may ask */
    int n_others;
    uint64_t n_runs; /* loop thread */
    bool is_kept;    /* graph_cache_keep's */
    int64_t build_us;
};

enum {
    GRAPH_CACHE_MAX_GRAPHS = 1 << 20,
    /* smaller GraphDefs are built on the loop: a thread's wake-up costs as much */
    GRAPH_INLINE_BYTES = 4 * 1024,
};

struct graph_cache *graph_cache_new(struct loop *loop, struct pool *pool,
                                    const struct plan_options *options);
/* Drops all graphs. What is still being built ends unseen: its on_built is called with
 * CANCELLED; the memory goes after. */
void graph_cache_free(struct graph_cache *cache);

/* What RegisterGraph brings besides the graph. */
struct graph_registration {
    uint64_t master_incarnation;
    uint64_t client; /* whose session it is; 0: nobody's */
    const char *session;
    bool is_isolated;
    struct span graphdef;                    /* inside `bytes` */
    const struct function_source *functions; /* graphs inside `bytes`; copied where needed */
    int n_functions;
    struct buffer *bytes; /* held until all is built; may be NULL */
    struct peer **peers;  /* taken (malloc'd) */
    int n_peers;
    struct peer_call_task **others; /* taken (malloc'd) */
    int n_others;
};

/* Builds plans from serialized GraphDefs, and enters them. `on_built` is called exactly once, on
 * the loop, maybe inside this call: with the entry (borrowed), or a status (taken). */
typedef void graph_built_fn(void *arg, struct graph_entry *entry, struct status *status_take);
void graph_cache_register(struct graph_cache *cache, const struct graph_registration *registration,
                          graph_built_fn *on_built, void *arg);
/* The master has closed a session: an isolated one's containers go when its graphs have gone. */
void graph_cache_close_session(struct graph_cache *cache, uint64_t master_incarnation,
                               struct span session);

/* borrowed; NULL */
struct graph_entry *graph_cache_find(struct graph_cache *cache, uint64_t handle);
struct graph_entry *graph_entry_ref(struct graph_entry *entry);
void graph_entry_unref(struct graph_entry *entry);
void graph_cache_remove(struct graph_cache *cache, uint64_t handle, uint64_t master_incarnation);
void graph_cache_remove_master(struct graph_cache *cache, uint64_t master_incarnation);
/* Of a master's graphs and open isolated sessions only these stay. Those that are not there are
 * passed over. */
void graph_cache_keep(struct graph_cache *cache, uint64_t master_incarnation,
                      const uint64_t *graphs, size_t n_graphs, char *const *sessions,
                      size_t n_sessions);
void graph_cache_remove_all(struct graph_cache *cache);
size_t graph_cache_n_graphs(const struct graph_cache *cache);
void graph_cache_describe(struct graph_cache *cache, struct str *out); /* JSON rows */

#endif
