/* Makes an etcd client from the flags of a daemon. */
#include "rpc/membership/etcd_flags.h"

#include "rpc/listen.h"

struct status *etcd_flags_check(const struct etcd_flags *flags) {
    struct net_address parsed;
    if (flags->advertise) {
        struct status *st = net_address_parse(flags->advertise, &parsed);
        if (!st && (parsed.is_local || (!parsed.is_unix && !parsed.host[0])))
            st = status_invalid("'%s' has no host that others could connect to", flags->advertise);
        if (st)
            return status_prefix_take(st, "advertise: ");
    }
    if (!flags->user != !flags->password_file)
        return status_invalid("etcd-user and etcd-password-file must be given together");
    if (!flags->urls)
        return NULL;
    struct status *st = status_prefix_take(etcd_check_urls(flags->urls), "etcd: ");
    return st ? st
              : status_prefix_take(member_check_cluster(flags->cluster_name), "cluster-name: ");
}

struct status *etcd_flags_open(const struct etcd_flags *flags, struct loop *loop,
                               struct etcd **ret_etcd) {
    struct etcd_options options = {.urls = flags->urls,
                                   .ca_file = flags->ca_file,
                                   .cert_file = flags->cert_file,
                                   .key_file = flags->key_file,
                                   .user = flags->user,
                                   .password_file = flags->password_file};
    return etcd_new(loop, &options, ret_etcd);
}
