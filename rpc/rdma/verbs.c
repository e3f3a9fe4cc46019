/* Loads libibverbs and finds the functions that we call. */
#include "rpc/rdma/verbs.h"

#include <dlfcn.h>
#include <unistd.h>

/* The functions that the library has symbols for. Those of the data path are in the device's own
 * table, which the header's inline functions use. */
static int (*library_query_port)(struct ibv_context *context, uint8_t port,
                                 struct _compat_ibv_port_attr *ret);
static __typeof__(_ibv_query_gid_ex) *library_query_gid;

/* The library sets the fields that its first version had. We need no others. */
static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret) {
    memset(ret, 0, sizeof(*ret));
    return library_query_port(context, port, (struct _compat_ibv_port_attr *)ret);
}

static int query_gid(struct ibv_context *context, uint32_t port, uint32_t index,
                     struct ibv_gid_entry *ret) {
    return library_query_gid(context, port, index, ret, 0, sizeof(*ret));
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only) {
    return ibv_req_notify_cq(cq, solicited_only);
}
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *ret) { return ibv_poll_cq(cq, n, ret); }
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad) {
    return ibv_post_send(qp, wr, ret_bad);
}
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad) {
    return ibv_post_recv(qp, wr, ret_bad);
}

struct status *verbs_get(const struct verbs **ret) {
#define OWN_CALL(name) .name = name,
    static struct verbs verbs = {VERBS_OWN_CALLS(OWN_CALL)};
#undef OWN_CALL
    static bool is_loaded;
    *ret = &verbs;
    if (is_loaded)
        return NULL;
    if (access("/sys/class/infiniband", F_OK) != 0)
        return status_failed_precondition("the kernel of this host has no RDMA device");
    void *file = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!file)
        return status_failed_precondition(
            "RDMA needs libibverbs (Debian: libibverbs1 and ibverbs-providers): %s", dlerror());
    struct {
        void **slot;
        const char *name;
    } calls[] = {{(void **)&library_query_port, "ibv_query_port"},
                 {(void **)&library_query_gid, "_ibv_query_gid_ex"},
#define CALL(name) {(void **)&verbs.name, "ibv_" #name},
                 VERBS_LIBRARY_CALLS(CALL)
#undef CALL
    };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (!(*calls[i].slot = dlsym(file, calls[i].name)))
            return status_failed_precondition("libibverbs is too old: %s", dlerror());
#define CALL(name) *(void **)&verbs.name = dlsym(file, "ibv_" #name);
    VERBS_NEWER_CALLS(CALL)
#undef CALL
    is_loaded = true; /* never unloaded, because providers do not support that */
    return NULL;
}
