/* What tells whether two tasks can meet over Unix sockets: equal on processes of one boot and
 * one network namespace (abstract socket names belong to the namespace). Static storage; any
 * thread. */
#ifndef MILLRACE_RPC_HOST_ID_H
#define MILLRACE_RPC_HOST_ID_H

const char *host_id(void);

#endif
