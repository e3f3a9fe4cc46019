/* Reads the JSON of a daemon's page, for tools. A value that is missing, or of another kind than
 * the one that is asked for, reads as nothing: NULL, "", 0 or false. So a tool works with a daemon
 * of another version as far as both know the same members. Threads: one at a time. */
#ifndef MILLRACE_RPC_DAEMON_PAGE_READ_H
#define MILLRACE_RPC_DAEMON_PAGE_READ_H

#include "common/base/status.h"

struct page_value; /* any JSON value */

/* The caller frees it with page_value_free. Errors: INVALID_ARGUMENT. */
struct status *page_parse(struct span json, struct page_value **ret) MUST_USE;
void page_value_free(struct page_value *value); /* of page_parse only; accepts NULL */

/* What follows is borrowed from `of`, which may be NULL. */
const struct page_value *page_get(const struct page_value *of, const char *key);
size_t page_count(const struct page_value *of); /* of a list, or of an object's members */
const struct page_value *page_at(const struct page_value *of, size_t i); /* of a list */
/* The member i of an object, and its key. */
const struct page_value *page_member(const struct page_value *of, size_t i, const char **ret_key);
const char *page_get_text(const struct page_value *of, const char *key);
const char *page_text_at(const struct page_value *of, size_t i); /* of a list */
int64_t page_get_int(const struct page_value *of, const char *key);
double page_get_real(const struct page_value *of, const char *key); /* integers, too */
bool page_get_bool(const struct page_value *of, const char *key);
bool page_has(const struct page_value *of, const char *key); /* and it is not null */

#endif
