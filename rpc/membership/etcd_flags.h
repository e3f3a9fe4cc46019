/* The etcd flags of the daemons and tfctl, and the client that is made from them. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_FLAGS_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_FLAGS_H

#include "rpc/membership/etcd_registration.h"

struct etcd_flags {
    const char *urls, *cluster_name, *advertise, *ca_file, *cert_file, *key_file;
    const char *user, *password_file;
    int64_t ttl_ms;
};

/* rpc/membership/etcd_flag_rows.inc has the rows of a daemon's option table. */

/* Checks whether the values fit together. Does not connect. Errors: INVALID_ARGUMENT. */
struct status *etcd_flags_check(const struct etcd_flags *flags) MUST_USE;
struct status *etcd_flags_open(const struct etcd_flags *flags, struct loop *loop,
                               struct etcd **ret_etcd) MUST_USE;

#endif
