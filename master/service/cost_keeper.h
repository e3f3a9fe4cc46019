/* Keeps the table of measured costs for the life of a master, and in a file (--cost-file) beyond
 * it: reads and writes the file at the start, writes it on the pool once a minute if the table has
 * changed, and at the end. Loop thread, apart from cost_keeper_free. */
#ifndef MILLRACE_MASTER_SERVICE_COST_KEEPER_H
#define MILLRACE_MASTER_SERVICE_COST_KEEPER_H

#include "common/base/pool.h"
#include "common/base/status.h"
#include "master/compile/cost/cost_table.h"
#include "rpc/loop.h"

struct cost_keeper;
/* `path` (borrowed) may be NULL: there is no file. Errors: those of cost_file_read and
 * cost_file_write. */
struct status *cost_keeper_new(struct loop *loop, struct pool *pool, const char *path,
                               struct cost_keeper **ret) MUST_USE;
struct cost_table *cost_keeper_table(struct cost_keeper *keeper);
/* No write begins after this call. Accepts NULL. */
void cost_keeper_close(struct cost_keeper *keeper);
/* Writes the file a last time and frees all. After the pool and the loop have ended. Accepts NULL.
 */
void cost_keeper_free(struct cost_keeper *keeper);

#endif
