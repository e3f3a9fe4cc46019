/* Reads and writes the file `checkpoint`, and deletes checkpoints. */
#include "client/training/checkpoint_state.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

static struct status *write_file(const char *path, const struct str *text) {
    FILE *file = fopen(path, "we");
    bool is_good = file && fwrite(text->data, 1, text->len, file) == text->len;
    int error = errno;
    if (file && fclose(file) != 0 && is_good) {
        is_good = false;
        error = errno;
    }
    return is_good ? NULL
                   : status_new(STATUS_UNKNOWN, "cannot write '%s': %s", path, strerror(error));
}

struct status *checkpoint_state_write(char *const *paths, int n) {
    struct str text = STR_INIT, name = STR_INIT, temporary = STR_INIT;
    add_field(&text, "model_checkpoint_path", paths[n - 1]);
    for (int i = 0; i < n; i++)
        add_field(&text, "all_model_checkpoint_paths", paths[i]);
    beside(paths[n - 1], "checkpoint", &name);
    beside(paths[n - 1], "checkpoint.tmp", &temporary);
    str_addf(&temporary, "%ld", (long)getpid());
    struct status *st = write_file(str_text(&temporary), &text);
    if (!st && rename(str_text(&temporary), str_text(&name)) != 0)
        st = status_new(STATUS_UNKNOWN, "cannot write '%s': %s", str_text(&name), strerror(errno));
    if (st)
        unlink(str_text(&temporary));
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

bool checkpoint_state_read(const char *folder, struct str *ret_path) {
    static const char key[] = "model_checkpoint_path: \"";
    struct str name = STR_INIT, found = STR_INIT;
    str_addf(&name, "%s/checkpoint", folder);
    FILE *file = fopen(str_text(&name), "re");
    char *line = NULL;
    size_t capacity = 0;
    bool is_found = false;
    while (!is_found && file && getline(&line, &capacity, file) >= 0)
        if (strncmp(line, key, sizeof key - 1) == 0)
            is_found = add_unescaped(line + sizeof key - 1, &found) && found.len > 0;
    if (is_found && found.data[0] != '/')
        str_addf(ret_path, "%s/", folder);
    if (is_found)
        str_add(ret_path, str_text(&found));
    if (file)
        fclose(file);
    free(line);
    str_fini(&name);
    str_fini(&found);
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

void checkpoint_delete(const char *path) {
    struct str folder = STR_INIT, name = STR_INIT;
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    beside(path, ".", &folder);
    DIR *directory = opendir(str_text(&folder));
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (!is_file_of(entry->d_name, base))
            continue;
        beside(path, entry->d_name, &name);
        unlink(str_text(&name));
    }
    if (directory)
        closedir(directory);
    str_fini(&folder);
    str_fini(&name);
}
