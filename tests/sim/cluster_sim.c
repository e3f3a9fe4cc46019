/* Runs seeds, each in a process of its own, and says which failed and how.
 *
 *   cluster_sim --seed N [--trace]      one run; with --trace what happens in it
 *   cluster_sim --seeds N [--seed M]    N runs, from seed M (1) on
 *   --until-failure                     starts no more runs after one has failed
 *   --jobs N                            at a time; default 2 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/run.h"

enum { MAX_JOBS = 64, RUN_SECONDS = 60, TWICE_EVERY = 16 };

struct options {
    uint64_t first, n_seeds;
    bool is_traced, ends_at_failure;
    int n_jobs;
};

struct job {
    pid_t pid; /* 0: free */
    int pipe;
    uint64_t seed;
};

static struct run_result result;
static int result_pipe = -1;

/* ---- one run ---- */

static void report(void) {
    if (write(result_pipe, &result, sizeof(result)) != sizeof(result))
        _exit(1);
}

static void on_fail(const char *message) {
    result.has_failed = true;
    result.trace_hash = sim_trace_hash();
    snprintf(result.message, sizeof(result.message), "%s", message);
    if (result_pipe < 0) {
        printf("seed %llu FAILED at %.6f: %s\n", (unsigned long long)result.seed,
               (double)sim_now_ns() / 1e9, message);
        fflush(stdout);
    } else {
        report();
    }
    _exit(1);
}

static void run_one(uint64_t seed, bool is_traced) {
    sim_on_fail = on_fail;
    alarm(RUN_SECONDS); /* of real time: a process that never waits */
    run_seed(seed, is_traced, &result);
}

/* ---- many ---- */

static void start(struct job *job, uint64_t seed) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    job->pid = fork();
    CHECK(job->pid >= 0);
    if (job->pid == 0) {
        close(ends[0]);
        result_pipe = ends[1];
        run_one(seed, false);
        report();
        _exit(0);
    }
    close(ends[1]);
    job->pipe = ends[0];
    job->seed = seed;
}

static void finish(struct job *job, int wait_status, struct run_result *ret) {
    bool has_result = read(job->pipe, ret, sizeof(*ret)) == sizeof(*ret);
    if (!has_result || WIFSIGNALED(wait_status)) {
        *ret = (struct run_result){.seed = job->seed, .has_failed = true};
        if (WIFSIGNALED(wait_status))
            snprintf(ret->message, sizeof(ret->message), "ended by signal %d%s",
                     WTERMSIG(wait_status),
                     WTERMSIG(wait_status) == SIGALRM ? ": it never ends" : "");
        else
            snprintf(ret->message, sizeof(ret->message), "exited with %d",
                     WEXITSTATUS(wait_status));
    }
    close(job->pipe);
    job->pid = 0;
}

struct totals {
    uint64_t n_runs, n_failed, n_steps, n_faults, first_failed;
    double virtual_seconds;
    uint64_t *hashes; /* of the seeds, for those that run twice */
};

static void count(const struct options *options, struct totals *totals,
                  const struct run_result *run) {
    uint64_t *hash = &totals->hashes[run->seed - options->first];
    totals->n_runs++;
    totals->n_steps += run->n_steps;
    totals->n_faults += run->n_faults;
    totals->virtual_seconds += run->virtual_seconds;
    bool is_other_run = !run->has_failed && *hash != 0 && *hash != run->trace_hash;
    *hash = run->trace_hash;
    if (!run->has_failed && !is_other_run)
        return;
    totals->n_failed++;
    if (totals->n_failed == 1 || run->seed < totals->first_failed)
        totals->first_failed = run->seed;
    printf("seed %llu FAILED: %s\n", (unsigned long long)run->seed,
           is_other_run ? "a second run of it went another way" : run->message);
}

static int run_many(const struct options *options) {
    struct job jobs[MAX_JOBS] = {{0}};
    struct totals totals = {.hashes = xcalloc(options->n_seeds, sizeof(uint64_t))};
    uint64_t next = 0, n_starts = options->n_seeds + options->n_seeds / TWICE_EVERY;
    int n_live = 0;
    while (next < n_starts || n_live > 0) {
        bool is_found = options->ends_at_failure && totals.n_failed > 0;
        for (int i = 0; i < options->n_jobs && next < n_starts && !is_found; i++) {
            if (jobs[i].pid)
                continue;
            uint64_t n = next < options->n_seeds ? next : (next - options->n_seeds) * TWICE_EVERY;
            next++;
            start(&jobs[i], options->first + n);
            n_live++;
        }
        if (n_live == 0)
            break;
        int wait_status;
        pid_t pid = wait(&wait_status);
        for (int i = 0; i < options->n_jobs; i++) {
            struct run_result run;
            if (jobs[i].pid != pid)
                continue;
            finish(&jobs[i], wait_status, &run);
            count(options, &totals, &run);
            n_live--;
        }
    }
    printf("%llu runs, %.0f virtual seconds, %llu steps done well, %llu faults: %llu failed\n",
           (unsigned long long)totals.n_runs, totals.virtual_seconds,
           (unsigned long long)totals.n_steps, (unsigned long long)totals.n_faults,
           (unsigned long long)totals.n_failed);
    if (totals.n_failed > 0)
        printf("again: cluster_sim --seed %llu --trace\n", (unsigned long long)totals.first_failed);
    free(totals.hashes);
    return totals.n_failed > 0;
}

/* ---- the command line ---- */

static int usage(void) {
    fprintf(stderr,
            "usage: cluster_sim [--seed N] [--seeds N] [--trace] [--until-failure] [--jobs N]\n");
    return 64;
}

int main(int argc, char **argv) {
    static const struct option longs[] = {
        {"seed", required_argument, NULL, 's'}, {"seeds", required_argument, NULL, 'n'},
        {"trace", no_argument, NULL, 't'},      {"until-failure", no_argument, NULL, 'u'},
        {"jobs", required_argument, NULL, 'j'}, {NULL, 0, NULL, 0},
    };
    struct options options = {.first = 1, .n_jobs = 2};
    int option;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        unsigned long long number = optarg ? strtoull(optarg, NULL, 10) : 0;
        switch (option) {
        case 's':
            options.first = number;
            break;
        case 'n':
            options.n_seeds = number;
            break;
        case 't':
            options.is_traced = true;
            break;
        case 'u':
            options.ends_at_failure = true;
            break;
        case 'j':
            options.n_jobs = (int)MIN(MAX(number, 1ull), (unsigned long long)MAX_JOBS);
            break;
        default:
            return usage();
        }
    }
    if (options.n_seeds > 0)
        return run_many(&options);
    result.seed = options.first;
    run_one(options.first, options.is_traced);
    printf(
        "seed %llu: well, %.1f virtual seconds, %llu steps done well, %llu faults, trace %016llx\n",
        (unsigned long long)result.seed, result.virtual_seconds, (unsigned long long)result.n_steps,
        (unsigned long long)result.n_faults, (unsigned long long)result.trace_hash);
    return 0;
}
