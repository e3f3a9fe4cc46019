/* libcurl, loaded when it is first needed: a daemon that was not told of etcd neither maps it
 * nor the twenty libraries behind it. Headers are needed to build, the library (libcurl.so.4) to
 * run. Loop thread. Internal to rpc/membership/http_client. */
#ifndef MILLRACE_RPC_MEMBERSHIP_CURL_LIBRARY_H
#define MILLRACE_RPC_MEMBERSHIP_CURL_LIBRARY_H

#include <curl/curl.h>

#include "common/base/status.h"

/* What is called of it, without the prefix "curl_". */
#define CURL_LIBRARY_CALLS(X) \
    X(global_init)            \
    X(easy_init)              \
    X(easy_setopt)            \
    X(easy_getinfo)           \
    X(easy_cleanup)           \
    X(easy_strerror)          \
    X(multi_init)             \
    X(multi_setopt)           \
    X(multi_assign)           \
    X(multi_add_handle)       \
    X(multi_remove_handle)    \
    X(multi_socket_action)    \
    X(multi_info_read)        \
    X(multi_cleanup)          \
    X(slist_append)           \
    X(slist_free_all)

struct curl_library {
#define CALL(name) __typeof__(curl_##name) *name;
    CURL_LIBRARY_CALLS(CALL)
#undef CALL
};

/* The one of the process. Errors: FAILED_PRECONDITION when it is not installed or lacks a call. */
struct status *curl_library_get(const struct curl_library **ret) MUST_USE;

#endif
