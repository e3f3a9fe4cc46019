/* Matches shell patterns against the directories below the roots. */
#include <fnmatch.h>
#include <stdlib.h>

#include "common/io/file_root.h"
#include "common/io/file_system.h"

enum { MAX_MATCHES = 1 << 20 };

struct paths {
    char **items;
    size_t n, capacity;
};

static void paths_add(struct paths *paths, char *item_take) {
    if (paths->n == paths->capacity) {
        paths->capacity = paths->capacity ? 2 * paths->capacity : 16;
        paths->items = xreallocarray(paths->items, paths->capacity, sizeof(*paths->items));
    }
    paths->items[paths->n++] = item_take;
}

static void paths_fini(struct paths *paths) {
    file_match_free(paths->items, paths->n);
    *paths = (struct paths){0};
}

void file_match_free(char **paths, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}

struct level {
    const char *dir, *pattern;
    struct paths *out;
};

static void on_name(void *arg, const char *name) {
    struct level *level = arg;
    if (level->out->n >= MAX_MATCHES || fnmatch(level->pattern, name, 0) != 0)
        return;
    struct str path = STR_INIT;
    size_t n = strlen(level->dir);
    str_addf(&path, "%s%s%s", level->dir,
             n > 0 && level->dir[n - 1] == '/' ? ""
             : n > 0                           ? "/"
                                               : "",
             name);
    paths_add(level->out, str_detach(&path));
}

static bool has_wildcard(struct span text) {
    for (size_t i = 0; i < text.len; i++)
        if (strchr("*?[\\", text.data[i]) && text.data[i])
            return true;
    return false;
}

/* Matches one part of the pattern in every directory that was found so far. */
static void match_part(const struct file_system *fs, struct span part, struct paths *found) {
    struct paths next = {0};
    char *pattern = xstrndup(part.data, part.len);
    for (size_t i = 0; i < found->n; i++) {
        const char *dir = found->items[i];
        if (has_wildcard(part)) {
            struct level level = {dir, pattern, &next};
            /* a directory that cannot be read has no matches */
            fs->list(fs, *dir ? dir : ".", on_name, &level);
        } else {
            struct str path = STR_INIT;
            size_t n = strlen(dir);
            str_addf(&path, "%s%s%s", dir,
                     n > 0 && dir[n - 1] == '/' ? ""
                     : n > 0                    ? "/"
                                                : "",
                     pattern);
            if (fs->kind(fs, path.data) > FILE_KIND_NONE)
                paths_add(&next, str_detach(&path));
            str_fini(&path);
        }
    }
    free(pattern);
    paths_fini(found);
    *found = next;
}

/* Paths outside of the roots (through a link, or "..") are treated as missing. */
static void keep_allowed(struct paths *found) {
    size_t n = 0;
    for (size_t i = 0; i < found->n; i++) {
        if (file_root_holds(found->items[i]))
            found->items[n++] = found->items[i];
        else
            free(found->items[i]);
    }
    found->n = n;
}

/* The directory before the first part with a wildcard must be below a root. */
static struct status *check_fixed_part(struct span pattern) {
    size_t end = 0;
    for (size_t i = 0; i < pattern.len && !has_wildcard((struct span){pattern.data, i + 1}); i++)
        if (pattern.data[i] == '/')
            end = i == 0 ? 1 : i;
    struct str unused = STR_INIT;
    struct span fixed = !has_wildcard(pattern) ? pattern
                        : end > 0              ? (struct span){pattern.data, end}
                                               : span_of(".");
    struct status *st = file_root_resolve(fixed, &unused);
    str_fini(&unused);
    return st;
}

struct status *file_match(struct span pattern, char ***ret_paths, size_t *ret_n) {
    const struct file_system *fs = &file_system_posix;
    struct paths found = {0};
    if (pattern.len > 7 && memcmp(pattern.data, "file://", 7) == 0)
        pattern = (struct span){pattern.data + 7, pattern.len - 7};
    *ret_paths = NULL;
    *ret_n = 0;
    if (pattern.len == 0)
        return NULL;
    TRY(check_fixed_part(pattern));
    paths_add(&found, xstrdup(pattern.data[0] == '/' ? "/" : ""));
    for (size_t at = 0; at < pattern.len && found.n > 0;) {
        const char *slash = memchr(pattern.data + at, '/', pattern.len - at);
        size_t end = slash ? (size_t)(slash - pattern.data) : pattern.len;
        if (end > at)
            match_part(fs, (struct span){pattern.data + at, end - at}, &found);
        at = end + 1;
    }
    keep_allowed(&found);
    if (found.n >= MAX_MATCHES) {
        paths_fini(&found);
        return status_exhausted("More than %d files match %.*s", MAX_MATCHES, (int)pattern.len,
                                pattern.data);
    }
    if (found.n > 1)
        qsort(found.items, found.n, sizeof(*found.items), text_compare);
    *ret_paths = found.items;
    *ret_n = found.n;
    return NULL;
}
