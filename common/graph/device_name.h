/* Reads, compares and prints device names, full or partial, in every spelling that clients use:
 * "/job:J/replica:R/task:T/device:CPU:0".
 *
 * Accepted: "/job:ps/task:1", "/job:ps/replica:0/task:1/device:GPU:0", "/cpu:0", "/gpu:*",
 * "/device:CPU:0", "CPU:0", "", "*" parts. Types are kept in upper case. Any thread. */
#ifndef MILLRACE_COMMON_GRAPH_DEVICE_NAME_H
#define MILLRACE_COMMON_GRAPH_DEVICE_NAME_H

#include "common/base/status.h"
#include "common/base/str.h"

enum { DEVICE_NAME_MAX = 64 }; /* job and type names: at most 63 bytes */

struct device_name {
    char job[DEVICE_NAME_MAX];  /* "" where free */
    int replica, task;          /* -1 where free */
    char type[DEVICE_NAME_MAX]; /* "CPU", "" where free */
    int id;                     /* -1 where free */
};

/* Errors: INVALID_ARGUMENT "Malformed device specification '…'". */
struct status *device_name_parse(struct span text, struct device_name *ret) MUST_USE;
bool device_name_is_full(const struct device_name *name);
/* The canonical text. Free parts are left out. */
void device_name_print(const struct device_name *name, struct str *out);
/* Appends "/job:J/replica:R/task:T" of a full name. */
void device_name_print_task(const struct device_name *name, struct str *out);
/* a free part matches everything */
bool device_name_matches(const struct device_name *pattern, const struct device_name *full);
/* Fills the free parts of `into` from `other`. False, and `into` unchanged, where the two give
 * different parts. */
bool device_name_intersect(struct device_name *into, const struct device_name *other);
/* Replaces the parts of `into` that `override_with` gives. */
void device_name_override(struct device_name *into, const struct device_name *override_with);
bool device_name_equal(const struct device_name *a, const struct device_name *b);

#endif
