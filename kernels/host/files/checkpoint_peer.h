/* Reads checkpoint files that only another task has: the requests that a kernel sends to the
 * owner's kernels (kernels/host.h, struct peer_call) and the owner's replies.
 *
 *   caller                                        owner
 *   LOOK prefix                              ──►  does PREFIX.index exist? its size and age, and
 *                                                 those of the data files
 *   READ prefix, shard, offset, n, identity  ──►  the n bytes and their CRC-32C; ABORTED when the
 *                                                 file is no longer the same
 *   REMOVE prefix                            ──►  removes what this process has saved there,
 *                                                 since the merged checkpoint has it now
 *
 * A caller can read the index and data files of checkpoints, by prefix and number, and no file by
 * its name. They must be regular files below the owner's --file-root after all links are resolved.
 * A caller can remove files that this process' own SaveV2 wrote and nobody has replaced. It can
 * write nothing. A task trusts every caller as far as it trusts a master, whose graphs may read the
 * same files.
 *
 * A stream keeps a window of calls: at most STREAM_WINDOW pieces of at most a megabyte are
 * requested or processed at a time. So neither end holds more memory for a stream, whatever the
 * file's size and the speed of the disks. */
#ifndef MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_PEER_H
#define MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_PEER_H

#include <pthread.h>

#include "common/io/bundle.h"
#include "kernels/host.h"

enum {
    STREAM_WINDOW = 8,
    STREAM_PIECE_BYTES = PEER_MAX_PAYLOAD_BYTES,
    /* limit for a checkpoint that is read or fetched from another task */
    LISTING_MAX_SHARDS = 8192,
    INDEX_SHARD = -1,
};

/* ---- the messages (checkpoint_message.c) ---- */

enum checkpoint_request_kind { CHECKPOINT_LOOK = 1, CHECKPOINT_READ, CHECKPOINT_REMOVE };

struct checkpoint_request {
    enum checkpoint_request_kind kind;
    struct span prefix;
    int shard, n_shards;          /* READ: the data file; shard is INDEX_SHARD for the index */
    uint64_t offset, n, identity; /* READ */
    bool removes_dir;             /* REMOVE: also removes the directory when it is empty */
};

/* A file of the owner. `identity` changes when the file is replaced or written. */
struct checkpoint_file {
    int shard, n_shards;
    int64_t size_bytes;
    uint64_t identity;
};
struct checkpoint_listing {
    bool is_there;
    struct checkpoint_file index;
    int64_t changed_ns; /* of the index */
    struct checkpoint_file *shards;
    int n_shards;
};
void checkpoint_listing_fini(struct checkpoint_listing *found);
/* Finds a data file of the listing. NULL: the owner has none. */
const struct checkpoint_file *checkpoint_listing_shard(const struct checkpoint_listing *found,
                                                       int shard, int n_shards);

void checkpoint_request_print(const struct checkpoint_request *request, struct str *out);
struct status *checkpoint_request_parse(struct span in, struct checkpoint_request *ret) MUST_USE;
void checkpoint_listing_print(const struct checkpoint_listing *found, struct str *out);
struct status *checkpoint_listing_parse(struct span in,
                                        /* call fini also after a failure */
                                        struct checkpoint_listing *ret) MUST_USE;

/* ---- the owner (checkpoint_serve.c): a peer_handler_fn ---- */

struct status *checkpoint_serve(struct span request, struct peer_reply *ret) MUST_USE;
/* Remembers that this process has written the checkpoint of that prefix, so that a peer may remove
 * it. The newest 4096 are remembered. Any thread. */
void checkpoint_note_saved(const char *prefix);

/* ---- the caller (checkpoint_stream.c) ---- */

struct checkpoint_search;
struct search_call {
    struct peer_call call;
    struct checkpoint_search *search;
};

/* Searches for the other task that has a checkpoint. All tasks are asked at once. When several have
 * it, the one with the newest index is taken. */
struct checkpoint_search {
    struct kernel_ctx *ctx;
    const char *prefix; /* as the client named it; each task resolves it for itself */
    /* Set at the end: */
    int task;                        /* -1: none */
    struct checkpoint_listing found; /* the caller's to fini */
    /* NULL; UNAVAILABLE when no task has it and some could not be asked; or the step's
     * cancellation */
    struct status *status;
    /* called once, on an I/O thread */
    void (*on_end)(struct checkpoint_search *search);
    /* private: */
    struct search_call *calls;
    struct str request;
    int n_calls;
    struct pool_task io_task;
    _Atomic int n_left;
};
void checkpoint_search_start(struct checkpoint_search *search);
/* Makes the failure NOT_FOUND, which names the prefix and the tasks that were asked. */
struct status *checkpoint_search_not_found(struct kernel_ctx *ctx, const char *prefix) MUST_USE;

struct checkpoint_stream;
struct stream_piece {
    struct peer_call call;
    struct pool_task task;
    struct checkpoint_stream *stream;
    struct str request;
    int64_t offset, n_bytes;
};

/* Reads the bytes [begin, end) of one file of a task. */
struct checkpoint_stream {
    struct kernel_ctx *ctx;
    int task;
    const char *prefix;
    struct checkpoint_file file; /* shard INDEX_SHARD: the index */
    int64_t begin, end;
    /* Takes a piece whose checksum was right. Called on I/O threads, for several pieces at a time,
     * in any order, and for each byte once. A failure ends the stream. */
    struct status *(*take)(struct checkpoint_stream *stream, int64_t offset, const char *bytes,
                           size_t n);
    /* called once, on an I/O thread */
    void (*on_end)(struct checkpoint_stream *stream, struct status *status_take);
    void *arg;
    /* private: */
    pthread_mutex_t lock;
    int64_t next;          /* guarded by lock */
    int n_pieces;          /* guarded by lock: requested or processed now */
    struct status *status; /* guarded by lock */
    struct pool_task empty_task;
    struct stream_piece pieces[STREAM_WINDOW];
};
void checkpoint_stream_start(struct checkpoint_stream *stream);

/* Tells whether the graph names other tasks that can be asked. */
bool checkpoint_has_peers(struct kernel_ctx *ctx);
/* Checks that a name fits into a request: with a scheme and a host it may be longer than any path.
 * Errors: INVALID_ARGUMENT. */
struct status *checkpoint_check_name(struct span name) MUST_USE;

/* ---- fetching (checkpoint_fetch.c) ---- */

/* Fetches a part of a sharded save from the task that wrote it: writes its index and data files
 * under `local_prefix`, checks them against the index's checksums and syncs them to the disk. */
struct part_fetch {
    struct kernel_ctx *ctx;
    /* as the client named it */
    const char *prefix;
    /* a path of this host; no file of that prefix may exist */
    const char *local_prefix;
    /* set at the end: the task that had the part, -1 if none did */
    int task;
    /* called once; a failed fetch leaves no files */
    void (*on_end)(struct part_fetch *fetch, struct status *status_take);
    void *record;
};
void part_fetch_start(struct part_fetch *fetch);
/* Removes the files of a fetched part, as far as they exist. */
void part_fetch_remove(const char *local_prefix, int n_shards);

/* ---- RestoreV2 from another task (checkpoint_remote.c) ---- */

/* Restores from a checkpoint that this task does not have: fetches it from another task and ends
 * the execution of ctx. Call on an I/O thread. */
void checkpoint_remote_restore(struct kernel_ctx *ctx);

/* ---- checkpoint_kernels.c ---- */

/* Sets entries[i] to the entry of output i, and checks all names and types before any tensor is
 * read. */
struct status *checkpoint_find_all(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                   struct arena *arena, struct bundle_entry *entries) MUST_USE;
/* Reads output i. */
struct status *checkpoint_read_output(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                      const struct bundle_entry *entry, int i) MUST_USE;
/* Calls `visit` for each range of the data files that reading output i needs. */
struct status *checkpoint_visit_output(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                       const struct bundle_entry *entry, int i,
                                       bundle_visit_fn *visit, void *arg) MUST_USE;

#endif
