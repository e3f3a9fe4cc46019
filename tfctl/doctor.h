/* The checks of `tfctl doctor`: each looks at one thing, and says what it has found and what to do.
 * Checks of the host are in doctor_host.c, those of a cluster in doctor_cluster.c. */
#ifndef MILLRACE_TFCTL_DOCTOR_H
#define MILLRACE_TFCTL_DOCTOR_H

#include "rpc/listen.h"
#include "tfctl/page_source.h"

enum doctor_state {
    DOCTOR_OK,
    DOCTOR_WARNING, /* it works, but not as well as it could */
    DOCTOR_BROKEN,
};

struct finding {
    enum doctor_state state;
    struct str found, advice; /* one line each; advice is empty if the state is OK */
};

struct doctor {
    struct page_source source;
    const char *etcd;          /* URLs, or NULL */
    struct net_address master; /* where clients dial; host "" if none is named */
    struct str admin;          /* the address of its pages; "": none is named */
};

/* Sets the finding, with the formatted text of what was found. */
void finding_set(struct finding *finding, enum doctor_state state, const char *advice,
                 const char *format, ...) PRINTF_LIKE(4, 5);

typedef void doctor_check_fn(const struct doctor *doctor, struct finding *finding);
struct doctor_check {
    const char *name;
    bool needs_master, needs_etcd; /* the check is left out if none is named */
    doctor_check_fn *check;
};

doctor_check_fn doctor_open_files, doctor_locked_memory, doctor_huge_pages, doctor_disk,
    doctor_memory, doctor_cores, doctor_clock, doctor_rdma, doctor_host_name; /* of this host */
doctor_check_fn doctor_proxies, doctor_name, doctor_port, doctor_cluster, doctor_etcd;

#endif
