/* Tells whether two tasks can reach each other over Unix sockets: the text is equal in processes of
 * one boot and one network namespace. Abstract socket names belong to the network namespace.
 * The text is static. Any thread. */
#ifndef MILLRACE_RPC_HOST_ID_H
#define MILLRACE_RPC_HOST_ID_H

const char *host_id(void);

#endif
