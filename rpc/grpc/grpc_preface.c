/* Reads and writes the PROXY protocol header that may come before HTTP/2. */
#include "rpc/grpc/grpc_preface.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum {
    SIGNATURE_BYTES = 12,
    HEADER_BYTES = 16,
    FAMILY_UNSPEC = 0x00,
    FAMILY_TCP4 = 0x11,
    FAMILY_TCP6 = 0x21,
    FIELD_TASK = 0xe0
};

static const uint8_t signature[SIGNATURE_BYTES] = {'\r', '\n', '\r', '\n', 0,   '\r',
                                                   '\n', 'Q',  'U',  'I',  'T', '\n'};

static size_t read_u16(const uint8_t *at) { return (size_t)at[0] << 8 | at[1]; }

/* Bytes of addresses before the fields. */
static size_t address_bytes(uint8_t family) {
    return family == FAMILY_TCP4 ? 12 : family == FAMILY_TCP6 ? 36 : family >> 4 == 3 ? 216 : 0;
}

static bool read_fields(struct grpc_preface *preface, size_t at, size_t end) {
    while (at < end) {
        if (end - at < 3 || read_u16(preface->bytes + at + 1) > end - at - 3)
            return false;
        size_t len = read_u16(preface->bytes + at + 1);
        if (preface->bytes[at] == FIELD_TASK && len < GRPC_PREFACE_TASK_BYTES) {
            memcpy(preface->task, preface->bytes + at + 3, len);
            preface->task[len] = '\0';
        }
        at += 3 + len;
    }
    return true;
}

static bool read_header(struct grpc_preface *preface, size_t end) {
    uint8_t family = preface->bytes[13];
    size_t at = HEADER_BYTES + address_bytes(family);
    if ((preface->bytes[12] & 0x0f) == 0) /* LOCAL: the connection is the sender's own */
        return true;
    return at <= end && read_fields(preface, at, end);
}

enum grpc_preface_outcome grpc_preface_feed(struct grpc_preface *preface, const char **bytes,
                                            size_t *len) {
    while (*len > 0) {
        uint8_t byte = (uint8_t) * *bytes;
        if (preface->n == 0 && byte != signature[0])
            return PREFACE_OVER; /* HTTP/2 begins with 'P' */
        if (preface->n < SIGNATURE_BYTES && byte != signature[preface->n])
            return PREFACE_BAD;
        preface->bytes[preface->n++] = byte;
        ++*bytes;
        --*len;
        if (preface->n < HEADER_BYTES)
            continue;
        size_t end = HEADER_BYTES + read_u16(preface->bytes + 14);
        if (preface->bytes[12] >> 4 != 2 || (preface->bytes[12] & 0x0f) > 1 ||
            end > GRPC_PREFACE_MAX_BYTES)
            return PREFACE_BAD;
        if (preface->n == end)
            return read_header(preface, end) ? PREFACE_OVER : PREFACE_BAD;
    }
    return PREFACE_MORE;
}

/* ---- writing ---- */

static void add_u16(struct str *out, size_t n) {
    str_add_char(out, (char)(n >> 8 & 0xff));
    str_add_char(out, (char)(n & 0xff));
}

/* The source and the destination of a socket's connection, as family and bytes. */
static uint8_t add_addresses(struct str *out, int fd) {
    struct sockaddr_storage peer = {0}, own = {0};
    socklen_t peer_len = sizeof(peer), own_len = sizeof(own);
    bool is_known = getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
                    getsockname(fd, (struct sockaddr *)&own, &own_len) == 0;
    if (is_known && peer.ss_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)&peer,
                                 *b = (const struct sockaddr_in *)&own;
        str_add_bytes(out, &a->sin_addr, 4);
        str_add_bytes(out, &b->sin_addr, 4);
        str_add_bytes(out, &a->sin_port, 2);
        str_add_bytes(out, &b->sin_port, 2);
        return FAMILY_TCP4;
    }
    if (is_known && peer.ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&peer,
                                  *b = (const struct sockaddr_in6 *)&own;
        str_add_bytes(out, &a->sin6_addr, 16);
        str_add_bytes(out, &b->sin6_addr, 16);
        str_add_bytes(out, &a->sin6_port, 2);
        str_add_bytes(out, &b->sin6_port, 2);
        return FAMILY_TCP6;
    }
    return FAMILY_UNSPEC;
}

void grpc_preface_write(struct str *out, int client_fd, const char *task) {
    struct str rest = STR_INIT;
    uint8_t family = add_addresses(&rest, client_fd);
    size_t len = MIN(strlen(task), (size_t)GRPC_PREFACE_TASK_BYTES - 1);
    str_add_char(&rest, (char)FIELD_TASK);
    add_u16(&rest, len);
    str_add_bytes(&rest, task, len);
    str_add_bytes(out, signature, sizeof(signature));
    str_add_char(out, 0x21);
    str_add_char(out, (char)family);
    add_u16(out, rest.len);
    str_add_bytes(out, rest.data, rest.len);
    str_fini(&rest);
}
