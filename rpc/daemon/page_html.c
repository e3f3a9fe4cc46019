/* Draws a JSON value as HTML. */
#include "rpc/daemon/page_html.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "common/base/units.h"
#include "rpc/daemon/page.h"
#include "rpc/daemon/page_svg.h"

enum {
    MAX_COLUMNS = 48,
    MAX_IN_CELL = 50,     /* members of a list in a cell */
    WIDE_COLUMNS = 11,    /* a table with more is drawn with its rows side by side, */
    MAX_ROWS_ABREAST = 4, /* if it has at most this many */
    MAX_STRING_BYTES = 16 << 10,
    MAX_LABEL_BYTES = 200,
    MAX_DRAWING_BYTES = 512 << 10,
    LAST_LEVEL = 4,             /* of headings */
    HEADROOM_BYTES = 128 << 10, /* for one more string, escaped, and the end of the page */
};

/* What a browser may do with the page is said in the header Content-Security-Policy, too. */
static const char style[] =
    ":root{color-scheme:light dark;--ink:#1d2530;--faint:#5d6b7c;--line:#d8dee6;--ground:#fff;"
    "--band:#f3f6f9;--link:#0a58b8;--bar:#2f7dd1;--warn:#b42318}"
    "@media(prefers-color-scheme:dark){:root{--ink:#dfe5ec;--faint:#93a1b1;--line:#323c48;"
    "--ground:#14181d;--band:#1c222a;--link:#7db5f5;--bar:#5a9fe8;--warn:#ff8f80}}"
    "*{box-sizing:border-box}"
    "body{margin:0;font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--ground)}"
    "header{background:var(--band);border-bottom:1px solid var(--line);padding:.6rem 1.5rem}"
    "header b{margin-right:.6rem}header span{color:var(--faint)}"
    "nav{margin-top:.2rem}nav a{margin-right:.9rem;white-space:nowrap}"
    "nav a[aria-current]{color:var(--ink);font-weight:600;text-decoration:none}"
    "main{padding:.5rem 1.5rem 3rem}"
    "a{color:var(--link)}h1{font-size:1.35rem;margin:.8rem 0 .2rem}"
    "h2{font-size:1.1rem;margin:1.6rem 0 .4rem}h3,h4{font-size:1rem;margin:1.2rem 0 .3rem}"
    "h2::first-letter,h3::first-letter,h4::first-letter{text-transform:uppercase}"
    "p{margin:.2rem 0 .8rem;color:var(--faint)}"
    ".scroll{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:.92rem}"
    "th,td{padding:.28rem .8rem .28rem 0;text-align:left;vertical-align:top;"
    "border-bottom:1px solid var(--line);unicode-bidi:isolate;overflow-wrap:break-word}"
    "th{color:var(--faint);font-weight:600;white-space:nowrap}"
    "td{min-width:3rem;max-width:42rem}"
    "tbody tr:hover{background:var(--band)}"
    "dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1.2rem;margin:0}"
    "dt{color:var(--faint)}dd{margin:0;unicode-bidi:isolate;overflow-wrap:anywhere}"
    "td dl,dd dl{gap:0 .7rem;font-size:.92em}"
    "pre{margin:0;white-space:pre-wrap;font:.86rem/1.4 ui-monospace,monospace}"
    ".n{font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".none{color:var(--faint)}"
    "meter{width:5rem;height:.7rem;margin-left:.5rem;vertical-align:middle}";

struct renderer {
    struct str *out;
    const struct page_frame *frame;
    size_t begin; /* of the page in `out` */
};

static bool is_full(const struct renderer *r) {
    return r->out->len - r->begin > PAGE_HTML_MAX_BYTES - HEADROOM_BYTES;
}

/* ---- text ---- */

static void add_escaped(struct str *out, const char *text, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n = utf8_well_formed_len(text + i, len - i);
        unsigned char c = (unsigned char)text[i];
        if (n == 0)
            str_add(out, "\xef\xbf\xbd"); /* U+FFFD */
        else if (c == '&')
            str_add(out, "&amp;");
        else if (c == '<')
            str_add(out, "&lt;");
        else if (c == '>')
            str_add(out, "&gt;");
        else if (c == '"')
            str_add(out, "&quot;");
        else if (c == '\'')
            str_add(out, "&#39;");
        else if (c < 0x20 && c != '\n' && c != '\t')
            str_add_utf8(out, 0x2400u + c); /* a picture of the control character */
        else
            str_add_bytes(out, text + i, n);
        i += MAX(n, (size_t)1);
    }
}

static void add_text(struct str *out, const char *text) { add_escaped(out, text, strlen(text)); }

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* The unit that a key names, by its last word. */
enum unit { UNIT_NONE, UNIT_RATE, UNIT_BYTE_RATE, UNIT_BYTES, UNIT_SECONDS, UNIT_DATE };
struct unit_row {
    const char *end;
    enum unit unit;
    double scale; /* to the unit */
};

// clang-format off
static const struct unit_row units[] = { /* the first that fits counts */
    {"_bytes_per_second", UNIT_BYTE_RATE, 1},
    {"_per_second",       UNIT_RATE,      1},
    {"_per_s",            UNIT_NONE,      1},
    {"_bytes",            UNIT_BYTES,     1},
    {"_unix_seconds",     UNIT_DATE,      1},
    {"_seconds",          UNIT_SECONDS,   1},
    {"_s",                UNIT_SECONDS,   1},
    {"_ms",               UNIT_SECONDS,   1e-3},
    {"_us",               UNIT_SECONDS,   1e-6},
    {"_ns",               UNIT_SECONDS,   1e-9},
};
// clang-format on

/* NULL: none. "seconds" alone is a unit, too. */
static const struct unit_row *unit_of(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (ends_with(key, units[i].end) || strcmp(key, units[i].end + 1) == 0)
            return units[i].unit == UNIT_NONE ? NULL : &units[i];
    return NULL;
}

/* "memory_in_use_bytes" is shown as "memory in use", "n_peers" as "peers", "seconds" as "time". */
static void add_label(struct str *out, const char *key) {
    const struct unit_row *unit = unit_of(key);
    char label[MAX_LABEL_BYTES];
    if (unit && unit->unit != UNIT_BYTE_RATE && strcmp(key, unit->end + 1) == 0)
        key = unit->unit == UNIT_BYTES ? "size" : "time";
    else if (strncmp(key, "n_", 2) == 0 && key[2])
        key += 2;
    size_t len = strlen(key);
    bool is_said = unit && unit->unit != UNIT_RATE && unit->unit != UNIT_BYTE_RATE;
    if (is_said && ends_with(key, unit->end)) /* by the number */
        len -= strlen(unit->end);
    len = MIN(len, sizeof(label));
    for (size_t i = 0; i < len; i++)
        label[i] = key[i] == '_' ? ' ' : key[i];
    add_escaped(out, label, len);
}

/* ---- numbers ---- */

static void add_date(struct str *out, double unix_seconds) {
    time_t at = (time_t)unix_seconds;
    struct tm tm;
    char text[40];
    if (gmtime_r(&at, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm) > 0)
        str_add(out, text);
    else
        str_addf(out, "%.0f", unix_seconds);
}

static void add_rate(struct str *out, double rate) {
    static const char *const prefixes[] = {"", " k", " M", " G", " T", " P"};
    size_t i = 0;
    for (; rate >= 1000 && i + 1 < ARRAY_LEN(prefixes); i++)
        rate /= 1000;
    str_addf(out, "%.3g%s", rate, prefixes[i]);
}

static void add_byte_rate(struct str *out, double rate) {
    units_add_size(out, rate);
    str_add(out, "/s");
}

static void add_plain_number(struct str *out, const json_t *value) {
    if (json_is_integer(value))
        str_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        str_addf(out, "%.6g", json_real_value(value));
}

static void add_number(struct str *out, const char *key, const json_t *value) {
    const struct unit_row *unit = unit_of(key);
    double number = json_number_value(value) * (unit ? unit->scale : 1);
    str_add(out, "<span class=n");
    if (unit) {
        str_add(out, " title=\"");
        add_plain_number(out, value);
        str_add_char(out, '"');
    }
    str_add_char(out, '>');
    if (!unit)
        add_plain_number(out, value);
    else if (unit->unit == UNIT_BYTES)
        units_add_size(out, number);
    else if (unit->unit == UNIT_RATE)
        add_rate(out, number);
    else if (unit->unit == UNIT_BYTE_RATE)
        add_byte_rate(out, number);
    else if (unit->unit == UNIT_SECONDS)
        units_add_duration(out, number);
    else
        add_date(out, number);
    str_add(out, "</span>");
}

/* Draws what is in use beside the limit that the same object states for it. */
static void add_meter(struct str *out, const char *key, const json_t *value, const json_t *of) {
    static const char in_use[] = "in_use";
    const char *at = strstr(key, in_use);
    char limit_key[100];
    if (!at || !of)
        return;
    snprintf(limit_key, sizeof(limit_key), "%.*slimit%s", (int)MIN(at - key, 50), key,
             strlen(at) < 40 ? at + sizeof(in_use) - 1 : "");
    double limit = json_number_value(json_object_get(of, limit_key));
    if (limit > 0)
        str_addf(out, "<meter max=1 value=%.4f high=.9></meter>",
                 MIN(MAX(json_number_value(value) / limit, 0.), 1.));
}

/* ---- values ---- */

static bool is_empty(const json_t *value) {
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_nested(const json_t *value) { return json_is_object(value) || json_is_array(value); }

/* {"more": N} ends a list that its writer has limited. Returns N, or -1. */
static json_int_t more_of(const json_t *row) {
    const json_t *n = json_object_size(row) == 1 ? json_object_get(row, "more") : NULL;
    return json_is_integer(n) ? json_integer_value(n) : -1;
}

/* Only a page of this server is linked, perhaps with a query, whatever the text says. */
static bool is_link(const struct renderer *r, const char *text) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=&_-";
    size_t path_len = strcspn(text, "?");
    const char *query = text + path_len + (text[path_len] == '?');
    for (size_t i = 0; i < r->frame->n_links; i++)
        if (strlen(r->frame->links[i].path) == path_len &&
            memcmp(r->frame->links[i].path, text, path_len) == 0)
            return query[strspn(query, safe)] == '\0';
    return false;
}

/* A link to a page. Of a long query the last part is shown, "/graphz?…&signature=3". */
static void add_link(const struct renderer *r, const char *text, size_t len) {
    enum { MAX_SHOWN_BYTES = 40 };
    const char *last = len > MAX_SHOWN_BYTES ? strrchr(text, '&') : NULL;
    str_add(r->out, "<a href=\"");
    add_escaped(r->out, text, len);
    str_add(r->out, "\">");
    if (last) {
        add_escaped(r->out, text, strcspn(text, "?"));
        str_add(r->out, "?…");
    }
    add_escaped(r->out, last ? last : text, last ? strlen(last) : len);
    str_add(r->out, "</a>");
}

static void add_string(const struct renderer *r, const char *key, const json_t *value) {
    const char *text = json_string_value(value);
    size_t len = json_string_length(value), n = MIN(len, (size_t)MAX_STRING_BYTES);
    while (n < len && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    bool has_lines = memchr(text, '\n', len) != NULL;
    if ((strcmp(key, "page") == 0 || strcmp(key, "download") == 0) && is_link(r, text)) {
        add_link(r, text, len);
        return;
    }
    str_add(r->out, has_lines ? "<pre>" : "");
    add_escaped(r->out, text, n);
    str_add(r->out, n < len ? "…" : "");
    str_add(r->out, has_lines ? "</pre>" : "");
}

static void add_nested(const struct renderer *r, const json_t *value, int depth);

/* `of` is the object that the value is a member of, or NULL. */
static void add_value(const struct renderer *r, const char *key, const json_t *value,
                      const json_t *of, int depth) {
    if (is_full(r)) {
        str_add(r->out, "…");
    } else if (is_empty(value)) {
        str_add(r->out, json_is_array(value) ? "<span class=none>none</span>"
                                             : "<span class=none>–</span>");
    } else if (json_is_string(value)) {
        add_string(r, key, value);
    } else if (json_is_number(value)) {
        add_number(r->out, key, value);
        add_meter(r->out, key, value, of);
    } else if (json_is_boolean(value)) {
        str_add(r->out, json_is_true(value) ? "yes" : "no");
    } else {
        add_nested(r, value, depth);
    }
}

/* Which members add_pairs lists: all, or those that are not drawn below them. */
enum pairs { PAIRS_ALL, PAIRS_PLAIN, PAIRS_NO_TABLES };

static bool is_table(const json_t *value);

static void add_pairs(const struct renderer *r, const json_t *object, enum pairs which, int depth) {
    const char *key;
    json_t *value;
    str_add(r->out, "<dl>");
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (is_full(r) || (which == PAIRS_PLAIN && is_nested(value)) ||
            (which == PAIRS_NO_TABLES && is_table(value)))
            continue;
        str_add(r->out, "<dt>");
        add_label(r->out, key);
        str_add(r->out, "<dd>");
        add_value(r, key, value, object, depth);
    }
    str_add(r->out, "</dl>");
}

/* An object or array within a cell. */
static void add_nested(const struct renderer *r, const json_t *value, int depth) {
    if (depth >= PAGE_HTML_MAX_DEPTH || is_full(r)) {
        str_add(r->out, "…");
        return;
    }
    if (json_is_object(value)) {
        add_pairs(r, value, PAIRS_ALL, depth + 1);
        return;
    }
    size_t n = json_array_size(value), n_shown = MIN(n, (size_t)MAX_IN_CELL);
    for (size_t i = 0; i < n_shown; i++) {
        const json_t *item = json_array_get(value, i);
        if (more_of(item) >= 0) {
            str_addf(r->out, " and %" JSON_INTEGER_FORMAT " more", more_of(item));
            continue;
        }
        str_add(r->out, i > 0 && !is_nested(item) ? ", " : "");
        add_value(r, "", item, NULL, depth + 1);
    }
    if (n > n_shown)
        str_addf(r->out, " and %zu more", n - n_shown);
}

/* ---- tables ---- */

struct row {
    const char *name; /* of an object's member; NULL: of an array */
    const json_t *value;
};

struct table {
    const struct row *rows;
    size_t n_rows;
    const char *columns[MAX_COLUMNS];
    size_t n_columns;
    json_int_t n_more; /* that are not in `rows` */
};

static void note_columns(struct table *table, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;
        while (i < table->n_columns && strcmp(table->columns[i], key) != 0)
            i++;
        if (i == table->n_columns && i < MAX_COLUMNS)
            table->columns[table->n_columns++] = key;
    }
}

/* Leaves out the columns without values. */
static void drop_empty_columns(struct table *table) {
    size_t n = 0;
    for (size_t c = 0; c < table->n_columns; c++) {
        size_t i = 0;
        while (i < table->n_rows &&
               is_empty(json_object_get(table->rows[i].value, table->columns[c])))
            i++;
        if (i < table->n_rows)
            table->columns[n++] = table->columns[c];
    }
    table->n_columns = n;
}

static void add_name(const struct renderer *r, const struct row *row) {
    str_add(r->out, "<th scope=row>");
    add_label(r->out, row->name);
}

static void add_cell(const struct renderer *r, const struct row *row, const char *column) {
    str_add(r->out, "<td>");
    const json_t *value = json_object_get(row->value, column);
    if (value)
        add_value(r, column, value, row->value, 0);
}

static void add_heads(const struct renderer *r, const struct table *table) {
    str_add(r->out, "<thead><tr>");
    if (table->rows[0].name)
        str_add(r->out, "<td>");
    for (size_t c = 0; c < table->n_columns; c++) {
        str_add(r->out, "<th>");
        add_label(r->out, table->columns[c]);
    }
    str_add(r->out, "<tbody>");
}

/* Returns how many rows were drawn. */
static size_t add_rows(const struct renderer *r, const struct table *table) {
    size_t i = 0;
    add_heads(r, table);
    for (; i < table->n_rows && !is_full(r); i++) {
        str_add(r->out, "<tr>");
        if (table->rows[i].name)
            add_name(r, &table->rows[i]);
        for (size_t c = 0; c < table->n_columns; c++)
            add_cell(r, &table->rows[i], table->columns[c]);
    }
    return i;
}

/* Draws few rows with much to say as columns. */
static void add_rows_abreast(const struct renderer *r, const struct table *table) {
    str_add(r->out, "<tbody>");
    for (size_t c = 0; c < table->n_columns && !is_full(r); c++) {
        str_add(r->out, "<tr><th scope=row>");
        add_label(r->out, table->columns[c]);
        for (size_t i = 0; i < table->n_rows; i++)
            add_cell(r, &table->rows[i], table->columns[c]);
    }
}

static void add_table(const struct renderer *r, struct table *table) {
    size_t n_drawn = table->n_rows;
    for (size_t i = 0; i < table->n_rows; i++)
        note_columns(table, table->rows[i].value);
    drop_empty_columns(table);
    str_add(r->out, "<div class=scroll><table>");
    if (table->n_columns > WIDE_COLUMNS && table->n_rows <= MAX_ROWS_ABREAST &&
        !table->rows[0].name)
        add_rows_abreast(r, table);
    else if (table->n_rows > 0)
        n_drawn = add_rows(r, table);
    str_add(r->out, "</table></div>");
    json_int_t n_more = table->n_more + (json_int_t)(table->n_rows - n_drawn);
    if (n_more > 0)
        str_addf(r->out, "<p>and %" JSON_INTEGER_FORMAT " more</p>", n_more);
}

static bool is_table(const json_t *value) {
    const char *key;
    json_t *item;
    size_t i;
    if (!is_nested(value))
        return false;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) {
            if (!json_is_object(item))
                return false;
        }
        return json_array_size(value) > 0;
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, item) {
        if (!json_is_object(item) || json_object_size(item) == 0)
            return false;
    }
    return json_object_size(value) > 1;
}

static void add_table_of(const struct renderer *r, const json_t *value) {
    struct row rows[PAGE_HTML_MAX_ROWS];
    struct table table = {.rows = rows};
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) {
            if (more_of(item) >= 0)
                table.n_more += more_of(item);
            else if (table.n_rows == PAGE_HTML_MAX_ROWS)
                table.n_more++;
            else
                rows[table.n_rows++] = (struct row){.value = item};
        }
    } else {
        json_object_foreach((json_t *)(uintptr_t)value, key, item) {
            if (table.n_rows == PAGE_HTML_MAX_ROWS)
                table.n_more++;
            else
                rows[table.n_rows++] = (struct row){.name = key, .value = item};
        }
    }
    add_table(r, &table);
}

/* ---- the page ---- */

/* Only a page's own member is one: its boxes are drawn in place of a table. */
static bool is_drawing(const char *key, const json_t *value) {
    return strcmp(key, "drawing") == 0 && json_is_array(json_object_get(value, "boxes"));
}

/* `level` is that of the heading: a section's tables are sections of it. */
static void add_section(const struct renderer *r, const char *key, const json_t *value, int level) {
    const char *member_key;
    json_t *member;
    str_addf(r->out, "<h%d>", level);
    add_label(r->out, key);
    str_addf(r->out, "</h%d>", level);
    if (is_drawing(key, value)) {
        str_add(r->out, "<div class=scroll>");
        page_svg_write(r->out, (const struct page_value *)value, false, MAX_DRAWING_BYTES);
        str_add(r->out, "</div>");
    } else if (is_table(value)) {
        add_table_of(r, value);
    } else if (json_is_object(value) && !is_empty(value) && level < LAST_LEVEL) {
        add_pairs(r, value, PAIRS_NO_TABLES, 0);
        json_object_foreach((json_t *)(uintptr_t)value, member_key, member) {
            if (is_table(member) && !is_full(r))
                add_section(r, member_key, member, level + 1);
        }
    } else {
        add_value(r, key, value, NULL, 0);
    }
}

static void add_body(const struct renderer *r, const json_t *root) {
    const char *key;
    json_t *value;
    if (is_table(root) && json_is_array(root)) {
        add_table_of(r, root);
        return;
    }
    if (!json_is_object(root)) {
        add_value(r, "", root, NULL, 0);
        return;
    }
    add_pairs(r, root, PAIRS_PLAIN, 0);
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (!is_nested(value))
            continue;
        if (is_full(r)) {
            str_add(r->out, "<p>The page is too long to be shown whole.</p>");
            break;
        }
        add_section(r, key, value, 2);
    }
}

static void add_head(const struct renderer *r) {
    const struct page_frame *frame = r->frame;
    struct str *out = r->out;
    str_add(out, "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>");
    add_text(out, frame->path);
    str_add(out, " – ");
    add_text(out, frame->name);
    str_add(out, "</title><meta name=viewport content=\"width=device-width,initial-scale=1\">"
                 "<meta name=color-scheme content=\"light dark\"><style>");
    str_add(out, style);
    str_add(out, "</style></head>\n<body><header><b>");
    add_text(out, frame->program);
    str_add(out, "</b><span>");
    add_text(out, frame->name);
    str_add(out, "</span><nav>");
    for (size_t i = 0; i < frame->n_links; i++) {
        const char *path = frame->links[i].path;
        str_addf(out, "<a href=\"%s\"%s>%s</a>", path,
                 strcmp(path, frame->path) == 0 ? " aria-current=page" : "",
                 strcmp(path, "/") == 0 ? "index" : path + 1);
    }
    str_add(out, "</nav></header>\n<main><h1>");
    add_text(out, strcmp(frame->path, "/") == 0 ? frame->name : frame->path);
    str_add(out, "</h1>");
    if (frame->summary) {
        str_add(out, "<p>");
        add_text(out, frame->summary);
        str_add(out, " · <a href=\"?format=json\">JSON</a></p>");
    }
    str_add_char(out, '\n');
}

int page_html_rows(const char *query, int max_rows) {
    bool is_html = page_query_is(query, "format", "html");
    return is_html ? MIN(max_rows, (int)PAGE_HTML_MAX_ROWS) : max_rows;
}

static void add_json(const struct renderer *r, struct span json) {
    json_error_t error;
    if (json.len > PAGE_HTML_MAX_JSON_BYTES) {
        str_add(r->out, "<p>The page is too long to be drawn: ");
        units_add_size(r->out, (double)json.len);
        str_add(r->out, " of <a href=\"?format=json\">JSON</a>.</p>");
        return;
    }
    json_t *root =
        json_loadb(json.data ? json.data : "", json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (root) {
        add_body(r, root);
    } else {
        str_add(r->out, "<pre>");
        add_escaped(r->out, json.data, MIN(json.len, (size_t)PAGE_HTML_MAX_BYTES / 8));
        str_add(r->out, "</pre>");
    }
    json_decref(root);
}

void page_write_html(struct str *out, const struct page_frame *frame, struct span json) {
    struct renderer r = {.out = out, .frame = frame, .begin = out->len};
    add_head(&r);
    add_json(&r, json);
    str_add(out, "</main></body></html>\n");
}
