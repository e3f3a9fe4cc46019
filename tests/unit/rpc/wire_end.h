/* Ending a test's connections. */
#ifndef MILLRACE_TESTS_UNIT_RPC_WIRE_END_H
#define MILLRACE_TESTS_UNIT_RPC_WIRE_END_H

#include "rpc/wire/wire.h"
#include "tests/unit/rpc/loop_until.h"

/* Closes it, unless that has happened, and lets it go once its owner has heard so; `n_closed`
 * counts that. conn may be NULL. */
static inline void wire_end(struct loop *loop, struct wire_conn *conn, const int *n_closed) {
    if (!conn)
        return;
    if (*n_closed == 0)
        wire_conn_close(conn, NULL);
    LOOP_UNTIL(loop, *n_closed > 0);
    wire_conn_unref(conn);
}

#endif
