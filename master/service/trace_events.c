/* Writes trace events: lanes, slices and arrows. */
#include "master/service/trace_events.h"

#include <stdio.h>
#include <stdlib.h>

#include "rpc/daemon/page.h"

enum {
    MASTER_PID = 1,
    FIRST_TASK_PID = 2,
    MAX_LANES = 100,    /* of one group; further slices share the last */
    LANES_APART = 1000, /* between the numbers of the groups' first lanes */
};

static const int64_t DAY_US = 86400000000;

/* The slices of a task are drawn in three groups. In each, slices that overlap are put into
 * different lanes. */
enum group { GROUP_NODES, GROUP_SENDS, GROUP_RECVS, N_GROUPS };
static const char *const group_names[N_GROUPS] = {"compute", "send", "receive"};

struct slice {
    const Millrace__StepTrace *trace;
    const Millrace__TraceRow *row;
    const struct trace_source *source;
    int64_t start_ns, end_ns; /* since the first event of the file */
    int pid, lane;
};

struct slices {
    struct slice *items;
    size_t n;
};

struct writer {
    struct str *out;
    size_t limit, n_left_out;
};

/* ---- JSON ---- */

/* Begins an event; false: there is no room for it. */
static bool event_open(struct writer *writer, const char *phase, int pid, int lane) {
    if (writer->out->len >= writer->limit) {
        writer->n_left_out++;
        return false;
    }
    page_open(writer->out, NULL, '{');
    page_text(writer->out, "ph", phase);
    page_int(writer->out, "pid", pid);
    page_int(writer->out, "tid", lane);
    return true;
}

static void add_us(struct str *out, const char *key, int64_t ns) {
    page_key(out, key);
    str_addf(out, "%lld.%03d", (long long)(ns / 1000), (int)(ns % 1000));
}

static void add_meta(struct writer *writer, const char *name, int pid, int lane, const char *text) {
    if (!event_open(writer, "M", pid, lane))
        return;
    page_text(writer->out, "name", name);
    page_open(writer->out, "args", '{');
    page_text(writer->out, "name", text);
    page_close(writer->out, '}');
    page_close(writer->out, '}');
}

/* ---- collecting ---- */

static enum group group_of(const struct slice *slice) {
    return slice->row->kind == MILLRACE__TRACE_ROW__KIND__SEND   ? GROUP_SENDS
           : slice->row->kind == MILLRACE__TRACE_ROW__KIND__RECV ? GROUP_RECVS
                                                                 : GROUP_NODES;
}

/* From when until when a task's part of a step may start: a day around the master's steps. */
struct window {
    int64_t from_us, until_us;
};

static struct window find_window(const struct step_log_entry *const *steps, int n_steps) {
    int64_t first = n_steps > 0 ? steps[0]->start_us : 0, last = first;
    for (int i = 1; i < n_steps; i++) {
        first = MIN(first, steps[i]->start_us);
        last = MAX(last, steps[i]->start_us);
    }
    return (struct window){first - DAY_US, last + DAY_US};
}

/* A task may say anything. */
static int64_t start_us(const Millrace__StepTrace *trace, const struct window *window) {
    return MIN(MAX(trace->start_us, window->from_us), window->until_us);
}
static int64_t bounded(int64_t ns) { return MIN(MAX(ns, (int64_t)0), DAY_US * 1000); }

static int64_t first_us(const struct window *window, const struct trace_source *sources,
                        int n_sources) {
    int64_t first = window->from_us + DAY_US;
    for (int i = 0; i < n_sources; i++)
        for (size_t k = 0; sources[i].traces && k < sources[i].traces->n_trace; k++)
            first = MIN(first, start_us(sources[i].traces->trace[k], window));
    return first;
}

static struct slices collect(const struct window *window, const struct trace_source *sources,
                             int n_sources, int64_t from_us) {
    struct slices all = {NULL, 0};
    size_t n = 0;
    for (int i = 0; i < n_sources; i++)
        for (size_t k = 0; sources[i].traces && k < sources[i].traces->n_trace; k++)
            n += sources[i].traces->trace[k]->n_row;
    all.items = xcalloc(n + 1, sizeof *all.items);
    for (int i = 0; i < n_sources; i++) {
        for (size_t k = 0; sources[i].traces && k < sources[i].traces->n_trace; k++) {
            const Millrace__StepTrace *trace = sources[i].traces->trace[k];
            int64_t begin_ns = (start_us(trace, window) - from_us) * 1000;
            for (size_t r = 0; r < trace->n_row; r++) {
                const Millrace__TraceRow *row = trace->row[r];
                int64_t start_ns = begin_ns + bounded(row->start_ns);
                all.items[all.n++] = (struct slice){.trace = trace,
                                                    .row = row,
                                                    .source = &sources[i],
                                                    .start_ns = start_ns,
                                                    .end_ns = start_ns + bounded(row->duration_ns),
                                                    .pid = FIRST_TASK_PID + i};
            }
        }
    }
    return all;
}

/* ---- lanes ---- */

static int by_place_and_time(const void *a, const void *b) {
    const struct slice *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (group_of(x) != group_of(y))
        return group_of(x) < group_of(y) ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Puts each slice into the first lane that is free, and writes the lanes' names. */
static void assign_lanes(struct slices *all, struct writer *writer) {
    int64_t free_ns[MAX_LANES];
    int n_lanes = 0;
    qsort(all->items, all->n, sizeof *all->items, by_place_and_time);
    for (size_t i = 0; i < all->n; i++) {
        struct slice *slice = &all->items[i];
        const struct slice *before = i > 0 ? &all->items[i - 1] : NULL;
        int lane = 0;
        if (!before || before->pid != slice->pid || group_of(before) != group_of(slice))
            n_lanes = 0;
        while (lane < n_lanes && free_ns[lane] > slice->start_ns && lane < MAX_LANES - 1)
            lane++;
        slice->lane = 1 + group_of(slice) * LANES_APART + lane;
        if (lane == n_lanes) {
            n_lanes++;
            add_meta(writer, "thread_name", slice->pid, slice->lane, group_names[group_of(slice)]);
        }
        free_ns[lane] = slice->end_ns;
    }
}

/* ---- slices ---- */

static void add_transfer_args(struct str *out, const struct slice *slice) {
    const Millrace__TraceRow *row = slice->row;
    bool is_send = group_of(slice) == GROUP_SENDS;
    page_text(out, "tensor", row->name);
    page_text(out, is_send ? "to" : "from", row->op);
    page_int(out, "bytes", row->size_bytes);
    page_text(out, "transport", row->transport);
    if (row->duration_ns > 0)
        page_real(out, "bytes_per_second",
                  (double)row->size_bytes * 1e9 / (double)row->duration_ns);
}

static void add_slice(struct writer *writer, const struct slice *slice) {
    static const char *const categories[N_GROUPS] = {"node", "send", "recv"};
    const Millrace__TraceRow *row = slice->row;
    enum group group = group_of(slice);
    struct str *out = writer->out;
    if (!event_open(writer, "X", slice->pid, slice->lane))
        return;
    page_text(out, "name", group == GROUP_NODES ? row->op : row->name);
    page_text(out, "cat", categories[group]);
    add_us(out, "ts", slice->start_ns);
    add_us(out, "dur", slice->end_ns - slice->start_ns);
    page_open(out, "args", '{');
    page_id(out, "step", slice->trace->step_id);
    if (group == GROUP_NODES) {
        page_text(out, "node", row->name);
        page_text(out, "device", row->device);
        page_int(out, "output_bytes", row->size_bytes);
    } else {
        add_transfer_args(out, slice);
    }
    page_close(out, '}');
    page_close(out, '}');
}

/* ---- arrows ---- */

/* The key of a value: step, edge, frame and iteration. */
static int by_key(const struct slice *x, const struct slice *y) {
    if (x->trace->step_id != y->trace->step_id)
        return x->trace->step_id < y->trace->step_id ? -1 : 1;
    if (x->row->edge != y->row->edge)
        return x->row->edge < y->row->edge ? -1 : 1;
    return (x->row->frame_iter > y->row->frame_iter) - (x->row->frame_iter < y->row->frame_iter);
}

static int by_key_of(const void *a, const void *b) {
    return by_key(*(const struct slice *const *)a, *(const struct slice *const *)b);
}

static size_t pick(const struct slices *all, enum group group, const struct slice **ret) {
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        if (group_of(&all->items[i]) == group)
            ret[n++] = &all->items[i];
    qsort(ret, n, sizeof *ret, by_key_of);
    return n;
}

static void add_arrow_end(struct writer *writer, const struct slice *slice, bool is_start,
                          size_t number) {
    struct str *out = writer->out;
    /* an end belongs to the slice that its time is in */
    int64_t at_ns = is_start ? slice->start_ns : MAX(slice->end_ns - 1, slice->start_ns);
    if (!event_open(writer, is_start ? "s" : "f", slice->pid, slice->lane))
        return;
    page_text(out, "name", slice->row->name);
    page_text(out, "cat", "value");
    page_int(out, "id", (int64_t)number);
    if (!is_start)
        page_text(out, "bp", "e");
    add_us(out, "ts", at_ns);
    page_close(out, '}');
}

static void add_arrows(const struct slices *all, struct writer *writer) {
    const struct slice **sends = xcalloc(all->n + 1, sizeof *sends),
                       **recvs = xcalloc(all->n + 1, sizeof *recvs);
    size_t n_sends = pick(all, GROUP_SENDS, sends), n_recvs = pick(all, GROUP_RECVS, recvs);
    for (size_t s = 0, r = 0; s < n_sends && r < n_recvs;) {
        int order = by_key(sends[s], recvs[r]);
        if (order == 0) {
            add_arrow_end(writer, sends[s], true, s + 1);
            add_arrow_end(writer, recvs[r], false, s + 1);
        }
        s += order <= 0;
        r += order >= 0;
    }
    free(sends);
    free(recvs);
}

/* ---- the file ---- */

static void add_phase(struct writer *writer, int lane, const char *name, int64_t start_ns,
                      int64_t duration_ns, const struct step_log_entry *step) {
    struct str *out = writer->out;
    if (!event_open(writer, "X", MASTER_PID, lane))
        return;
    page_text(out, "name", name);
    page_text(out, "cat", "step");
    add_us(out, "ts", start_ns);
    add_us(out, "dur", duration_ns);
    page_open(out, "args", '{');
    page_id(out, "step", step->id);
    page_text(out, "session", step->session);
    page_text(out, "signature", step->what);
    page_close(out, '}');
    page_close(out, '}');
}

/* A lane for each step, because steps may overlap. */
static void add_master(struct writer *writer, const struct step_log_entry *const *steps,
                       int n_steps, int64_t from_us) {
    add_meta(writer, "process_name", MASTER_PID, 0, "master");
    for (int i = 0; i < n_steps; i++) {
        const struct step_log_entry *step = steps[n_steps - 1 - i];
        int64_t at_ns = (step->start_us - from_us) * 1000;
        char name[64];
        snprintf(name, sizeof name, "step %016llx", (unsigned long long)step->id);
        add_meta(writer, "thread_name", MASTER_PID, i + 1, name);
        add_phase(writer, i + 1, step->what, at_ns, step->start_ns + step->run_ns, step);
        add_phase(writer, i + 1, "until it is sent", at_ns, step->start_ns, step);
        add_phase(writer, i + 1, "on its tasks", at_ns + step->start_ns, step->run_ns, step);
    }
}

void trace_events_write(const struct step_log_entry *const *steps, int n_steps,
                        const struct trace_source *sources, int n_sources, int n_left_out,
                        struct str *out) {
    struct writer writer = {.out = out, .limit = out->len + TRACE_EVENTS_MAX_BYTES};
    struct window window = find_window(steps, n_steps);
    int64_t from_us = first_us(&window, sources, n_sources);
    struct slices all = collect(&window, sources, n_sources, from_us);
    page_open(out, NULL, '{');
    page_text(out, "displayTimeUnit", "ns");
    page_open(out, "traceEvents", '[');
    add_master(&writer, steps, n_steps, from_us);
    for (int i = 0; i < n_sources; i++)
        if (sources[i].traces && sources[i].traces->n_trace > 0)
            add_meta(&writer, "process_name", FIRST_TASK_PID + i, 0, sources[i].task);
    assign_lanes(&all, &writer);
    for (size_t i = 0; i < all.n; i++)
        add_slice(&writer, &all.items[i]);
    add_arrows(&all, &writer);
    page_close(out, ']');
    page_open(out, "otherData", '{');
    page_text(out, "program", "tf-master " MILLRACE_VERSION);
    page_int(out, "steps", n_steps);
    page_int(out, "start_us", from_us);
    page_int(out, "left_out", (int64_t)writer.n_left_out);
    page_int(out, "tasks_left_out", n_left_out);
    page_close(out, '}');
    page_close(out, '}');
    str_add_char(out, '\n');
    free(all.items);
}
