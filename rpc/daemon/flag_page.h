/* Writes /flagz: a daemon's settings, and where each is from. */
#ifndef MILLRACE_RPC_DAEMON_FLAG_PAGE_H
#define MILLRACE_RPC_DAEMON_FLAG_PAGE_H

#include "common/base/options.h"

/* As JSON: the settings that something has set, then those with their defaults. The files of keys
 * and passwords are not named, and user:password@ in an address is left out. */
void flag_page_write(const struct options *options, struct str *out);

#endif
