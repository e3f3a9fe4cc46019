/* Loads libcurl when it is first needed. A daemon without etcd maps neither libcurl nor the twenty
 * libraries that it needs. Building needs its headers, running its library (libcurl.so.4). Loop
 * thread. Only http_client.c uses it. */
#ifndef MILLRACE_RPC_MEMBERSHIP_CURL_LIBRARY_H
#define MILLRACE_RPC_MEMBERSHIP_CURL_LIBRARY_H

#include <curl/curl.h>

#include "common/base/status.h"

struct curl_library {
#define CALL(name) __typeof__(curl_##name) *name;
#include "rpc/membership/curl_calls.inc"
#undef CALL
};

/* Returns the library of the process; it is loaded by the first call. Errors: FAILED_PRECONDITION
 * when libcurl is not installed or lacks a call. */
struct status *curl_library_get(const struct curl_library **ret) MUST_USE;

#endif
