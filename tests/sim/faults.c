/* Draws faults, begins and ends them. */
#include "tests/sim/faults.h"

#include "tests/sim/client.h"

enum { MAX_FAULTS = 8, MAX_CLIENT_HOSTS = CLIENT_MAX };

struct fault {
    const struct fault_kind *kind;
    int host, other; /* other: of a link; -1: none */
    int64_t end_ns;
    bool is_on;
    struct sim_link saved[2];
};

struct fault_kind {
    const char *name;
    int weight;
    void (*begin)(struct fault *fault);
    void (*end)(struct fault *fault); /* NULL: it is over at once */
    bool is_of_link;
    bool is_of_daemons, is_of_clients; /* neither: of both */
    int64_t max_ns;
};

static struct {
    struct fault faults[MAX_FAULTS];
    int n;
    int64_t disturbed_ns[SIM_MAX_HOSTS]; /* 0: never */
    int64_t last_change_ns;
} state;

/* ---- kinds ---- */

static struct cluster_node *node_at(int host) { return &cluster.nodes[host]; }
static struct sim_process *process_of(const struct fault *fault) {
    return sim_process_at(fault->host);
}

static void kill_now(struct sim_process *process) { cluster_kill(node_at(process->host), false); }

/* At once, or between two of the next things that it says. */
static void kill_begin(struct fault *fault) {
    struct sim_process *process = node_at(fault->host)->process;
    if (sim_chance(500)) {
        kill_now(process);
        return;
    }
    process->on_last_send = kill_now;
    process->sends_left = (int)sim_between(1, 6);
}

static void restart(struct fault *fault) {
    if (!node_at(fault->host)->process->is_alive)
        cluster_start(node_at(fault->host));
}

static void kill_end(struct fault *fault) {
    cluster_kill(node_at(fault->host), false);
    restart(fault);
}

static void vanish_begin(struct fault *fault) { cluster_kill(node_at(fault->host), true); }
/* Drained and ended by itself, or killed when that takes too long, as a supervisor does. */
static void term_begin(struct fault *fault) { cluster_terminate(node_at(fault->host)); }

static void kill_client_begin(struct fault *fault) {
    sim_process_kill(clients[fault->host - CLUSTER_FIRST_CLIENT_HOST].process, false);
}

static void stop_begin(struct fault *fault) {
    if (process_of(fault))
        sim_process_stop(process_of(fault));
}
static void stop_end(struct fault *fault) {
    if (process_of(fault))
        sim_process_continue(process_of(fault));
}

static void save_links(struct fault *fault) {
    fault->saved[0] = *sim_link_between(fault->host, fault->other);
    fault->saved[1] = *sim_link_between(fault->other, fault->host);
}
static void restore_links(struct fault *fault) {
    *sim_link_between(fault->host, fault->other) = fault->saved[0];
    *sim_link_between(fault->other, fault->host) = fault->saved[1];
}

static void cut_one_way(struct fault *fault) {
    save_links(fault);
    sim_link_between(fault->host, fault->other)->is_cut = true;
}
static void cut_both_ways(struct fault *fault) {
    cut_one_way(fault);
    sim_link_between(fault->other, fault->host)->is_cut = true;
}
static void slow_begin(struct fault *fault) {
    save_links(fault);
    struct sim_link slow = {.latency_ns = sim_between(20, 300) * SIM_MS,
                            .jitter_ns = sim_between(0, 200) * SIM_MS};
    *sim_link_between(fault->host, fault->other) = *sim_link_between(fault->other, fault->host) =
        slow;
}

static void reset_begin(struct fault *fault) {
    if (process_of(fault))
        sim_reset_some_connection(process_of(fault));
}

static const struct fault_kind kinds[] = {
    {"kill", 6, kill_begin, kill_end, .is_of_daemons = true, .max_ns = 8000000000},
    {"terminate", 3, term_begin, kill_end, .is_of_daemons = true, .max_ns = 8000000000},
    {"kill client", 1, kill_client_begin, NULL, .is_of_clients = true},
    {"power cut", 2, vanish_begin, restart, .is_of_daemons = true, .max_ns = 12000000000},
    {"stop", 5, stop_begin, stop_end, .max_ns = 16000000000},
    {"cut", 4, cut_both_ways, restore_links, .is_of_link = true, .max_ns = 16000000000},
    {"cut one way", 3, cut_one_way, restore_links, .is_of_link = true, .max_ns = 16000000000},
    {"slow", 3, slow_begin, restore_links, .is_of_link = true, .max_ns = 5000000000},
    {"reset", 6, reset_begin, NULL},
};

/* ---- their time ---- */

static void disturb(const struct fault *fault) {
    state.last_change_ns = sim_now_ns();
    state.disturbed_ns[fault->host] = sim_now_ns();
    if (fault->kind->is_of_link)
        state.disturbed_ns[fault->other] = sim_now_ns();
    if (fault->kind->begin == reset_begin) /* whose other end may be anybody's */
        for (int i = 0; i < SIM_MAX_HOSTS; i++)
            state.disturbed_ns[i] = sim_now_ns();
}

static void on_end(void *arg, uint64_t number) {
    struct fault *fault = arg;
    sim_trace("fault ends: %s, host %d", fault->kind->name, fault->host);
    fault->kind->end(fault);
    fault->is_on = false;
    disturb(fault);
}

static bool overlaps(const struct fault *fault) {
    for (int i = 0; i < state.n; i++) {
        const struct fault *other = &state.faults[i];
        bool is_same_link = other->kind->is_of_link && fault->kind->is_of_link &&
                            ((other->host == fault->host && other->other == fault->other) ||
                             (other->host == fault->other && other->other == fault->host));
        bool is_same_host =
            !other->kind->is_of_link && !fault->kind->is_of_link && other->host == fault->host;
        if (other != fault && other->is_on && (is_same_link || is_same_host))
            return true;
    }
    return false;
}

static void on_begin(void *arg, uint64_t number) {
    struct fault *fault = arg;
    if (overlaps(fault))
        return;
    sim_trace("fault: %s, host %d, other %d, %.3f s", fault->kind->name, fault->host, fault->other,
              (double)(fault->end_ns - sim_now_ns()) / 1e9);
    fault->is_on = fault->kind->end != NULL;
    fault->kind->begin(fault);
    disturb(fault);
    if (fault->is_on)
        sim_at(fault->end_ns, on_end, fault, 0);
}

static const struct fault_kind *draw_kind(void) {
    int total = 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        total += kinds[i].weight;
    int64_t at = (int64_t)sim_below((uint64_t)total);
    const struct fault_kind *kind = kinds;
    while ((at -= kind->weight) >= 0)
        kind++;
    return kind;
}

static int draw_host(bool is_of_daemons, bool is_of_clients) {
    if (is_of_clients)
        return CLUSTER_FIRST_CLIENT_HOST + (int)sim_below((uint64_t)n_clients);
    uint64_t n = (uint64_t)(cluster.n_nodes + (is_of_daemons ? 0 : n_clients)), i = sim_below(n);
    return i < (uint64_t)cluster.n_nodes ? (int)i
                                         : CLUSTER_FIRST_CLIENT_HOST + (int)i - cluster.n_nodes;
}

void faults_begin(int64_t from_ns, int64_t to_ns) {
    memset(&state, 0, sizeof(state));
    state.n = (int)sim_between(0, MAX_FAULTS);
    for (int i = 0; i < state.n; i++) {
        struct fault *fault = &state.faults[i];
        fault->kind = draw_kind();
        fault->host = draw_host(fault->kind->is_of_daemons, fault->kind->is_of_clients);
        do
            fault->other = draw_host(false, false);
        while (fault->other == fault->host);
        int64_t begin_ns = sim_between(from_ns, to_ns - SIM_SECOND / 2);
        int64_t length_ns = sim_chance(400) ? sim_between(SIM_MS, SIM_SECOND)
                                            : sim_between(SIM_MS, fault->kind->max_ns + 1);
        fault->end_ns = MIN(begin_ns + length_ns, to_ns);
        sim_at(begin_ns, on_begin, fault, 0);
    }
}

bool faults_disturbed(int host, int64_t within_ns) {
    for (int i = 0; i < state.n; i++)
        if (state.faults[i].is_on &&
            (state.faults[i].host == host ||
             (state.faults[i].kind->is_of_link && state.faults[i].other == host)))
            return true;
    return state.disturbed_ns[host] != 0 && sim_now_ns() - state.disturbed_ns[host] <= within_ns;
}

int64_t faults_last_change_ns(void) { return state.last_change_ns; }
uint64_t faults_count(void) { return (uint64_t)state.n; }
