/* The one error type. NULL is success; anything else is an immutable, reference-counted error.
 *
 * One failure may end many waits, so a status is shared by reference and never changed:
 * status_prefix_take makes a new one. Codes have gRPC's numbers. The function that detects a
 * failure writes the message and names the culprit (node, device, task, key, sizes); callers pass
 * it on.
 *
 * Ownership: a returned `struct status *` belongs to the caller, who returns it or calls
 * status_unref. Any thread. */
#ifndef MILLRACE_COMMON_BASE_STATUS_H
#define MILLRACE_COMMON_BASE_STATUS_H

#include <stdarg.h>

#include "common/base/base.h"

enum status_code {
    STATUS_OK = 0,
    STATUS_CANCELLED = 1,
    STATUS_UNKNOWN = 2,
    STATUS_INVALID_ARGUMENT = 3,
    STATUS_DEADLINE_EXCEEDED = 4,
    STATUS_NOT_FOUND = 5,
    STATUS_ALREADY_EXISTS = 6,
    STATUS_PERMISSION_DENIED = 7,
    STATUS_RESOURCE_EXHAUSTED = 8,
    STATUS_FAILED_PRECONDITION = 9,
    STATUS_ABORTED = 10,
    STATUS_OUT_OF_RANGE = 11,
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14,
    STATUS_DATA_LOSS = 15,
    STATUS_UNAUTHENTICATED = 16,
};

struct status;

/* A new error. `code` is never STATUS_OK. The message is cut at 64 KiB. */
struct status *status_new(enum status_code code, const char *format, ...)
    PRINTF_LIKE(2, 3) MUST_USE COLD NEVER_NULL;
/* A status that a peer sent. Code 0 gives NULL, an unknown code STATUS_UNKNOWN. */
struct status *status_from_wire(int code, struct span message) MUST_USE;

struct status *status_ref(struct status *status) MUST_USE; /* accepts NULL */
void status_unref(struct status *status);                  /* accepts NULL */

enum status_code status_code(const struct status *status); /* STATUS_OK for NULL */
/* "" for NULL; valid as long as the status */
const char *status_message(const struct status *status);
/* "INVALID_ARGUMENT"; "UNKNOWN" for a number outside the enum */
const char *status_code_name(enum status_code code);

/* A new status with the same code: the formatted prefix, then the old message. Consumes the
 * caller's reference to the old one. NULL stays NULL. */
struct status *status_prefix_take(struct status *status, const char *format, ...)
    PRINTF_LIKE(2, 3) MUST_USE;
/* The same with the formatted text after the message. */
struct status *status_suffix_take(struct status *status, const char *format, ...)
    PRINTF_LIKE(2, 3) MUST_USE;

#define status_invalid(...) status_new(STATUS_INVALID_ARGUMENT, __VA_ARGS__)
#define status_not_found(...) status_new(STATUS_NOT_FOUND, __VA_ARGS__)
#define status_unimplemented(...) status_new(STATUS_UNIMPLEMENTED, __VA_ARGS__)
#define status_internal(...) status_new(STATUS_INTERNAL, __VA_ARGS__)
#define status_unavailable(...) status_new(STATUS_UNAVAILABLE, __VA_ARGS__)
#define status_exhausted(...) status_new(STATUS_RESOURCE_EXHAUSTED, __VA_ARGS__)
#define status_failed_precondition(...) status_new(STATUS_FAILED_PRECONDITION, __VA_ARGS__)
#define status_out_of_range(...) status_new(STATUS_OUT_OF_RANGE, __VA_ARGS__)

/* Pass an error on: TRY returns it, TRY_OUT stores it in `st` and jumps to the label `out`. */
#define TRY(expression)                            \
    do {                                           \
        struct status *try_status_ = (expression); \
        if (unlikely(try_status_ != NULL))         \
            return try_status_;                    \
    } while (0)
#define TRY_OUT(expression)       \
    do {                          \
        st = (expression);        \
        if (unlikely(st != NULL)) \
            goto out;             \
    } while (0)

#endif
