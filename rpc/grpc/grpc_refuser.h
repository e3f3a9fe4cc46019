/* Answers gRPC clients that dialled a port of another protocol (a worker's wire port, an admin
 * port): their first call ends with a status that says where to connect, and then the connection
 * ends. Without it such a client would see a closed connection and try again until its deadline.
 * Loop thread only. */
#ifndef MILLRACE_RPC_GRPC_GRPC_REFUSER_H
#define MILLRACE_RPC_GRPC_GRPC_REFUSER_H

#include "rpc/loop.h"

struct grpc_refuser;

/* `words` is the message of the status, whose code is FAILED_PRECONDITION: clients do not retry
 * after it. The text is copied. The caller holds one reference. */
struct grpc_refuser *grpc_refuser_new(struct loop *loop, const char *words);
/* Replaces the message for the connections that are taken over from now on. */
void grpc_refuser_say(struct grpc_refuser *refuser, const char *words);
struct grpc_refuser *grpc_refuser_ref(struct grpc_refuser *refuser); /* accepts NULL */
/* With the last reference its connections end at once. Accepts NULL. */
void grpc_refuser_unref(struct grpc_refuser *refuser);

/* Do the bytes that wait at the socket begin HTTP/2? Reads none of them; false where none wait. */
bool grpc_refuser_is_for(int fd);
/* Takes over a socket, from which nothing has been read. */
void grpc_refuser_adopt(struct grpc_refuser *refuser, int fd_take);

#endif
