/* Makes names of temporary files, and removes files whose process has ended. */
#include "common/io/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"

static const char MARK[] = ".tmp-";

struct owner {
    uint64_t place; /* 0: unknown */
    int64_t pid;
    uint64_t start; /* 0: unknown */
};

/* ---- this process ---- */

static size_t read_small(const char *path, char *to, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, to, room - 1) : 0;
    if (fd >= 0)
        close(fd);
    to[MAX(n, 0)] = '\0';
    return (size_t)MAX(n, 0);
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3; /* FNV-1a */
    return hash;
}

static uint64_t this_place(void) {
    char boot[64];
    struct stat pids, times = {0};
    size_t n = read_small("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    if (n == 0 || stat("/proc/self/ns/pid", &pids) != 0)
        return 0;
    (void)stat("/proc/self/ns/time", &times); /* older systems lack it */
    uint64_t hash = hash_bytes(0xcbf29ce484222325, boot, n);
    hash = hash_bytes(hash, &pids.st_ino, sizeof(pids.st_ino));
    return hash_bytes(hash, &times.st_ino, sizeof(times.st_ino));
}

/* 0: it does not exist, or may not be read. */
static uint64_t start_of(int64_t pid) {
    char path[48], text[1024];
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
    read_small(path, text, sizeof(text));
    /* field 2, the name of the program, may contain any bytes */
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

/* Read each time, because fork makes another process. */
static struct owner this_process(void) {
    struct owner owner = {.place = this_place(), .pid = getpid()};
    owner.start = start_of(owner.pid);
    if (owner.start == 0)
        owner.place = 0;
    return owner;
}

void temporary_add_name(struct str *path) {
    static _Atomic unsigned n_names;
    struct owner owner = this_process();
    uint64_t place = owner.place ? owner.place : random_u64(); /* no process has this pid */
    str_addf(path, "%s%016" PRIx64 "-%" PRId64 "-%" PRIx64 "-%x", MARK, place, owner.pid,
             owner.start, atomic_fetch_add(&n_names, 1));
}

/* ---- others ---- */

static bool take_number(const char **at, int base, char end, uint64_t *ret) {
    char *stop;
    errno = 0;
    if (!(**at >= '0' && **at <= '9') && !(base == 16 && **at >= 'a' && **at <= 'f'))
        return false; /* strtoull accepts signs and spaces */
    *ret = strtoull(*at, &stop, base);
    if (errno || *stop != end)
        return false;
    *at = stop + 1;
    return true;
}

static bool parse(const char *name, struct owner *ret) {
    const char *at = NULL;
    uint64_t pid;
    for (const char *next = name; (next = strstr(next, MARK)); next += strlen(MARK))
        at = next + strlen(MARK);
    if (!at || !take_number(&at, 16, '-', &ret->place) || !take_number(&at, 10, '-', &pid) ||
        !take_number(&at, 16, '-', &ret->start))
        return false;
    size_t n_digits = strspn(at, "0123456789abcdef");
    ret->pid = (int64_t)pid;
    return pid > 0 && pid <= INT32_MAX && ret->start > 0 && n_digits > 0 &&
           (at[n_digits] == '\0' || at[n_digits] == '.');
}

/* The process has ended, or another process has its pid now. */
static bool is_gone(const struct owner *owner) {
    if (kill((pid_t)owner->pid, 0) != 0 && errno == ESRCH)
        return true;
    uint64_t start = start_of(owner->pid);
    return start != 0 && start != owner->start;
}

bool temporary_is_abandoned(const char *name) {
    struct owner owner;
    return parse(name, &owner) && owner.place == this_place() && is_gone(&owner);
}

/* ---- a directory ---- */

struct names {
    char **items;
    size_t n, capacity;
};

struct found {
    struct names abandoned, dirs;
};

static void add_name(struct names *names, const char *name) {
    if (names->n == names->capacity) {
        names->capacity = names->capacity ? 2 * names->capacity : 8;
        names->items = xreallocarray(names->items, names->capacity, sizeof(*names->items));
    }
    names->items[names->n++] = xstrdup(name);
}

static void names_fini(struct names *names) {
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
}

static void on_name(void *arg, const char *name) {
    struct found *found = arg;
    if (temporary_is_abandoned(name))
        add_name(&found->abandoned, name);
    else if (strstr(name, "_temp"))
        add_name(&found->dirs, name);
}

/* Paths that are not directories cannot be listed and are skipped. */
static void collect(const struct file_system *fs, const char *dir, struct found *found) {
    struct str path = STR_INIT;
    (void)fs->list(fs, dir, on_name, found);
    for (size_t i = 0; i < found->abandoned.n; i++) {
        str_clear(&path);
        str_addf(&path, "%s/%s", dir, found->abandoned.items[i]);
        fs->unlink(fs, path.data);
    }
    str_fini(&path);
    names_fini(&found->abandoned);
}

void temporary_collect(const struct file_system *fs, const char *beside) {
    struct found found = {0};
    struct str dir = STR_INIT, path = STR_INIT;
    file_dir_of(beside, &dir);
    collect(fs, dir.data, &found);
    for (size_t i = 0; i < found.dirs.n; i++) {
        struct found inside = {0};
        str_clear(&path);
        str_addf(&path, "%s/%s", dir.data, found.dirs.items[i]);
        collect(fs, path.data, &inside);
        names_fini(&inside.dirs);
    }
    names_fini(&found.dirs);
    str_fini(&path);
    str_fini(&dir);
}
