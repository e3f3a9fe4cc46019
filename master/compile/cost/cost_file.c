/* Writes the table of measured costs to a file, and reads it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "master/compile/cost/cost_table_internal.h"

enum { MAX_FILE_BYTES = 64 << 20, MAX_LINE_BYTES = COST_KEY_MAX_BYTES + 100 };
static const char FIRST_LINE[] = "millrace costs 1";

/* ---- text ---- */

struct row_copy {
    double ns;
    int64_t n;
};

/* Copies the rows, and appends their keys, each with its 0. Returns the caller's array. */
static struct row_copy *copy_rows(struct cost_table *table, int *ret_n, struct str *ret_keys) {
    size_t cursor = 0;
    struct span key;
    void *value;
    int n = 0;
    pthread_mutex_lock(&table->lock);
    struct row_copy *copies = xcalloc(table->rows.n_entries + 1, sizeof *copies);
    while (strmap_next(&table->rows, &cursor, &key, &value)) {
        const struct measured_cost *row = value;
        copies[n++] = (struct row_copy){row->ns, row->n};
        str_add_bytes(ret_keys, row->key, strlen(row->key) + 1);
    }
    pthread_mutex_unlock(&table->lock);
    *ret_n = n;
    return copies;
}

/* Formatting takes longer than copying, and compilations wait for the lock. */
void cost_table_print(struct cost_table *table, struct str *out) {
    struct str keys = STR_INIT;
    int n;
    struct row_copy *rows = copy_rows(table, &n, &keys);
    const char *key = keys.data;
    str_addf(out, "%s\n", FIRST_LINE);
    for (int i = 0; i < n; i++, key += strlen(key) + 1)
        str_addf(out, "%.17g %lld %s\n", rows[i].ns, (long long)rows[i].n, key);
    str_fini(&keys);
    free(rows);
}

static bool next_line(struct span *text, struct span *ret) {
    const char *end = text->len > 0 ? memchr(text->data, '\n', text->len) : NULL;
    if (!end)
        return false;
    *ret = (struct span){text->data, (size_t)(end - text->data)};
    *text = (struct span){end + 1, text->len - ret->len - 1};
    return true;
}

/* "NS COUNT KEY" */
static bool parse_row(struct span line, double *ret_ns, int64_t *ret_n, char *ret_key) {
    char copy[MAX_LINE_BYTES + 1], *end;
    if (line.len > MAX_LINE_BYTES || memchr(line.data, 0, line.len))
        return false;
    memcpy(copy, line.data, line.len);
    copy[line.len] = 0;
    *ret_ns = strtod(copy, &end);
    if (end == copy || *end != ' ')
        return false;
    char *count = end + 1;
    errno = 0;
    *ret_n = strtoll(count, &end, 10);
    if (end == count || *end != ' ' || errno)
        return false;
    memcpy(ret_key, end + 1, strlen(end + 1) + 1);
    return cost_row_is_valid(span_of(ret_key), *ret_ns, *ret_n);
}

static struct status *parse_rows(struct cost_table *table, struct span text) {
    struct span line;
    for (int number = 2; text.len > 0; number++) {
        char key[MAX_LINE_BYTES + 1];
        double ns;
        int64_t n;
        if (!next_line(&text, &line))
            return status_invalid("line %d is cut off", number);
        if (!parse_row(line, &ns, &n, key))
            return status_invalid("line %d is not 'NANOSECONDS COUNT KEY': '%.*s'", number,
                                  (int)MIN(line.len, (size_t)60), line.data);
        if (number - 2 >= COST_TABLE_MAX_ROWS)
            return status_invalid("it has more than %d rows", COST_TABLE_MAX_ROWS);
        if (table)
            cost_table_note(table, key, ns, n);
    }
    return NULL;
}

struct status *cost_table_parse(struct cost_table *table, struct span text) {
    struct span line;
    if (!next_line(&text, &line) || !span_is(line, FIRST_LINE))
        return status_invalid("its first line is not '%s'", FIRST_LINE);
    TRY(parse_rows(NULL, text));
    return parse_rows(table, text);
}

/* ---- files ---- */

static struct status *failed(const char *what, const char *path) {
    return status_unavailable("cannot %s cost file %s: %s", what, path, strerror(errno));
}

static struct status *read_all(int fd, const char *path, struct str *out) {
    char buffer[65536];
    ssize_t n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0) {
        str_add_bytes(out, buffer, (size_t)n);
        if (out->len > MAX_FILE_BYTES)
            return status_invalid("cost file %s: it has more than %d bytes", path, MAX_FILE_BYTES);
    }
    return n < 0 ? failed("read", path) : NULL;
}

struct status *cost_file_read(struct cost_table *table, const char *path) {
    struct str text = STR_INIT;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold the start up */
    if (fd < 0)
        return errno == ENOENT ? NULL : failed("open", path);
    struct status *st = read_all(fd, path, &text);
    close(fd);
    if (!st)
        st = status_prefix_take(cost_table_parse(table, (struct span){text.data, text.len}),
                                "cost file %s: ", path);
    str_fini(&text);
    return st;
}

static bool write_all(int fd, struct span text) {
    while (text.len > 0) {
        ssize_t n = write(fd, text.data, text.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text = (struct span){text.data + n, text.len - (size_t)n};
    }
    return fsync(fd) == 0;
}

struct status *cost_file_write(struct cost_table *table, const char *path) {
    struct str text = STR_INIT, temporary = STR_INIT;
    struct status *st = NULL;
    str_addf(&temporary, "%s.%d.tmp", path, (int)getpid());
    cost_table_print(table, &text);
    int fd = open(str_text(&temporary), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || !write_all(fd, (struct span){text.data, text.len}) ||
        rename(str_text(&temporary), path) != 0) {
        st = failed("write", path);
        unlink(str_text(&temporary));
    }
    if (fd >= 0)
        close(fd);
    str_fini(&text);
    str_fini(&temporary);
    return st;
}
