/* What goes wrong in a run: processes are killed, stopped and vanish, links are cut and slow,
 * connections reset; all of it ends. */
#ifndef MILLRACE_TESTS_SIM_FAULTS_H
#define MILLRACE_TESTS_SIM_FAULTS_H

#include "tests/sim/cluster.h"

/* draws them; each ends by to_ns, when everything is well again */
void faults_begin(int64_t from_ns, int64_t to_ns);
/* Has the host been in trouble within the last `within_ns`? */
bool faults_disturbed(int host, int64_t within_ns);
/* When a fault anywhere last began or ended. */
int64_t faults_last_change_ns(void);
uint64_t faults_count(void);

#endif
