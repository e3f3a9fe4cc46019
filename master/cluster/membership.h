/* The cluster as etcd has it, kept in the master's table of tasks: one listing, then a watch
 * from its revision; when the watch ends, for whatever reason (a broken connection, a
 * compaction, an etcd that lost its data), a listing again. What a listing lacks is unlisted.
 * While etcd is away the table stays as it is. Loop thread only. */
#ifndef MILLRACE_MASTER_CLUSTER_MEMBERSHIP_H
#define MILLRACE_MASTER_CLUSTER_MEMBERSHIP_H

#include "master/cluster/tasks.h"
#include "rpc/membership/etcd.h"

struct membership;

/* `cluster_name` is copied; tasks and etcd have to live longer. */
struct membership *membership_new(struct loop *loop, struct etcd *etcd, const char *cluster_name,
                                  struct tasks *tasks);
/* Nothing is changed in the table any more. The memory goes with the loop's next turns. Accepts
 * NULL. */
void membership_close(struct membership *membership);
void membership_describe(const struct membership *membership, struct str *out); /* a JSON object */

/* "ps=2,worker=4": the tasks that sessions wait for, numbered from 0. With tasks NULL it is only
 * checked. Errors: INVALID_ARGUMENT. */
struct status *membership_expect(const char *text, struct tasks *tasks) MUST_USE;

#endif
