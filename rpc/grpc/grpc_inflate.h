/* Inflates a compressed message, a slice at a time [RFC 1950, 1951, 1952; grpc-encoding: gzip,
 * deflate].
 *
 * The size of the plain message is known before memory is taken for it. gzip's last four bytes
 * state it, and inflate checks them. Where they cannot be true, and for deflate, a first pass
 * counts the bytes and drops its output. So limits are checked before memory is taken, the plain
 * message is in one buffer of its size, aligned as its method asks, and no step takes longer than
 * its slice, however much the data grow.
 *
 *   [COUNT ── end ──►] HEAD ── enough for the align function ──► BODY ── end, all checked ──► DONE
 *
 * One per call. Loop thread. Internal to rpc/grpc. */
#ifndef MILLRACE_RPC_GRPC_GRPC_INFLATE_H
#define MILLRACE_RPC_GRPC_GRPC_INFLATE_H

#include "rpc/grpc/grpc_receive.h"

enum grpc_encoding { GRPC_IDENTITY, GRPC_DEFLATE, GRPC_GZIP, GRPC_N_ENCODINGS };
#define GRPC_ACCEPT_ENCODING "identity, deflate, gzip"

/* Returns GRPC_N_ENCODINGS for an unknown name. */
enum grpc_encoding grpc_encoding_find(struct span name);

struct grpc_inflater;

/* Takes the message's reference. The limits are borrowed. */
struct grpc_inflater *grpc_inflater_new(struct grpc_message compressed_take,
                                        enum grpc_encoding encoding, grpc_align_fn *align,
                                        struct grpc_quota *quota,
                                        const struct grpc_server_limits *limits);
void grpc_inflater_free(struct grpc_inflater *inflater); /* returns the quota; accepts NULL */
/* Continues until about *budget_bytes have been read and written, and subtracts what it used.
 * Errors: INTERNAL (corrupt, truncated, bytes after the end), RESOURCE_EXHAUSTED (*ret_refusal says
 * which limit). */
struct status *grpc_inflater_step(struct grpc_inflater *inflater, int64_t *budget_bytes,
                                  bool *ret_done, enum grpc_refusal *ret_refusal) MUST_USE;
/* When done: returns the plain message, whose buffer reference is the caller's, and how much of the
 * quota it holds, which the caller has to return. */
struct grpc_message grpc_inflater_take(struct grpc_inflater *inflater, size_t *ret_charged_bytes);

#endif
