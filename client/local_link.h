/* Finds the plugin for local sessions (client/local/local_plugin.h). */
#ifndef MILLRACE_CLIENT_LOCAL_LINK_H
#define MILLRACE_CLIENT_LOCAL_LINK_H

#include "client/local/local_plugin.h"

/* The plugin, loaded at the first call. It is looked for beside the client library, then where the
 * system looks for libraries. Errors: UNAVAILABLE, with what is missing. Any thread. */
struct status *local_link_plugin(const struct local_plugin **ret) MUST_USE;

#endif
