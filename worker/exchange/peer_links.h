/* What a link takes for a byte, as large values show it. Loop thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_LINKS_H
#define MILLRACE_WORKER_EXCHANGE_PEER_LINKS_H

#include <stddef.h>
#include <stdint.h>

/* Most of a shorter value may be in the socket's buffer before the clock starts. */
enum { PEER_LINK_MIN_BYTES = 2 << 20 };

/* A value has crossed in that time. Changes *ns_per_byte, which is 0 before the first one. A value
 * that is too small to tell changes nothing. */
void peer_link_note(double *ns_per_byte, size_t size_bytes, int64_t took_ns);

#endif
