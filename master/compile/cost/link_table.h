/* What a value costs from one task to another: as the tasks have measured, or a default for the way
 * in which values travel.
 *
 *   way            latency   time of a byte   default because
 *   not told yet   20 us     0.3 ns           as Unix sockets: most clusters are tried on one host
 *   tcp            50 us     0.8 ns           ten gigabits a second, and a switch
 *   unix           20 us     0.3 ns           measured on loopback, with two wake-ups
 *   shm            20 us     0.02 ns          a reference; the receiver's caches are cold
 *   rdma           20 us     0.1 ns           a hundred gigabits a second
 *
 * A measured latency replaces the default one for every way; a measured time of a byte only where
 * values travel through sockets or by RDMA: in shared memory nothing travels. Any thread:
 * compilations read the table on pool threads. */
#ifndef MILLRACE_MASTER_COMPILE_COST_LINK_TABLE_H
#define MILLRACE_MASTER_COMPILE_COST_LINK_TABLE_H

#include "common/base/str.h"
#include "master/compile/cost/schedule.h"
#include "rpc/wire/link_report.h"

struct link_table;
struct link_table *link_table_new(void);
void link_table_free(struct link_table *table); /* accepts NULL */

/* `to` reports what it has measured of values from report->task. Numbers may be wrong in every
 * way. The caller limits the names to those of the cluster's tasks. */
void link_table_note(struct link_table *table, const char *to, const struct link_report *report);
/* A process of the task is gone: forgets its links. */
void link_table_forget(struct link_table *table, const char *task);
/* The cost of values between two different tasks. `table` may be NULL: nothing was told. */
struct schedule_link link_table_find(struct link_table *table, const char *from, const char *to);
/* Appends a JSON list: a row for each link that was told, at most max_rows. */
void link_table_describe(struct link_table *table, int max_rows, struct str *out);

#endif
