/* Serves requests of other tasks for this task's checkpoint files. checkpoint_peer.h says which
 * files they may read and remove. Runs on I/O threads. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/crc32c.h"
#include "common/io/file_root.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/host/files/checkpoint_peer.h"

/* ---- what this process has saved ---- */

enum { SAVED_KEPT = 4096 };

/* Identifies a saved file. The index of another process' later save has another identity. */
struct saved {
    char *prefix;
    uint64_t identity;
};

static pthread_mutex_t saved_lock = PTHREAD_MUTEX_INITIALIZER;
static struct saved saved[SAVED_KEPT]; /* guarded by saved_lock; a ring */
static size_t n_saved;

static uint64_t identity_of(const struct stat *info) {
    const uint64_t parts[] = {(uint64_t)info->st_dev, (uint64_t)info->st_ino,
                              (uint64_t)info->st_size, (uint64_t)info->st_mtim.tv_sec,
                              (uint64_t)info->st_mtim.tv_nsec};
    uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        hash = (hash ^ parts[i]) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
    }
    return hash;
}

static bool identify(const char *path, uint64_t *ret) {
    struct stat info;
    if (stat(path, &info) < 0)
        return false;
    *ret = identity_of(&info);
    return true;
}

void checkpoint_note_saved(const char *prefix) {
    struct str path = STR_INIT;
    uint64_t identity;
    bundle_index_path(prefix, &path);
    if (identify(path.data, &identity)) {
        pthread_mutex_lock(&saved_lock);
        struct saved *slot = &saved[n_saved++ % SAVED_KEPT];
        free(slot->prefix);
        *slot = (struct saved){xstrdup(prefix), identity};
        pthread_mutex_unlock(&saved_lock);
    }
    str_fini(&path);
}

/* Also removes the entry, because the file is removed only once. */
static bool take_saved(const char *prefix, uint64_t identity) {
    bool is_ours = false;
    pthread_mutex_lock(&saved_lock);
    for (size_t i = 0; i < SAVED_KEPT; i++) {
        if (!saved[i].prefix || strcmp(saved[i].prefix, prefix) != 0 ||
            saved[i].identity != identity)
            continue;
        free(saved[i].prefix);
        saved[i].prefix = NULL;
        is_ours = true;
    }
    pthread_mutex_unlock(&saved_lock);
    return is_ours;
}

/* ---- looking ---- */

/* For a link to outside of the roots, this tells about the link itself and nothing about its
 * target. Reading the link is refused. */
static bool is_regular(const char *path, struct stat *ret) {
    int fd = -1;
    /* checked before the file is opened, because opening a device may have effects */
    if (stat(path, ret) < 0 || !S_ISREG(ret->st_mode))
        return false;
    struct status *st = file_root_open(path, &fd);
    if (st) {
        status_unref(st);
        return lstat(path, ret) == 0;
    }
    bool is_one = fstat(fd, ret) == 0 && S_ISREG(ret->st_mode);
    close(fd);
    return is_one;
}

struct look {
    const char *prefix, *base;
    struct checkpoint_listing *found;
};

static void on_name(void *arg, const char *name) {
    struct look *look = arg;
    struct checkpoint_listing *found = look->found;
    struct checkpoint_file file;
    struct stat info;
    struct str path = STR_INIT;
    if (found->n_shards == LISTING_MAX_SHARDS ||
        !bundle_data_name(look->base, name, &file.shard, &file.n_shards))
        return;
    bundle_data_path(look->prefix, file.shard, file.n_shards, &path);
    if (is_regular(path.data, &info)) {
        file.size_bytes = info.st_size;
        file.identity = identity_of(&info);
        found->shards[found->n_shards++] = file;
    }
    str_fini(&path);
}

static struct status *look(const char *prefix, struct peer_reply *ret) {
    const struct file_system *fs = &file_system_posix;
    struct checkpoint_listing found = {.index.shard = INDEX_SHARD};
    struct look scan = {prefix, file_base_of(prefix), &found};
    struct str path = STR_INIT, dir = STR_INIT;
    struct stat info;
    bundle_index_path(prefix, &path);
    if (is_regular(path.data, &info)) {
        found.is_there = true;
        found.index.size_bytes = info.st_size;
        found.index.identity = identity_of(&info);
        found.changed_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
        found.shards = xcalloc(LISTING_MAX_SHARDS, sizeof(*found.shards));
        file_dir_of(prefix, &dir);
        /* a directory that cannot be listed has no data files, which the requester will report */
        fs->list(fs, dir.data, on_name, &scan);
    }
    checkpoint_listing_print(&found, &ret->bytes);
    checkpoint_listing_fini(&found);
    str_fini(&path);
    str_fini(&dir);
    return NULL;
}

/* ---- reading ---- */

static struct status *read_piece(const char *path, int fd, const struct checkpoint_request *request,
                                 struct peer_reply *ret) {
    struct stat info;
    if (fstat(fd, &info) < 0)
        return file_failed(path, -errno);
    if (!S_ISREG(info.st_mode))
        return status_new(STATUS_PERMISSION_DENIED, "%s is no regular file", path);
    if (identity_of(&info) != request->identity)
        return status_new(STATUS_ABORTED, "%s has been replaced or written while it was read",
                          path);
    if (request->offset > (uint64_t)info.st_size ||
        request->n > (uint64_t)info.st_size - request->offset)
        return status_out_of_range("%s; the file ends at %lld", path, (long long)info.st_size);
    ret->payload = buffer_alloc(allocator_host(), MAX(request->n, (uint64_t)1));
    if (!ret->payload)
        return status_exhausted("no memory for %llu bytes of %s", (unsigned long long)request->n,
                                path);
    ret->payload_bytes = request->n;
    TRY(file_read_all(&file_system_posix, fd, path, ret->payload->data, request->n,
                      (int64_t)request->offset));
    proto_add_fixed32(&ret->bytes, 1, crc32c(ret->payload->data, request->n));
    return NULL;
}

static struct status *read_file(const char *prefix, const struct checkpoint_request *request,
                                struct peer_reply *ret) {
    struct str path = STR_INIT;
    int fd = -1;
    if (request->shard == INDEX_SHARD)
        bundle_index_path(prefix, &path);
    else
        bundle_data_path(prefix, request->shard, request->n_shards, &path);
    struct status *st = file_root_open(path.data, &fd);
    if (!st) {
        st = read_piece(path.data, fd, request, ret);
        close(fd);
    }
    str_fini(&path);
    return st;
}

/* ---- removing ---- */

static void remove_files(const char *prefix, const struct checkpoint_listing *found,
                         const char *index_path) {
    const struct file_system *fs = &file_system_posix;
    struct str path = STR_INIT;
    /* removed first, because a task that sees the index must see all files */
    fs->unlink(fs, index_path);
    for (int i = 0; i < found->n_shards; i++) {
        str_clear(&path);
        bundle_data_path(prefix, found->shards[i].shard, found->shards[i].n_shards, &path);
        fs->unlink(fs, path.data);
    }
    str_fini(&path);
}

static struct status *remove_saved(const char *prefix, bool removes_dir) {
    const struct file_system *fs = &file_system_posix;
    struct checkpoint_listing found = {.shards =
                                           xcalloc(LISTING_MAX_SHARDS, sizeof(*found.shards))};
    struct look scan = {prefix, file_base_of(prefix), &found};
    struct str path = STR_INIT, dir = STR_INIT;
    struct status *st = NULL;
    uint64_t identity = 0;
    bundle_index_path(prefix, &path);
    file_dir_of(prefix, &dir);
    if (!identify(path.data, &identity) || !take_saved(prefix, identity)) {
        st = status_new(STATUS_PERMISSION_DENIED,
                        "%s was not saved by this task, or somebody has replaced it", prefix);
    } else {
        fs->list(fs, dir.data, on_name, &scan);
        remove_files(prefix, &found, path.data);
        if (removes_dir)
            fs->remove_dir(fs, dir.data); /* fails when another part is still in it */
    }
    checkpoint_listing_fini(&found);
    str_fini(&path);
    str_fini(&dir);
    return st;
}

struct status *checkpoint_serve(struct span bytes, struct peer_reply *ret) {
    struct checkpoint_request request;
    struct str prefix = STR_INIT;
    TRY(checkpoint_request_parse(bytes, &request));
    struct status *st = file_root_resolve_prefix(request.prefix, &prefix);
    if (st) {
        str_fini(&prefix);
        return st;
    }
    switch (request.kind) {
    case CHECKPOINT_LOOK:
        st = look(prefix.data, ret);
        break;
    case CHECKPOINT_READ:
        st = read_file(prefix.data, &request, ret);
        break;
    case CHECKPOINT_REMOVE:
        st = remove_saved(prefix.data, request.removes_dir);
        break;
    default:
        st = status_unimplemented("a request of kind %d for checkpoint files", (int)request.kind);
    }
    str_fini(&prefix);
    return st;
}
