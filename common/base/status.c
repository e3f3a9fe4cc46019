/* Implements the error type: a counted, immutable code and message in one allocation. */
#include "common/base/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/str.h"

enum { STATUS_MESSAGE_MAX_BYTES = 64 * 1024 };

struct status {
    _Atomic int refs; /* the only field that changes */
    enum status_code code;
    size_t len;
    char message[]; /* len bytes and a NUL */
};

static const char *const code_names[] = {
    [STATUS_OK] = "OK",
    [STATUS_CANCELLED] = "CANCELLED",
    [STATUS_UNKNOWN] = "UNKNOWN",
    [STATUS_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [STATUS_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [STATUS_NOT_FOUND] = "NOT_FOUND",
    [STATUS_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [STATUS_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [STATUS_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [STATUS_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [STATUS_ABORTED] = "ABORTED",
    [STATUS_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [STATUS_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [STATUS_INTERNAL] = "INTERNAL",
    [STATUS_UNAVAILABLE] = "UNAVAILABLE",
    [STATUS_DATA_LOSS] = "DATA_LOSS",
    [STATUS_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

static struct status *status_alloc(enum status_code code, size_t len) {
    CHECK(code != STATUS_OK);
    len = MIN(len, STATUS_MESSAGE_MAX_BYTES);
    struct status *status = xmalloc(sizeof(*status) + len + 1);
    atomic_init(&status->refs, 1);
    status->code = code;
    status->len = len;
    return status;
}

/* The cut may split a UTF-8 sequence; the rest of that sequence is removed. */
static void drop_torn_end(struct status *status) {
    if (status->len < STATUS_MESSAGE_MAX_BYTES)
        return;
    size_t lead = status->len;
    while (lead > 0 && status->len - lead < 3 &&
           ((unsigned char)status->message[lead - 1] & 0xC0) == 0x80)
        lead--;
    if (lead == 0 || (unsigned char)status->message[lead - 1] < 0xC0)
        return;
    unsigned char byte = (unsigned char)status->message[lead - 1];
    size_t need = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    if (status->len - (lead - 1) < need)
        status->len = lead - 1;
}

/* Messages quote names and values of clients. Protobuf refuses a string that is not UTF-8, and with
 * it the whole reply. */
static struct status *status_seal(struct status *status) {
    drop_torn_end(status);
    for (size_t i = 0, n; i < status->len; i += MAX(n, (size_t)1)) {
        n = utf8_well_formed_len(status->message + i, status->len - i);
        if (n == 0)
            status->message[i] = '?';
    }
    status->message[status->len] = '\0';
    return status;
}

static struct status *status_newv(enum status_code code, const char *format, va_list args) {
    char text[512];
    va_list again;
    va_copy(again, args);
    int formatted = vsnprintf(text, sizeof(text), format, args);
    size_t len = formatted < 0 ? 0 : (size_t)formatted;
    struct status *status = status_alloc(code, len);
    if (len < sizeof(text))
        memcpy(status->message, text, len);
    else
        (void)vsnprintf(status->message, status->len + 1, format, again);
    va_end(again);
    return status_seal(status);
}

struct status *status_new(enum status_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    struct status *status = status_newv(code, format, args);
    va_end(args);
    return status;
}

struct status *status_from_wire(int code, struct span message) {
    if (code == STATUS_OK)
        return NULL;
    bool is_known = code > 0 && (size_t)code < ARRAY_LEN(code_names);
    struct status *status =
        status_alloc(is_known ? (enum status_code)code : STATUS_UNKNOWN, message.len);
    if (status->len > 0)
        memcpy(status->message, message.data, status->len);
    return status_seal(status);
}

struct status *status_ref(struct status *status) {
    if (status)
        atomic_fetch_add_explicit(&status->refs, 1, memory_order_relaxed);
    return status;
}

void status_unref(struct status *status) {
    if (!status)
        return;
    int refs = atomic_fetch_sub_explicit(&status->refs, 1, memory_order_acq_rel);
    CHECK(refs > 0);
    if (refs == 1)
        free(status);
}

enum status_code status_code(const struct status *status) {
    return status ? status->code : STATUS_OK;
}

const char *status_message(const struct status *status) { return status ? status->message : ""; }

const char *status_code_name(enum status_code code) {
    return (size_t)code < ARRAY_LEN(code_names) ? code_names[code] : code_names[STATUS_UNKNOWN];
}

/* A new status of the same code, with `before` and `after` around its message. */
static struct status *status_join(enum status_code code, const struct status *before,
                                  const struct status *after) {
    struct status *joined = status_alloc(code, before->len + after->len);
    size_t n_before = MIN(before->len, joined->len);
    memcpy(joined->message, before->message, n_before);
    memcpy(joined->message + n_before, after->message, joined->len - n_before);
    return status_seal(joined);
}

struct status *status_prefix_take(struct status *status, const char *format, ...) {
    if (!status)
        return NULL;
    va_list args;
    va_start(args, format);
    struct status *prefix = status_newv(status->code, format, args);
    va_end(args);
    struct status *joined = status_join(status->code, prefix, status);
    status_unref(prefix);
    status_unref(status);
    return joined;
}

struct status *status_suffix_take(struct status *status, const char *format, ...) {
    if (!status)
        return NULL;
    va_list args;
    va_start(args, format);
    struct status *suffix = status_newv(status->code, format, args);
    va_end(args);
    struct status *joined = status_join(status->code, status, suffix);
    status_unref(suffix);
    status_unref(status);
    return joined;
}
