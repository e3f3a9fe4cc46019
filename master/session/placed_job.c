/* Compiles a signature for people. */
#include "master/session/placed_job.h"

#include "common/base/map.h"
#include "master/compile/place/placement.h"
#include "master/session/executable.h"

/* With measured costs the placer may decide otherwise by now, although it leaves nodes where they
 * are unless another placement is relevantly better. */
static void keep_devices(struct placed_job *job) {
    const struct compiled *compiled = job->executable->compiled;
    struct strmap by_name;
    strmap_init(&by_name);
    for (int i = 0; i < compiled->n_placed; i++)
        strmap_put(&by_name, compiled->placement[i].name, &compiled->placement[i]);
    for (int i = 0; i < job->graph.n_nodes; i++) {
        struct placed_node *node = &job->graph.nodes[i];
        const struct node_placement *present = strmap_get(&by_name, node->inner_name);
        if (!present)
            continue;
        const char *device = compiled->devices->devices[present->device].full_name;
        if (strcmp(device, node->device) == 0)
            continue;
        node->device = device;
        node->why = "it was placed by costs that were measured earlier; by the present ones it "
                    "would be elsewhere";
    }
    strmap_fini(&by_name);
}

static void work(struct session_job *session_job) {
    struct placed_job *job = CONTAINER_OF(session_job, struct placed_job, job);
    struct session *session = session_job->session;
    struct compile_options options = session->options;
    struct compiled *compiled = NULL;
    options.links = tasks_links(session->env->tasks);
    options.placed_graph = &job->graph;
    options.present = job->executable->compiled;
    options.is_away = job->executable->is_away;
    options.is_by_simple_rule = job->executable->is_by_simple_rule;
    options.dump_after = NULL;
    if (atomic_load(&job->is_cancelled))
        job->status = status_new(STATUS_CANCELLED, "the master is stopping");
    else
        job->status = compile_step(&session->graph, &job->executable->signature, session->devices,
                                   &options, session->env->pool, &compiled);
    compiled_free(compiled);
    if (!job->status)
        keep_devices(job);
    if (job->work)
        job->work(job);
}

static void done(struct session_job *session_job) {
    struct placed_job *job = CONTAINER_OF(session_job, struct placed_job, job);
    job->done(job);
}

void placed_job_start(struct placed_job *job, struct executable *executable) {
    job->job.work = work;
    job->job.done = done;
    job->executable = executable;
    executable->n_refs++;
    placed_graph_init(&job->graph);
    session_run_job(executable->session, &job->job);
}

void placed_job_cancel(struct placed_job *job) { atomic_store(&job->is_cancelled, true); }

void placed_job_fini(struct placed_job *job) {
    placed_graph_fini(&job->graph);
    status_unref(job->status);
    executable_unref(job->executable);
}
