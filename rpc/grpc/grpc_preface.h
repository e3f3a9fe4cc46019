/* What may stand before HTTP/2 on a connection to the master: a header of the PROXY protocol,
 * version 2, from a worker's client port (or a load balancer). Only one of its fields is looked
 * at: type 0xE0, of the range for private use, with the name of the relaying task. Anyone may
 * send it; it chooses no more than a session's default task, which clients may choose anyway.
 *
 *   0  "\r\n\r\n\0\r\nQUIT\n"   12  0x21: version 2, PROXY   13  family   14  u16 length   16  addresses   …  fields: u8 type, u16 length,
 * value
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

/* Takes what belongs to it off the bytes. OVER: the rest is HTTP/2's. */
enum grpc_preface_outcome grpc_preface_feed(struct grpc_preface *preface, const char **bytes,
                                            size_t *len);
/* The header for a client's socket. */
void grpc_preface_write(struct str *out, int client_fd, const char *task);

#endif
