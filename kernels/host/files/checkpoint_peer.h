/* Checkpoint files that only another task has: what its kernels are asked (kernels/host.h), and
 * what they answer.
 *
 *   asker                                            owner
 *   LOOK prefix                                ──►   is there PREFIX.index? its size and age, and those of the data files
 *   READ prefix, shard, offset, n, identity    ──►   so many bytes, and their CRC-32C; ABORTED when it is another file than it was
 *   REMOVE prefix                              ──►   what this process has saved there goes: it lives on in the checkpoint it is part of
 *
 * What may be read: index and data files of checkpoints, by prefix and number, never a file by
 * its name; regular ones that lie below the owner's --file-root when they are open, whatever
 * links there are. What may be removed: files that this process' own SaveV2 wrote and nobody has
 * replaced. Nothing can be written. A task that can be reached at all trusts who reaches it as
 * far as a master, whose graphs may read the same files.
 *
 * Streams are windows of calls: STREAM_WINDOW pieces of at most a megabyte are on their way
 * or being worked on, so neither end holds more than that for one, whatever the file's size and
 * the disks' speeds. */
#ifndef MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_PEER_H
#define MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_PEER_H

#include <pthread.h>

#include "common/io/bundle.h"
#include "kernels/host.h"

enum {
    STREAM_WINDOW = 8,
    STREAM_PIECE_BYTES = PEER_MAX_PAYLOAD_BYTES,
    LISTING_MAX_SHARDS = 8192, /* of a checkpoint that is read or fetched from another task */
    INDEX_SHARD = -1,
};

/* ---- the messages (checkpoint_message.c) ---- */

enum checkpoint_request_kind { CHECKPOINT_LOOK = 1, CHECKPOINT_READ, CHECKPOINT_REMOVE };

struct checkpoint_request {
    enum checkpoint_request_kind kind;
    struct span prefix;
    int shard, n_shards;          /* READ: INDEX_SHARD for the index */
    uint64_t offset, n, identity; /* READ */
    bool removes_dir;             /* REMOVE: the directory too, once it is empty */
};

/* A file of the owner's: `identity` changes when it is replaced or written. */
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
/* NULL: the owner has none */
const struct checkpoint_file *checkpoint_listing_shard(const struct checkpoint_listing *found,
                                                       int shard, int n_shards);

void checkpoint_request_print(const struct checkpoint_request *request, struct str *out);
struct status *checkpoint_request_parse(struct span in, struct checkpoint_request *ret) MUST_USE;
void checkpoint_listing_print(const struct checkpoint_listing *found, struct str *out);
struct status *
checkpoint_listing_parse(struct span in,
                         struct checkpoint_listing *ret) MUST_USE; /* fini in any case */

/* ---- the owner (checkpoint_serve.c): a peer_handler_fn ---- */

struct status *checkpoint_serve(struct span request, struct peer_reply *ret) MUST_USE;
/* This process has written the checkpoint of that prefix. The newest few thousand are
 * remembered. Any thread. */
void checkpoint_note_saved(const char *prefix);

/* ---- the asker (checkpoint_stream.c) ---- */

struct checkpoint_search;
struct search_call {
    struct peer_call call;
    struct checkpoint_search *search;
};

/* Which other task has a checkpoint? All are asked at once; of several the one whose index is
 * newest is taken. */
struct checkpoint_search {
    struct kernel_ctx *ctx;
    const char *prefix; /* as the client named it: each task resolves it for itself */
    /* At the end: */
    int task;                        /* -1: none */
    struct checkpoint_listing found; /* the caller's to fini */
    /* NULL; or UNAVAILABLE: none has it, and some could not be asked; or the step's cancel */
    struct status *status;
    /* once; an I/O thread, or the caller's when there is nobody to ask */
    void (*on_end)(struct checkpoint_search *search);
    /* its own: */
    struct search_call *calls;
    struct str request;
    int n_calls;
    struct pool_task io_task;
    _Atomic int n_left;
};
void checkpoint_search_start(struct checkpoint_search *search);
/* NOT_FOUND naming the prefix and the tasks that were asked. */
struct status *checkpoint_search_not_found(struct kernel_ctx *ctx, const char *prefix) MUST_USE;

struct checkpoint_stream;
struct stream_piece {
    struct peer_call call;
    struct pool_task task;
    struct checkpoint_stream *stream;
    struct str request;
    int64_t offset, n_bytes;
};

/* The bytes [begin, end) of one file of a task. */
struct checkpoint_stream {
    struct kernel_ctx *ctx;
    int task;
    const char *prefix;
    struct checkpoint_file file; /* shard INDEX_SHARD: the index */
    int64_t begin, end;
    /* A piece, its checksum compared; in any order, several at a time, each byte once. An I/O
     * thread. A failure ends the stream. */
    struct status *(*take)(struct checkpoint_stream *stream, int64_t offset, const char *bytes,
                           size_t n);
    /* once; an I/O thread */
    void (*on_end)(struct checkpoint_stream *stream, struct status *status_take);
    void *arg;
    /* its own: */
    pthread_mutex_t lock;
    int64_t next;          /* guarded by lock */
    int n_pieces;          /* guarded by lock: on their way */
    struct status *status; /* guarded by lock */
    struct pool_task empty_task;
    struct stream_piece pieces[STREAM_WINDOW];
};
void checkpoint_stream_start(struct checkpoint_stream *stream);

/* Does the host have other tasks to ask? */
bool checkpoint_has_peers(struct kernel_ctx *ctx);
/* A name that fits into a call: with a scheme and a host it may be longer than any path.
 * Errors: INVALID_ARGUMENT. */
struct status *checkpoint_check_name(struct span name) MUST_USE;

/* ---- fetching (checkpoint_fetch.c) ---- */

/* A part of a sharded save comes from the task that wrote it: index and data files, under
 * `local_prefix`, checked against the index's checksums and on the disk. */
struct part_fetch {
    struct kernel_ctx *ctx;
    /* as the client named it */
    const char *prefix;
    /* of the system; its files must not be there */
    const char *local_prefix;
    /* at the end: who had it; -1: nobody */
    int task;
    /* once; after a failure nothing is left of it */
    void (*on_end)(struct part_fetch *fetch, struct status *status_take);
    void *record;
};
void part_fetch_start(struct part_fetch *fetch);
/* Removes the files of a fetched part that are there. */
void part_fetch_remove(const char *local_prefix, int n_shards);

/* ---- RestoreV2 from another task (checkpoint_remote.c) ---- */

/* The checkpoint is not here: asks the others for it, and ends the execution. I/O thread. */
void checkpoint_remote_restore(struct kernel_ctx *ctx);

/* ---- checkpoint_kernels.c ---- */

/* All names and types, looked up before any byte is read: entries[i] is output i's. */
struct status *checkpoint_find_all(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                   struct arena *arena, struct bundle_entry *entries) MUST_USE;
/* Sets output i. */
struct status *checkpoint_read_output(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                      const struct bundle_entry *entry, int i) MUST_USE;
/* Visits what reading output i takes from the data files. */
struct status *checkpoint_visit_output(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                       const struct bundle_entry *entry, int i,
                                       bundle_visit_fn *visit, void *arg) MUST_USE;

#endif
