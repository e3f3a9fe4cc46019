/* Hands the connections of misdirected gRPC clients to a gRPC server that serves nothing. */
#include "rpc/grpc/grpc_refuser.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "rpc/grpc/grpc_server.h"

struct grpc_refuser {
    struct loop *loop;
    struct grpc_server *server; /* NULL until the first client connects */
    char *words;
    unsigned n_refs;
};

struct grpc_refuser *grpc_refuser_new(struct loop *loop, const char *words) {
    struct grpc_refuser *refuser = xcalloc(1, sizeof(*refuser));
    refuser->loop = loop;
    refuser->words = xstrdup(words);
    refuser->n_refs = 1;
    return refuser;
}

void grpc_refuser_say(struct grpc_refuser *refuser, const char *words) {
    free(refuser->words);
    refuser->words = xstrdup(words);
}

struct grpc_refuser *grpc_refuser_ref(struct grpc_refuser *refuser) {
    if (refuser)
        refuser->n_refs++;
    return refuser;
}

void grpc_refuser_unref(struct grpc_refuser *refuser) {
    if (!refuser || --refuser->n_refs > 0)
        return;
    if (refuser->server)
        grpc_server_close(refuser->server, NULL, NULL);
    free(refuser->words);
    free(refuser);
}

bool grpc_refuser_is_for(int fd) {
    char bytes[4];
    return recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT) == sizeof(bytes) &&
           memcmp(bytes, "PRI ", sizeof(bytes)) == 0;
}

void grpc_refuser_adopt(struct grpc_refuser *refuser, int fd_take) {
    if (!refuser->server) {
        struct grpc_server_options nothing = {.methods = NULL};
        struct status *st = grpc_server_new(refuser->loop, NULL, &nothing, &refuser->server);
        CHECK(!st); /* it does not listen; sockets are given to it */
    }
    grpc_server_adopt_refused(refuser->server, fd_take,
                              status_failed_precondition("%s", refuser->words));
}
