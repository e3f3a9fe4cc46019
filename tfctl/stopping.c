/* Ends a local cluster in waves: which processes get TERM, and which get KILL when. */
#include "tfctl/stopping.h"

#include <stdlib.h>

#include "common/base/clock.h"

struct stop_stage {
    int after_ms, signo; /* signal 0: give up on the members that still run */
};
/* A daemon that drains after the first TERM ends at once after the second. */
static const struct stop_stage command_stages[] = {{0, SIGTERM}, {10000, SIGKILL}, {12000, 0}};
static const struct stop_stage daemon_stages[] = {
    {0, SIGTERM}, {1000, SIGTERM}, {5000, SIGKILL}, {7000, 0}};

/* The master ends before its tasks, so that it does not report their loss. */
static const struct stop_wave {
    unsigned kinds;
    bool has_strays;
    const struct stop_stage *stages;
} waves[] = {
    {1u << MEMBER_COMMAND | 1u << MEMBER_PROBE, true, command_stages},
    {1u << MEMBER_MASTER, false, daemon_stages},
    {1u << MEMBER_TASK, false, daemon_stages},
};

void stopping_begin(struct stopping *stopping, const struct member *members, int n_members,
                    bool has_strays) {
    *stopping = (struct stopping){.members = members,
                                  .n_members = n_members,
                                  .has_strays = has_strays,
                                  .wave_begin_ns = clock_now_ns()};
}

static int signal_strays(const struct stopping *stopping, int signo) {
    if (!stopping->has_strays)
        return 0;
    pid_t *known = xmalloc((size_t)stopping->n_members * sizeof(*known));
    int n = 0;
    for (int i = 0; i < stopping->n_members; i++)
        if (stopping->members[i].child.pid > 0)
            known[n++] = stopping->members[i].child.pid;
    int n_strays = children_signal(signo, known, n);
    free(known);
    return n_strays;
}

/* Signal 0 only counts them. */
static int signal_wave(const struct stopping *stopping, const struct stop_wave *wave, int signo) {
    int n = wave->has_strays ? signal_strays(stopping, signo) : 0;
    for (int i = 0; i < stopping->n_members; i++) {
        const struct member *member = &stopping->members[i];
        if (member->child.pid <= 0 || !(wave->kinds >> member->kind & 1))
            continue;
        n++;
        if (signo)
            child_signal(&member->child, signo);
    }
    return n;
}

int64_t stopping_due_ns(const struct stopping *stopping) {
    return stopping->wave_begin_ns +
           (int64_t)waves[stopping->wave].stages[stopping->stage].after_ms * 1000000;
}

bool stopping_advance(struct stopping *stopping) {
    while (stopping->wave < (int)ARRAY_LEN(waves)) {
        const struct stop_wave *wave = &waves[stopping->wave];
        bool is_gone = signal_wave(stopping, wave, 0) == 0;
        if (!is_gone && clock_now_ns() < stopping_due_ns(stopping))
            return false;
        int signo = wave->stages[stopping->stage].signo;
        if (!is_gone && signo != 0) {
            signal_wave(stopping, wave, signo);
            stopping->stage++;
            continue;
        }
        stopping->wave++;
        stopping->stage = 0;
        stopping->wave_begin_ns = clock_now_ns();
    }
    return true;
}

void stopping_adopt(struct stopping *stopping) {
    if (stopping->wave < (int)ARRAY_LEN(waves) && waves[stopping->wave].has_strays &&
        stopping->stage > 0)
        signal_strays(stopping, waves[stopping->wave].stages[stopping->stage - 1].signo);
}
