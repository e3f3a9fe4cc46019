/* What both daemons ask about etcd, and what they do with the answers: the client, the entry. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_FLAGS_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_FLAGS_H

#include "rpc/membership/etcd_registration.h"

struct etcd_flags {
    const char *urls, *cluster_name, *advertise, *ca_file, *cert_file, *key_file;
    int64_t ttl_ms;
};

/* The rows of a daemon's option table; ROW is its macro for a row, the struct's field is `etcd`. */
// clang-format off
#define ETCD_FLAG_ROWS(ROW) \
    {ROW("etcd", OPTION_STRING, etcd.urls, NULL, "URL[,URL...]", "register with, and learn of the others from, this etcd (http://HOST:2379); docs/membership.md")}, \
    {ROW("cluster-name", OPTION_STRING, etcd.cluster_name, "default", "NAME", "of the cluster in etcd")}, \
    {ROW("advertise", OPTION_STRING, etcd.advertise, NULL, "HOST:PORT", "where the others reach this process; port 0 means the one that was bound (default: --listen, with this host's name for a wildcard)")}, \
    {ROW("etcd-ttl", OPTION_DURATION, etcd.ttl_ms, "10s", "TIME", "how long etcd keeps the entry of a process that is silent"), .min = 2000, .max = 3600000}, \
    {ROW("etcd-ca", OPTION_STRING, etcd.ca_file, NULL, "PATH", "certificates that vouch for an https etcd (PEM)")}, \
    {ROW("etcd-cert", OPTION_STRING, etcd.cert_file, NULL, "PATH", "this process' own certificate for etcd (PEM)")}, \
    {ROW("etcd-key", OPTION_STRING, etcd.key_file, NULL, "PATH", "its private key (PEM)")}
// clang-format on

/* Do the values go together? Nothing is asked of etcd. */
struct status *etcd_flags_check(const struct etcd_flags *flags) MUST_USE;
struct status *etcd_flags_open(const struct etcd_flags *flags, struct loop *loop,
                               struct etcd **ret_etcd) MUST_USE;

#endif
