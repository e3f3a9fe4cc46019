/* Writes what a page says: one JSON value. Programs get it as it is, people get the same value as
 * HTML (page_html.h), so the two never differ.
 *
 *   page_open(out, NULL, '{');
 *   page_text(out, "task", name);
 *   page_open(out, "peers", '[');
 *   for (...)                        a row: page_open(out, NULL, '{') ... page_close(out, '}')
 *   page_more(out, n_left_out);
 *   page_close(out, ']');
 *   page_close(out, '}');
 *
 * Each call puts the comma that it needs before itself. `key` is NULL in an array and for the
 * outermost value; keys are constants of the program. A key's last word is the unit of its number:
 * _bytes, _seconds, _ms, _us, _ns; HTML shows the number in a form that people read.
 *
 * Whoever writes a page limits its rows, since clients choose how many things they name, and says
 * with page_more how many are left out. Text may hold any bytes: what is no UTF-8 becomes U+FFFD,
 * and what is longer than PAGE_MAX_TEXT_BYTES is cut. Any thread. */
#ifndef MILLRACE_RPC_DAEMON_PAGE_H
#define MILLRACE_RPC_DAEMON_PAGE_H

#include "common/base/status.h"
#include "common/base/str.h"

enum {
    PAGE_MAX_NAME_BYTES = 256,
    PAGE_MAX_TEXT_BYTES = 4096,
    PAGE_MAX_ROWS = 1000, /* the usual limit of a list */
};

/* `bracket` is '{' or '[', and the other one closes. */
void page_open(struct str *out, const char *key, char bracket);
void page_close(struct str *out, char bracket);
void page_text(struct str *out, const char *key, const char *text); /* NULL: null */
void page_span(struct str *out, const char *key, struct span text);
/* A name that clients choose: cut at PAGE_MAX_NAME_BYTES. */
void page_name(struct str *out, const char *key, const char *name);
void page_int(struct str *out, const char *key, int64_t value);
void page_real(struct str *out, const char *key, double value);
void page_bool(struct str *out, const char *key, bool value);
void page_id(struct str *out, const char *key, uint64_t id); /* 16 hexadecimal digits */
/* The members KEY_code and KEY_node (null: the message names no node at its end, as the executor's
 * do). A message carries values of tensors, so the member KEY with the message is for operators
 * only (write_to_operator in rpc/daemon/admin.h). */
void page_error(struct str *out, const char *key, const struct status *error, bool is_operator);
/* Only the key, or the comma: whatever appends a JSON value may follow. */
void page_key(struct str *out, const char *key);
/* In an array: the last row, {"more": n}. Nothing for 0. */
void page_more(struct str *out, size_t n);

/* The value of a number in the query of a URL ("limit=20&x=1"), or `otherwise` when it is absent
 * or no number from min to max. */
int64_t page_query_int(const char *query, const char *name, int64_t min, int64_t max,
                       int64_t otherwise);
bool page_query_has(const char *query, const char *name); /* with any value */
/* Has the query "name=value"? */
bool page_query_is(const char *query, const char *name, const char *value);
/* Is the page to be written as JSON, also when HTML is made of it? For pages that are text
 * otherwise. */
bool page_query_wants_json(const char *query);

#endif
