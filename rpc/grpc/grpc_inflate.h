/* A compressed message becomes plain, a slice at a time [RFC 1950, 1951, 1952; grpc-encoding:
 * gzip, deflate].
 *
 * The size of the plain message is known before memory is taken for it: gzip's last four bytes
 * say it (and inflate checks them); where they cannot be true, and for deflate, it is counted by
 * a first pass whose output is dropped. So limits are kept before memory is taken, the plain
 * message lands in one buffer of its size, aligned as its method asks, and no step takes longer
 * than its slice, however far the data expand.
 *
 *   [COUNT ── end ──►] HEAD ── enough for the align function ──► BODY ── end, all checked ──► DONE
 *
 * One call's, loop thread. Internal to rpc/grpc/grpc*. */
#ifndef MILLRACE_RPC_GRPC_GRPC_INFLATE_H
#define MILLRACE_RPC_GRPC_GRPC_INFLATE_H

#include "rpc/grpc/grpc_receive.h"

enum grpc_encoding { GRPC_IDENTITY, GRPC_DEFLATE, GRPC_GZIP, GRPC_N_ENCODINGS };
#define GRPC_ACCEPT_ENCODING "identity, deflate, gzip"

/* GRPC_N_ENCODINGS for a name that is none of them. */
enum grpc_encoding grpc_encoding_find(struct span name);

struct grpc_inflater;

/* Takes the message's reference. The limits are borrowed. */
struct grpc_inflater *grpc_inflater_new(struct grpc_message compressed_take,
                                        enum grpc_encoding encoding, grpc_align_fn *align,
                                        struct grpc_quota *quota,
                                        const struct grpc_server_limits *limits);
void grpc_inflater_free(struct grpc_inflater *inflater); /* gives back the quota; accepts NULL */
/* Goes on until about *budget_bytes are read and written, and takes what it used from it.
 * Errors: INTERNAL (corrupt, cut short, bytes behind the end), RESOURCE_EXHAUSTED (*ret_refusal
 * says by which limit). */
struct status *grpc_inflater_step(struct grpc_inflater *inflater, int64_t *budget_bytes,
                                  bool *ret_done, enum grpc_refusal *ret_refusal) MUST_USE;
/* When done: the plain message, and what it holds of the quota, for the caller to give back. */
struct grpc_message grpc_inflater_take(struct grpc_inflater *inflater, size_t *ret_charged_bytes);

#endif
