/* Keeps the master's table of tasks equal to the members that etcd lists.
 *
 * It reads one listing, then watches etcd from the listing's revision. When the watch ends, for
 * whatever reason (a broken connection, a compaction, an etcd that lost its data), it reads a
 * listing again. Tasks that a listing lacks are deregistered. While etcd cannot be reached the
 * table stays as it is. Loop thread only. */
#ifndef MILLRACE_MASTER_CLUSTER_MEMBERSHIP_H
#define MILLRACE_MASTER_CLUSTER_MEMBERSHIP_H

#include "master/cluster/tasks.h"
#include "rpc/membership/etcd.h"

struct membership;

/* `cluster_name` is copied. tasks and etcd are borrowed until membership_close. */
struct membership *membership_new(struct loop *loop, struct etcd *etcd, const char *cluster_name,
                                  struct tasks *tasks);
/* Stops: the table is not changed any more. The loop frees the memory later. Accepts NULL. */
void membership_close(struct membership *membership);
void membership_describe(const struct membership *membership, struct str *out); /* a JSON object */

/* Reads "ps=2,worker=4" and makes sessions wait for these tasks, numbered from 0. With NULL tasks
 * the text is only checked. Errors: INVALID_ARGUMENT. */
struct status *membership_expect(const char *text, struct tasks *tasks) MUST_USE;

#endif
