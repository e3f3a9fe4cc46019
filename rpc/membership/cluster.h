/* The list of a cluster's tasks: jobs and the addresses of their tasks, from a flag, a
 * configuration file or TF_CONFIG.
 *
 *   --cluster "ps=host:2400,worker=host:2300;host2:2300"
 *   TF_CONFIG '{"cluster": {"ps": ["host:2400"], "worker": […]},
 *               "task": {"type": "worker", "index": 0}}'
 *
 * In --cluster, commas separate jobs and semicolons addresses. Tasks are numbered from 0. */
#ifndef MILLRACE_RPC_MEMBERSHIP_CLUSTER_H
#define MILLRACE_RPC_MEMBERSHIP_CLUSTER_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

struct cluster_task {
    const char *name; /* "/job:ps/replica:0/task:0" */
    const char *job;
    int index;
    const char *address; /* "host:port" or "unix:…" */
};

struct cluster_spec {
    struct arena arena;
    struct cluster_task *tasks; /* by job name, then index */
    int n_tasks;
};

void cluster_spec_init(struct cluster_spec *spec);
void cluster_spec_fini(struct cluster_spec *spec);
/* Replaces *spec on success only. Errors: INVALID_ARGUMENT, which says what is wrong and where.
 * Job names are [A-Za-z][A-Za-z0-9_]*; no job and no address may occur twice; each job has an
 * address. */
struct status *cluster_spec_parse(const char *text, struct cluster_spec *spec) MUST_USE;
/* Parses TF_CONFIG's JSON. *ret_job (in the arena) and *ret_index are those of the process that
 * it is for; NULL and -1 when it does not say. "chief", "master" and "evaluator" are jobs like
 * others. */
struct status *cluster_spec_parse_tf_config(const char *json, struct cluster_spec *spec,
                                            const char **ret_job, int *ret_index) MUST_USE;
/* Adds a task of a job; `index` may leave a gap. Errors: INVALID_ARGUMENT, as above. */
struct status *cluster_spec_add(struct cluster_spec *spec, struct span job, int index,
                                struct span address) MUST_USE;
/* Adds task 0 of a job that is in this process, at "local:NAME" (rpc/wire/wire_local.c), which no
 * other list may have. Errors: INVALID_ARGUMENT, too many tasks. */
struct status *cluster_spec_add_local(struct cluster_spec *spec, const char *job,
                                      const char *address) MUST_USE;
/* Appends the list as --cluster takes it. */
void cluster_spec_print(const struct cluster_spec *spec, struct str *out);

#endif
