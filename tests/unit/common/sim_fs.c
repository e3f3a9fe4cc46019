/* Implements the file system of tests: a tree in memory, and the log of what was done. */
#include "tests/unit/common/sim_fs.h"

#include <errno.h>
#include <stdlib.h>

static struct sim_fs *sim_of(const struct file_system *fs) {
    return (struct sim_fs *)(uintptr_t)fs;
}

/* ---- failing ---- */

static int fails(struct sim_fs *sim) {
    sim->n_calls++;
    if (sim->fail_after < 0)
        return 0;
    if (sim->fail_after > 0) {
        sim->fail_after--;
        return 0;
    }
    if (sim->fail_once)
        sim->fail_after = -1;
    return -sim->fail_error;
}

#define FAIL_HERE(sim)           \
    do {                         \
        int error_ = fails(sim); \
        if (error_ < 0)          \
            return error_;       \
    } while (0)

/* ---- names and files ---- */

static int find_name(const struct sim_fs *sim, const char *path) {
    for (int i = 0; i < sim->n_names; i++)
        if (strcmp(sim->names[i].path, path) == 0)
            return i;
    return -1;
}

static int find_dir(const struct sim_fs *sim, const char *path) {
    for (int i = 0; i < sim->n_dirs; i++)
        if (strcmp(sim->dirs[i], path) == 0)
            return i;
    return -1;
}

static void remove_name(struct sim_fs *sim, const char *path) {
    int i = find_name(sim, path);
    if (i < 0)
        return;
    free(sim->names[i].path);
    sim->names[i] = sim->names[--sim->n_names];
}

static void set_name(struct sim_fs *sim, const char *path, int file) {
    remove_name(sim, path);
    sim->names = xreallocarray(sim->names, (size_t)sim->n_names + 1, sizeof(*sim->names));
    sim->names[sim->n_names++] = (struct sim_name){xstrdup(path), file};
}

static void write_file(struct sim_file *file, size_t offset, const char *data, size_t len) {
    if (offset + len > file->len) {
        file->data = xrealloc(file->data, offset + len);
        memset(file->data + file->len, 0, offset + len - file->len);
        file->len = offset + len;
    }
    if (data)
        memcpy(file->data + offset, data, len);
}

static int new_file(struct sim_fs *sim) {
    sim->files = xreallocarray(sim->files, (size_t)sim->n_files + 1, sizeof(*sim->files));
    sim->files[sim->n_files] = (struct sim_file){NULL, 0};
    return sim->n_files++;
}

static struct sim_entry *add_entry(struct sim_fs *sim, enum sim_kind kind, const char *path,
                                   const char *to, int file) {
    sim->log = xreallocarray(sim->log, (size_t)sim->n_log + 1, sizeof(*sim->log));
    sim->log[sim->n_log] = (struct sim_entry){.kind = kind,
                                              .path = path ? xstrdup(path) : NULL,
                                              .to = to ? xstrdup(to) : NULL,
                                              .file = file};
    return &sim->log[sim->n_log++];
}

static char *dir_of(const char *path) {
    struct str dir = STR_INIT;
    file_dir_of(path, &dir);
    return str_detach(&dir);
}

static bool has_dir_of(const struct sim_fs *sim, const char *path) {
    char *dir = dir_of(path);
    bool has = find_dir(sim, dir) >= 0;
    free(dir);
    return has;
}

/* ---- calls ---- */

static int sim_open(const struct file_system *fs, const char *path, enum file_mode mode) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    int name = find_name(sim, path), fd = 0;
    if (mode == FILE_READ && name < 0)
        return -ENOENT;
    if (mode != FILE_READ && !has_dir_of(sim, path))
        return -ENOENT;
    if (mode == FILE_CREATE && name >= 0)
        return -EEXIST;
    CHECK(mode != FILE_REPLACE);
    while (sim->open_files[fd] >= 0)
        CHECK(++fd < SIM_MAX_OPEN);
    int file = mode == FILE_READ ? sim->names[name].file : new_file(sim);
    if (mode == FILE_CREATE) {
        set_name(sim, path, file);
        add_entry(sim, SIM_CREATE, path, NULL, file);
    }
    sim->open_files[fd] = file;
    return fd;
}

static int sim_close(const struct file_system *fs, int fd) {
    struct sim_fs *sim = sim_of(fs);
    CHECK(sim->open_files[fd] >= 0);
    sim->open_files[fd] = -1; /* whatever close answers, the descriptor is gone */
    return fails(sim);
}

static int64_t sim_read(const struct file_system *fs, int fd, void *to, size_t n, int64_t offset) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    const struct sim_file *file = &sim->files[sim->open_files[fd]];
    size_t got = (size_t)offset < file->len ? MIN(n, file->len - (size_t)offset) : 0;
    if (got > 0)
        memcpy(to, file->data + offset, got);
    return (int64_t)got;
}

static int64_t sim_write(const struct file_system *fs, int fd, const void *from, size_t n,
                         int64_t offset) {
    struct sim_fs *sim = sim_of(fs);
    bool is_short = sim->short_once && sim->fail_after == 0;
    int error = fails(sim), file = sim->open_files[fd];
    if (error < 0 && !is_short)
        return error;
    if (error < 0)
        n = (n + 1) / 2;
    write_file(&sim->files[file], (size_t)offset, from, n);
    struct sim_entry *entry = add_entry(sim, SIM_WRITE, NULL, NULL, file);
    entry->offset = (size_t)offset;
    entry->len = n;
    entry->data = memcpy(xmalloc(n + 1), from, n);
    return (int64_t)n;
}

static int64_t sim_size(const struct file_system *fs, int fd) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    return (int64_t)sim->files[sim->open_files[fd]].len;
}

static int sim_sync(const struct file_system *fs, int fd) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    add_entry(sim, SIM_SYNC, NULL, NULL, sim->open_files[fd]);
    return 0;
}

static int sim_rename(const struct file_system *fs, const char *from, const char *to) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    int name = find_name(sim, from);
    if (name < 0 || !has_dir_of(sim, to))
        return -ENOENT;
    int file = sim->names[name].file;
    add_entry(sim, SIM_RENAME, from, to, file);
    remove_name(sim, from);
    set_name(sim, to, file);
    return 0;
}

static int sim_unlink(const struct file_system *fs, const char *path) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    if (find_name(sim, path) < 0)
        return -ENOENT;
    add_entry(sim, SIM_UNLINK, path, NULL, -1);
    remove_name(sim, path);
    return 0;
}

static void add_dir(struct sim_fs *sim, const char *path) {
    sim->dirs = xreallocarray(sim->dirs, (size_t)sim->n_dirs + 1, sizeof(*sim->dirs));
    sim->dirs[sim->n_dirs++] = xstrdup(path);
}

static int sim_make_dir(const struct file_system *fs, const char *path) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    if (find_dir(sim, path) >= 0)
        return -EEXIST;
    if (!has_dir_of(sim, path))
        return -ENOENT;
    add_entry(sim, SIM_MAKE_DIR, path, NULL, -1);
    add_dir(sim, path);
    return 0;
}

static int sim_remove_dir(const struct file_system *fs, const char *path) { return -ENOTEMPTY; }

static int sim_sync_dir(const struct file_system *fs, const char *path) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    if (find_dir(sim, path) < 0)
        return -ENOENT;
    add_entry(sim, SIM_SYNC_DIR, path, NULL, -1);
    return 0;
}

static int sim_kind_of(const struct file_system *fs, const char *path) {
    const struct sim_fs *sim = sim_of(fs);
    return find_name(sim, path) >= 0  ? FILE_KIND_FILE
           : find_dir(sim, path) >= 0 ? FILE_KIND_DIR
                                      : FILE_KIND_NONE;
}

static int sim_list(const struct file_system *fs, const char *path,
                    void (*visit)(void *arg, const char *name), void *arg) {
    struct sim_fs *sim = sim_of(fs);
    FAIL_HERE(sim);
    for (int i = 0; i < sim->n_names; i++) {
        char *dir = dir_of(sim->names[i].path);
        if (strcmp(dir, path) == 0)
            visit(arg, file_base_of(sim->names[i].path));
        free(dir);
    }
    return 0;
}

static const struct file_system calls = {
    .open = sim_open,
    .close = sim_close,
    .read = sim_read,
    .write = sim_write,
    .size = sim_size,
    .sync = sim_sync,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .make_dir = sim_make_dir,
    .remove_dir = sim_remove_dir,
    .sync_dir = sim_sync_dir,
    .kind = sim_kind_of,
    .list = sim_list,
};

struct sim_fs *sim_fs_new(void) {
    struct sim_fs *sim = xcalloc(1, sizeof(*sim));
    sim->fs = calls;
    sim->fail_after = -1;
    for (int i = 0; i < SIM_MAX_OPEN; i++)
        sim->open_files[i] = -1;
    add_dir(sim, ".");
    add_dir(sim, "d");
    return sim;
}

void sim_fs_free(struct sim_fs *sim) {
    if (!sim)
        return;
    for (int i = 0; i < sim->n_files; i++)
        free(sim->files[i].data);
    for (int i = 0; i < sim->n_names; i++)
        free(sim->names[i].path);
    for (int i = 0; i < sim->n_dirs; i++)
        free(sim->dirs[i]);
    for (int i = 0; i < sim->n_log; i++) {
        free(sim->log[i].path);
        free(sim->log[i].to);
        free(sim->log[i].data);
    }
    free(sim->files);
    free(sim->names);
    free(sim->dirs);
    free(sim->log);
    free(sim);
}

int sim_n_open(const struct sim_fs *sim) {
    int n = 0;
    for (int i = 0; i < SIM_MAX_OPEN; i++)
        n += sim->open_files[i] >= 0;
    return n;
}

const char *sim_name_at(const struct sim_fs *sim, int i) {
    return i < sim->n_names ? sim->names[i].path : NULL;
}

/* ---- power cuts ---- */

static bool is_dir_synced(const struct sim_fs *sim, const char *path, int from, int k) {
    char *dir = dir_of(path);
    bool is_synced = false;
    for (int i = from; i < k && !is_synced; i++)
        is_synced = sim->log[i].kind == SIM_SYNC_DIR && strcmp(sim->log[i].path, dir) == 0;
    free(dir);
    return is_synced;
}

bool sim_is_open(const struct sim_fs *sim, int i, int k) {
    const struct sim_entry *entry = &sim->log[i];
    switch (entry->kind) {
    case SIM_WRITE:
        for (int s = i + 1; s < k; s++)
            if (sim->log[s].kind == SIM_SYNC && sim->log[s].file == entry->file)
                return false;
        return true;
    case SIM_RENAME:
        return !is_dir_synced(sim, entry->to, i + 1, k);
    case SIM_CREATE:
    case SIM_UNLINK:
    case SIM_MAKE_DIR:
        return !is_dir_synced(sim, entry->path, i + 1, k);
    default:
        return false;
    }
}

static uint64_t next_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

static void apply(struct sim_fs *to, const struct sim_entry *entry, uint64_t torn) {
    switch (entry->kind) {
    case SIM_WRITE:
        if (torn == 1) /* the file has grown, the bytes are not there */
            write_file(&to->files[entry->file], entry->offset, NULL, entry->len);
        else
            write_file(&to->files[entry->file], entry->offset, entry->data,
                       torn == 2 ? entry->len / 2 : entry->len);
        break;
    case SIM_CREATE:
        set_name(to, entry->path, entry->file);
        break;
    case SIM_RENAME:
        remove_name(to, entry->path);
        set_name(to, entry->to, entry->file);
        break;
    case SIM_UNLINK:
        remove_name(to, entry->path);
        break;
    case SIM_MAKE_DIR:
        if (has_dir_of(to, entry->path))
            add_dir(to, entry->path);
        break;
    default:
        break;
    }
}

static bool is_chosen(struct sim_choice *choice, int i) {
    switch (choice->how) {
    case SIM_ALL:
        return true;
    case SIM_NONE:
        return false;
    case SIM_ALL_BUT:
        return i != choice->entry;
    case SIM_ONLY:
        return i == choice->entry;
    default:
        return next_random(&choice->seed) & 1;
    }
}

static void lose_names_without_dir(struct sim_fs *sim) {
    for (int i = 0; i < sim->n_names;)
        if (has_dir_of(sim, sim->names[i].path))
            i++;
        else
            remove_name(sim, sim->names[i].path); /* another takes its place */
}

struct sim_fs *sim_after_cut(const struct sim_fs *sim, int n_settled, int k,
                             struct sim_choice choice) {
    struct sim_fs *to = sim_fs_new();
    for (int i = 0; i < sim->n_files; i++)
        new_file(to);
    for (int i = 0; i < k; i++) {
        bool is_open = i >= n_settled && sim_is_open(sim, i, k);
        if (is_open && !is_chosen(&choice, i))
            continue;
        uint64_t torn = is_open && choice.how == SIM_RANDOM ? next_random(&choice.seed) % 4 : 0;
        apply(to, &sim->log[i], torn);
    }
    lose_names_without_dir(to);
    return to;
}
