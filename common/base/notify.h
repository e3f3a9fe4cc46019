/* Tells systemd about this process, by the protocol of sd_notify(3): a datagram of lines
 * NAME=VALUE to the socket in $NOTIFY_SOCKET. Threads: any. */
#ifndef MILLRACE_COMMON_BASE_NOTIFY_H
#define MILLRACE_COMMON_BASE_NOTIFY_H

#include "common/base/base.h"

/* Sends lines such as "STOPPING=1". Returns whether they were sent: not without $NOTIFY_SOCKET, nor
 * when its reader does not keep up. Never blocks. */
bool notify_send(const char *lines);
/* Sends lines that must not be lost, as "READY=1": waits up to NOTIFY_WAIT_S for the reader. */
enum { NOTIFY_WAIT_S = 5 };
bool notify_send_waiting(const char *lines);
/* Returns the time within which systemd wants to hear "WATCHDOG=1", or 0 when it does not listen
 * for this process ($WATCHDOG_USEC, $WATCHDOG_PID). */
int64_t notify_watchdog_ms(void);

#endif
