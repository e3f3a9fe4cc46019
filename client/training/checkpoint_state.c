/* Reads and writes the file `checkpoint`, and deletes checkpoints. */
#include "client/training/checkpoint_state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_STATE_BYTES = 1 << 24 };

/* Returns the length of the folder's part of a path, without the last slash; 0: none. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

/* Sets `out` to a path in the folder of `path`. */
static void beside(const char *path, const char *name, struct str *out) {
    str_clear(out);
    if (strchr(path, '/'))
        str_add_bytes(out, path, folder_length(path) + 1);
    str_add(out, name);
}

/* ---- writing ---- */

/* KEY: "PATH", with the escapes of protobuf's text form. Relative paths begin at the folder. */
static void add_field(struct str *text, const char *key, const char *path) {
    str_addf(text, "%s: \"", key);
    for (const char *c = path[0] == '/' || !strchr(path, '/') ? path : strrchr(path, '/') + 1; *c;
         c++) {
        if (*c == '"' || *c == '\\' || *c == '\'')
            str_addf(text, "\\%c", *c);
        else if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            str_addf(text, "\\%03o", (unsigned char)*c);
        else
            str_add_char(text, *c);
    }
    str_add(text, "\"\n");
}

static struct status *write_file(const struct file_system *fs, const char *path,
                                 const struct str *text) {
    struct file_sink sink = FILE_SINK_INIT;
    (void)fs->unlink(fs, path); /* of a process that was killed */
    TRY(file_sink_open(&sink, fs, path));
    struct status *st = file_sink_write(&sink, text->data, text->len);
    if (!st)
        st = file_sink_finish(&sink);
    file_sink_fini(&sink);
    return st;
}

/* Gives the written file its name. */
static struct status *move_file(const struct file_system *fs, const char *from, const char *to) {
    int error = fs->rename(fs, from, to);
    if (error < 0)
        return file_failed(to, error);
    struct str folder = STR_INIT;
    file_dir_of(to, &folder);
    error = fs->sync_dir(fs, str_text(&folder));
    /* EINVAL: this file system cannot sync folders */
    struct status *st =
        error < 0 && error != -EINVAL ? file_failed(str_text(&folder), error) : NULL;
    str_fini(&folder);
    return st;
}

struct status *checkpoint_state_write(const struct file_system *fs, char *const *paths, int n) {
    struct str text = STR_INIT, name = STR_INIT, temporary = STR_INIT;
    add_field(&text, "model_checkpoint_path", paths[n - 1]);
    for (int i = 0; i < n; i++)
        add_field(&text, "all_model_checkpoint_paths", paths[i]);
    beside(paths[n - 1], "checkpoint", &name);
    beside(paths[n - 1], "checkpoint.tmp", &temporary);
    str_addf(&temporary, "%ld", (long)getpid());
    struct status *st = write_file(fs, str_text(&temporary), &text);
    if (!st)
        st = move_file(fs, str_text(&temporary), str_text(&name));
    if (st)
        (void)fs->unlink(fs, str_text(&temporary));
    str_fini(&text);
    str_fini(&name);
    str_fini(&temporary);
    return st;
}

/* ---- reading ---- */

/* Adds what is between the quotes of a field. False where it has no end. */
static bool add_unescaped(const char *c, struct str *out) {
    for (; *c && *c != '"'; c++) {
        if (*c != '\\') {
            str_add_char(out, *c);
            continue;
        }
        c++;
        if (*c >= '0' && *c <= '7') {
            unsigned value = 0;
            int n_digits = 0;
            for (; n_digits < 3 && *c >= '0' && *c <= '7'; n_digits++, c++)
                value = 8 * value + (unsigned)(*c - '0');
            c--;
            str_add_char(out, (char)value);
        } else if (*c) {
            str_add_char(out, *c == 'n' ? '\n' : *c == 't' ? '\t' : *c);
        } else {
            return false;
        }
    }
    return *c == '"';
}

/* Sets `out` to the path in the first field of the latest checkpoint, as it is written there. */
static bool find_latest(const char *text, struct str *out) {
    static const char key[] = "model_checkpoint_path: \"";
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, sizeof key - 1) == 0)
            return add_unescaped(line + sizeof key - 1, out) && out->len > 0;
    }
    return false;
}

static bool has_index(const struct file_system *fs, const char *path) {
    struct str name = STR_INIT;
    str_addf(&name, "%s.index", path);
    bool is_there = fs->kind(fs, str_text(&name)) == FILE_KIND_FILE;
    str_fini(&name);
    return is_there;
}

bool checkpoint_state_read(const struct file_system *fs, const char *folder, struct str *ret_path) {
    struct str name = STR_INIT, text = STR_INIT, found = STR_INIT, path = STR_INIT;
    str_addf(&name, "%s/checkpoint", folder);
    struct status *st = file_load(fs, str_text(&name), MAX_STATE_BYTES, &text);
    bool is_found = !st && find_latest(str_text(&text), &found);
    if (is_found && found.data[0] != '/')
        str_addf(&path, "%s/", folder);
    str_add(&path, str_text(&found));
    is_found = is_found && has_index(fs, str_text(&path));
    if (is_found)
        str_add(ret_path, str_text(&path));
    status_unref(st);
    str_fini(&name);
    str_fini(&text);
    str_fini(&found);
    str_fini(&path);
    return is_found;
}

/* ---- deleting ---- */

/* BASE.index, BASE.meta, BASE.data-00000-of-00001 */
static bool is_file_of(const char *name, const char *base) {
    size_t length = strlen(base);
    if (strncmp(name, base, length) != 0)
        return false;
    name += length;
    return strcmp(name, ".index") == 0 || strcmp(name, ".meta") == 0 ||
           strncmp(name, ".data-", 6) == 0;
}

/* The files of a checkpoint in its folder. */
struct found_files {
    const char *base;
    char **names;
    size_t n;
};

static void add_file(void *arg, const char *name) {
    struct found_files *found = arg;
    if (!is_file_of(name, found->base))
        return;
    found->names = xreallocarray(found->names, found->n + 1, sizeof *found->names);
    found->names[found->n++] = xstrdup(name);
}

void checkpoint_delete(const struct file_system *fs, const char *path) {
    struct found_files found = {.base = file_base_of(path)};
    struct str name = STR_INIT;
    file_dir_of(path, &name);
    (void)fs->list(fs, str_text(&name), add_file, &found);
    for (size_t i = 0; i < found.n; i++) {
        beside(path, found.names[i], &name);
        (void)fs->unlink(fs, str_text(&name));
        free(found.names[i]);
    }
    free(found.names);
    str_fini(&name);
}
