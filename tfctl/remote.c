/* Opens a session at the target that flags or the environment name. */
#include "tfctl/remote.h"

#include <stdlib.h>

#include "common/base/options.h"
#include "rpc/listen.h"

struct status *remote_target(const char *flag, const char **ret_target) {
    const char *target = flag ? flag : getenv("MILLRACE_TARGET");
    struct net_address address;
    bool is_tls;
    if (!target || !*target)
        return status_invalid("no target: give grpc://HOST:PORT (--target) or set MILLRACE_TARGET");
    struct status *st = net_address_parse(tls_client_split(target, &is_tls), &address);
    if (st)
        return status_prefix_take(
            st, "target '%s' is not of the form grpc://HOST:PORT, grpcs://HOST:PORT or unix:PATH: ",
            target);
    *ret_target = target;
    return NULL;
}

TF_DeprecatedSession *remote_session(const char *target, const struct tls_client *tls,
                                     int64_t timeout_ms, TF_Status *status) {
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, target);
    MR_SetTimeout(options, timeout_ms);
    MR_SetTls(options, tls->ca, tls->cert, tls->key, tls->name);
    TF_DeprecatedSession *session = TF_NewDeprecatedSession(options, status);
    TF_DeleteSessionOptions(options);
    return session;
}

int remote_fail(const struct cli *cli, const TF_Status *status) {
    enum status_code code = (enum status_code)TF_GetCode(status);
    return cli_fail_call(cli, status_new(code, "%s", TF_Message(status)));
}
