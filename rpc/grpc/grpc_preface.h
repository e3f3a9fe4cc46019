/* Reads and writes the header of the PROXY protocol, version 2, that may come before HTTP/2 on a
 * connection to the master. A worker's client port sends it, or a load balancer. We read one of its
 * fields: type 0xE0, of the range for private use, which names the relaying task. Anyone may send
 * it; it only chooses a session's default task, which clients may choose anyway.
 *
 *    0  "\r\n\r\n\0\r\nQUIT\n"
 *   12  0x21: version 2, PROXY
 *   13  u8 family
 *   14  u16 length of what follows
 *   16  addresses, then fields: u8 type, u16 length, value
 *
 * Source: haproxy's proxy-protocol.txt, section 2.2 */
#ifndef MILLRACE_RPC_GRPC_GRPC_PREFACE_H
#define MILLRACE_RPC_GRPC_GRPC_PREFACE_H

#include "common/base/base.h"
#include "common/base/str.h"

enum { GRPC_PREFACE_MAX_BYTES = 1024, GRPC_PREFACE_TASK_BYTES = 256 };

enum grpc_preface_outcome { PREFACE_MORE, PREFACE_OVER, PREFACE_BAD };

/* All zero at the start. */
struct grpc_preface {
    size_t n;
    uint8_t bytes[GRPC_PREFACE_MAX_BYTES];
    char task[GRPC_PREFACE_TASK_BYTES]; /* "" where there is none */
};

/* Takes the bytes of the header from *bytes and *len. OVER: the header has ended, or there is none,
 * and the remaining bytes are HTTP/2's. MORE: all bytes belong to it. BAD: it is malformed. */
enum grpc_preface_outcome grpc_preface_feed(struct grpc_preface *preface, const char **bytes,
                                            size_t *len);
/* Appends the header that names the client of a socket and the relaying task. */
void grpc_preface_write(struct str *out, int client_fd, const char *task);

#endif
