/* Keeps measured times of executions by key, and writes keys. */
#include "master/compile/cost/cost_table.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "master/compile/cost/cost_table_internal.h"

/* The least share of a new time in the row. The first times have more: that of their executions in
 * all. */
static const double SHORTER_COUNTS = 1.0 / 4, LONGER_COUNTS = 1.0 / 16;

enum { MAX_SHOWN_INPUTS = 6, MAX_NAME_BYTES = 100 };

/* The same of sizes, which may change either way. */
static const double SIZE_COUNTS = 1.0 / 8;

/* ---- keys ---- */

static const uint64_t HASH_OF_NOTHING = UINT64_C(0xcbf29ce484222325);

static uint64_t hash_add(uint64_t hash, const char *data, size_t len) {
    for (size_t i = 0; i < len; i++) /* FNV-1a: the file outlives a release */
        hash = (hash ^ (uint8_t)data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Names of state and placement do not change what an execution costs. */
static bool counts(const struct attr *attr) {
    static const char *const others[] = {"container", "shared_name", "tensor_name",
                                         "client_terminated"};
    int type = (int)attr->value.type & ~ATTR_LIST;
    if (attr->name[0] == '_' || type == ATTR_TENSOR || type == ATTR_FUNC)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strcmp(attr->name, others[i]) == 0)
            return false;
    return true;
}

static int64_t round_up(int64_t size) {
    int64_t rounded = size > 0 ? 1 : 0;
    while (rounded < size && rounded <= INT64_MAX / 2)
        rounded *= 2;
    return rounded;
}

static void add_shape(struct str *out, struct shape shape) {
    for (int d = 0; d < shape.rank; d++)
        if (shape.dims[d] < 0)
            str_addf(out, "%s?", d > 0 ? "x" : "");
        else
            str_addf(out, "%s%lld", d > 0 ? "x" : "", (long long)round_up(shape.dims[d]));
    if (shape.rank <= 0)
        str_add(out, shape.rank == 0 ? "scalar" : "any");
}

void cost_key_write(struct str *out, const char *device_type, const struct node *node,
                    const struct shape *in) {
    struct str text = STR_INIT;
    for (int i = 0; i < node->n_attrs; i++) {
        if (!counts(&node->attrs[i]))
            continue;
        str_addf(&text, "%s=", node->attrs[i].name);
        attr_value_print(&node->attrs[i].value, &text);
        str_add_char(&text, ';');
    }
    uint64_t hash = hash_add(HASH_OF_NOTHING, text.data, text.len);
    str_addf(out, "%.*s %s ", MAX_NAME_BYTES, node->op_name,
             node->n_data > 0 ? dtype_name(dtype_base((enum dtype)node->in_types[0])) : "none");
    for (int i = 0; i < node->n_data; i++) {
        str_clear(&text);
        add_shape(&text, in[i]);
        hash = hash_add(hash_add(hash, text.data, text.len), ",", 1);
        if (i < MAX_SHOWN_INPUTS && text.len < MAX_NAME_BYTES / 2)
            str_addf(out, "%s%s", i > 0 ? "," : "", str_text(&text));
        else if (i == MAX_SHOWN_INPUTS)
            str_add(out, ",...");
    }
    str_addf(out, "%s %.*s %016llx", node->n_data == 0 ? "-" : "", MAX_NAME_BYTES, device_type,
             (unsigned long long)hash);
    str_fini(&text);
}

static const char SIZE_KEY[] = "size of ";

void cost_size_key_write(struct str *out, const struct node *node, struct shape known) {
    struct str text = STR_INIT;
    uint64_t hash = hash_add(HASH_OF_NOTHING, node->name, strlen(node->name) + 1);
    hash = hash_add(hash, node->op_name, strlen(node->op_name) + 1);
    add_shape(&text, known);
    hash = hash_add(hash, text.data, text.len);
    str_addf(out, "%s%.*s %.*s %.*s %016llx", SIZE_KEY, MAX_NAME_BYTES, node->name, MAX_NAME_BYTES,
             node->op_name, MAX_NAME_BYTES / 2, str_text(&text), (unsigned long long)hash);
    str_fini(&text);
}

void cost_size_key_end(struct str *key, int dim) {
    if (dim == COST_RANK)
        str_add(key, " rank");
    else
        str_addf(key, " dim %d", dim);
}

static bool is_size_key(const char *key) { return strncmp(key, SIZE_KEY, strlen(SIZE_KEY)) == 0; }

/* ---- the table ---- */

struct cost_table *cost_table_new(void) {
    struct cost_table *table = xcalloc(1, sizeof *table);
    CHECK(pthread_mutex_init(&table->lock, NULL) == 0);
    strmap_init(&table->rows);
    return table;
}

void cost_table_free(struct cost_table *table) {
    size_t cursor = 0;
    struct span key;
    void *row;
    if (!table)
        return;
    while (strmap_next(&table->rows, &cursor, &key, &row))
        free(row);
    strmap_fini(&table->rows);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

bool cost_row_is_valid(struct span key, double ns, int64_t n) {
    if (key.len == 0 || key.len > COST_KEY_MAX_BYTES || n < 1 || n > COST_MAX_COUNT)
        return false;
    for (size_t i = 0; i < key.len; i++)
        if (key.data[i] < ' ' || key.data[i] > '~')
            return false;
    return isfinite(ns) && ns > 0 && ns <= COST_MAX_NS;
}

/* Makes room for a row by removing the one that the table visits next. The caller holds the
 * lock. */
static void remove_one(struct cost_table *table) {
    struct span key;
    void *row;
    if (!strmap_next(&table->rows, &table->evicted_to, &key, &row)) {
        table->evicted_to = 0;
        if (!strmap_next(&table->rows, &table->evicted_to, &key, &row))
            return;
    }
    strmap_remove_span(&table->rows, key);
    free(row);
}

static struct measured_cost *add_row(struct cost_table *table, const char *key) {
    size_t len = strlen(key);
    if (table->rows.n_entries >= COST_TABLE_MAX_ROWS)
        remove_one(table);
    struct measured_cost *row = xcalloc(1, sizeof *row + len + 1);
    memcpy(row->key, key, len);
    strmap_put(&table->rows, row->key, row);
    return row;
}

void cost_table_note(struct cost_table *table, const char *key, double ns, int64_t n) {
    if (!cost_row_is_valid(span_of(key), ns, n))
        return;
    pthread_mutex_lock(&table->lock);
    struct measured_cost *row = strmap_get(&table->rows, key);
    if (!row)
        row = add_row(table, key);
    row->n = MIN(row->n + n, (int64_t)COST_MAX_COUNT);
    double of_all = (double)n / (double)row->n;
    double least = is_size_key(key) ? SIZE_COUNTS : ns < row->ns ? SHORTER_COUNTS : LONGER_COUNTS;
    row->ns += (ns - row->ns) * fmax(of_all, least);
    table->n_changes++;
    pthread_mutex_unlock(&table->lock);
}

double cost_table_find(struct cost_table *table, const char *key) {
    if (!table)
        return 0;
    pthread_mutex_lock(&table->lock);
    const struct measured_cost *row = strmap_get(&table->rows, key);
    double ns = row ? row->ns : 0;
    pthread_mutex_unlock(&table->lock);
    return ns;
}

int cost_table_n_rows(struct cost_table *table) {
    pthread_mutex_lock(&table->lock);
    int n = (int)table->rows.n_entries;
    pthread_mutex_unlock(&table->lock);
    return n;
}

uint64_t cost_table_n_changes(struct cost_table *table) {
    pthread_mutex_lock(&table->lock);
    uint64_t n = table->n_changes;
    pthread_mutex_unlock(&table->lock);
    return n;
}

/* A page may have ten thousand rows, and compilations wait for the lock: the text is made without
 * it. The keys follow the rows. */
struct shown_row {
    double ns;
    int64_t n;
    size_t key_at;
};

void cost_table_describe(struct cost_table *table, int max_rows, struct str *out) {
    struct str keys = STR_INIT;
    struct span key;
    size_t cursor = 0;
    void *value;
    int n = 0;
    pthread_mutex_lock(&table->lock);
    int n_rows = (int)table->rows.n_entries, most = MIN(max_rows, n_rows);
    struct shown_row *rows = xcalloc((size_t)MAX(most, 0) + 1, sizeof(*rows));
    while (n < most && strmap_next(&table->rows, &cursor, &key, &value)) {
        const struct measured_cost *row = value;
        rows[n++] = (struct shown_row){row->ns, row->n, keys.len};
        str_add_bytes(&keys, row->key, strlen(row->key) + 1);
    }
    pthread_mutex_unlock(&table->lock);
    str_add_char(out, '[');
    for (int i = 0; i < n; i++) {
        const char *text = keys.data + rows[i].key_at;
        str_addf(out, "%s{\"key\": \"", i > 0 ? ",\n " : "");
        str_add_json_escaped(out, text, strlen(text));
        str_addf(out, "\", \"%s\": %.0f, \"executions\": %lld}", is_size_key(text) ? "size" : "ns",
                 rows[i].ns, (long long)rows[i].n);
    }
    if (n_rows > max_rows)
        str_addf(out, ",\n {\"more\": %d}", n_rows - max_rows);
    str_add(out, "]\n");
    free(rows);
    str_fini(&keys);
}
