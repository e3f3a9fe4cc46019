/* Samples what nodes take: some steps of each executable are traced, and at their end the trace
 * goes into the table of measured costs (master/compile/cost/cost_table.h). The client's answer
 * does not wait for that, and the trace is not sent to the client.
 *
 * A traced step takes longer: about SAMPLE_NODE_NS for each row of its trace, over all processes,
 * and SAMPLE_STEP_NS. A step is sampled when the executable's steps since its last sample have
 * taken SAMPLE_EVERY times as long, so sampling costs less than a hundredth of the time of steps.
 * A node in a loop has a row for each iteration, so the rows of the last sample are counted, but
 * not less than the nodes. Where the last sample has cost more than that, what it has cost
 * counts: the time that its step took longer than the steps before it, and that of reading the
 * trace. */
#ifndef MILLRACE_MASTER_STEP_COST_SAMPLES_H
#define MILLRACE_MASTER_STEP_COST_SAMPLES_H

#include "master/compile/compile.h"
#include "master/compile/cost/cost_table.h"

enum {
    SAMPLE_EVERY = 240,
    SAMPLE_NODE_NS = 2000,
    SAMPLE_STEP_NS = 200000,
    SAMPLE_ROW_BYTES = 100,            /* about what a row takes in a trace */
    SAMPLE_MAX_TRACE_BYTES = 16 << 20, /* longer traces of a step are not read */
};

/* The last sample of an executable; all 0: there was none. */
struct last_sample {
    int64_t rows; /* of its trace, about */
    int64_t ns;   /* that it has cost */
};
/* Is the next step to be sampled, after steps of unsampled_ns in all? Any thread. */
bool cost_sample_is_due(const struct compiled *compiled, struct last_sample last,
                        int64_t unsampled_ns);
/* Puts what StepStats messages say of the nodes into the table: times, and the sizes of values that
 * the master cannot infer. The messages may be wrong in every
 * way. Any thread. */
void cost_samples_note(const struct compiled *compiled, const struct span *traces, int n_traces,
                       struct cost_table *table);
/* Puts the sizes of a step's feeds into the table, but for those that were passed on without being
 * read. Both arrays are by the signature's position. Any thread. */
void cost_samples_note_feeds(const struct compiled *compiled, const struct tensor *feeds,
                             const bool *is_passed_on, struct cost_table *table);

#endif
