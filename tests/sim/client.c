/* What a client does: random steps until the last fault, then steps that must succeed, and the end.
 * */
#include "tests/sim/client.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "tests/sim/faults.h"

struct sim_client clients[CLIENT_MAX];
int n_clients;
int64_t clients_settled_ns;

/* Elements of the queues, by value: each was put once, and is taken once at most. */
static struct u64map queued;
enum { WAS_PUT = 1, WAS_TAKEN };

/* From the end of the last fault until a step goes through. */
static const int64_t FLOWS_WITHIN_NS = 2500000000;

/* ---- pieces of steps ---- */

struct place {
    int k, w; /* a ps task, a worker */
};

static struct place draw_place(void) {
    return (struct place){.k = (int)sim_below((uint64_t)cluster.n_ps),
                          .w = (int)sim_below((uint64_t)cluster.n_workers)};
}

static uint32_t bit_of(const struct cluster_node *node) { return 1u << (node - cluster.nodes); }
static uint32_t tasks_of(struct place at) {
    return bit_of(cluster_ps(at.k)) | bit_of(cluster_worker(at.w));
}

static const char *name_of(char *buffer, size_t size, const char *prefix, struct place at) {
    snprintf(buffer, size, "%s%d_%d", prefix, at.k, at.w);
    return buffer;
}

static int64_t draw_timeout_ms(void) { return sim_chance(100) ? sim_between(1, 50) : 0; }

/* What is known of a task that has restarted since: nothing is left. */
static void review(struct sim_client *client, int k) {
    const struct cluster_node *node = cluster_ps(k);
    if (client->model_changes[k] == node->n_changes)
        return;
    client->model_changes[k] = node->n_changes;
    model_lose(&client->counters[k]);
    model_lose(&client->large[k]);
}

static enum model_outcome outcome_of(const struct sim_client *client, bool is_done) {
    if (is_done)
        return MODEL_DONE;
    bool is_unset = TF_GetCode(client->status) == TF_FAILED_PRECONDITION &&
                    strstr(TF_Message(client->status), "uninitialized");
    return is_unset ? MODEL_WAS_UNSET : MODEL_UNKNOWN;
}

static void learn(struct sim_client *client, struct model *model, const struct client_step *step,
                  int k, enum model_op op, bool is_done, double result) {
    bool may_be_lost = client_saw_change(client, cluster_ps(k));
    struct model before = *model;
    enum model_outcome outcome = outcome_of(client, is_done);
    client->model_changes[k] = cluster_ps(k)->n_changes;
    if (may_be_lost) { /* the other variable there */
        struct model *other =
            model == &client->counters[k] ? &client->large[k] : &client->counters[k];
        model_lose(other);
    }
    if (model_apply(model, op, step->feed, outcome, (int64_t)result, may_be_lost))
        return;
    sim_fail("%s: %s at ps %d answers %s, %lld (fed %lld), which cannot be: %d values were "
             "possible, %lld to %lld",
             client->name, step->label, k,
             outcome == MODEL_DONE ? "OK" : "that it is not initialized", (long long)result,
             (long long)step->feed, before.n, (long long)before.values[0],
             (long long)before.values[before.n - 1]);
}

/* ---- steps ---- */

static bool set_counter(struct sim_client *client, struct place at) {
    char target[32];
    struct client_step step = {.label = "init",
                               .has_feed = true,
                               .feed = client->next_value += 1000,
                               .tasks = tasks_of(at),
                               .n_targets = 1};
    step.targets[0] = name_of(target, sizeof(target), "init", at);
    bool is_done = client_run(client, &step);
    learn(client, &client->counters[at.k], &step, at.k, MODEL_SET, is_done, 0);
    return is_done;
}

static bool add_to_counter(struct sim_client *client, struct place at, int64_t timeout_ms) {
    char fetch[32];
    struct client_step step = {.label = "add",
                               .has_feed = true,
                               .feed = sim_between(1, 5),
                               .tasks = tasks_of(at),
                               .n_fetches = 1};
    step.fetches[0] = name_of(fetch, sizeof(fetch), "got", at);
    step.timeout_ms = timeout_ms;
    bool is_done = client_run(client, &step);
    learn(client, &client->counters[at.k], &step, at.k, MODEL_ADD, is_done, step.values[0]);
    if (outcome_of(client, is_done) == MODEL_WAS_UNSET)
        return set_counter(client, at);
    return is_done;
}

static bool read_counter(struct sim_client *client, struct place at) {
    char fetch[32];
    struct client_step step = {.label = "read", .tasks = tasks_of(at), .n_fetches = 1};
    step.fetches[0] = name_of(fetch, sizeof(fetch), "read", at);
    bool is_done = client_run(client, &step);
    learn(client, &client->counters[at.k], &step, at.k, MODEL_READ, is_done, step.values[0]);
    return is_done;
}

/* Without a worker: nobody but the master can notice that the task is silent. */
static void peek(struct sim_client *client, struct place at) {
    char fetch[32];
    struct client_step step = {.label = "peek", .tasks = bit_of(cluster_ps(at.k)), .n_fetches = 1};
    snprintf(fetch, sizeof(fetch), "peek%d", at.k);
    step.fetches[0] = fetch;
    bool is_done = client_run(client, &step);
    learn(client, &client->counters[at.k], &step, at.k, MODEL_READ, is_done, step.values[0]);
}

/* Both ps tasks in one step: each does its part once, or the step fails. */
static void add_to_both(struct sim_client *client, struct place at) {
    char names[2][32];
    struct client_step step = {.label = "add to both",
                               .has_feed = true,
                               .feed = sim_between(1, 5),
                               .n_fetches = cluster.n_ps};
    for (int k = 0; k < cluster.n_ps; k++) {
        struct place there = {.k = k, .w = at.w};
        step.fetches[k] = name_of(names[k], sizeof(names[k]), "got", there);
        step.tasks |= tasks_of(there);
    }
    bool is_done = client_run(client, &step);
    bool is_unset = outcome_of(client, is_done) == MODEL_WAS_UNSET;
    for (int k = 0; k < cluster.n_ps; k++) {
        struct model *counter = &client->counters[k];
        if (is_unset) { /* one of them is; the other may have been added to */
            bool may_be_lost = client_saw_change(client, cluster_ps(k));
            client->model_changes[k] = cluster_ps(k)->n_changes;
            CHECK(model_apply(counter, MODEL_ADD, step.feed, MODEL_UNKNOWN, 0, may_be_lost));
        } else {
            learn(client, counter, &step, k, MODEL_ADD, is_done, step.values[k]);
        }
    }
}

static void put_large(struct sim_client *client, struct place at) {
    char target[32];
    struct client_step step = {.label = "put",
                               .has_feed = true,
                               .feed = sim_between(1, 1000),
                               .tasks = tasks_of(at),
                               .n_targets = 1};
    step.targets[0] = name_of(target, sizeof(target), "put", at);
    step.timeout_ms = draw_timeout_ms();
    bool is_done = client_run(client, &step);
    learn(client, &client->large[at.k], &step, at.k, MODEL_SET, is_done, 0);
}

static void take_large(struct sim_client *client, struct place at) {
    char fetch[32];
    struct client_step step = {
        .label = "take", .tasks = tasks_of(at), .n_fetches = 1, .timeout_ms = draw_timeout_ms()};
    step.fetches[0] = name_of(fetch, sizeof(fetch), "sum", at);
    bool is_done = client_run(client, &step);
    learn(client, &client->large[at.k], &step, at.k, MODEL_READ, is_done, step.values[0]);
}

static void enqueue(struct sim_client *client, struct place at) {
    char target[32];
    struct client_step step = {.label = "enqueue",
                               .has_feed = true,
                               .tasks = tasks_of(at),
                               .n_targets = 1,
                               .timeout_ms = sim_between(20, 1000)};
    step.feed = ++client->next_value + 100000000 * (client->index + 1);
    step.targets[0] = name_of(target, sizeof(target), "enqueue", at);
    u64map_put(&queued, (uint64_t)step.feed, (void *)(uintptr_t)WAS_PUT);
    client_run(client, &step);
}

static void dequeue(struct sim_client *client, struct place at) {
    char fetch[32];
    struct client_step step = {.label = "dequeue",
                               .tasks = tasks_of(at),
                               .n_fetches = 1,
                               .timeout_ms = sim_between(20, 1000)};
    step.fetches[0] = name_of(fetch, sizeof(fetch), "dequeue", at);
    if (!client_run(client, &step))
        return;
    uint64_t value = (uint64_t)(int64_t)step.values[0];
    uintptr_t was = (uintptr_t)u64map_get(&queued, value);
    if (was != WAS_PUT)
        sim_fail("%s: dequeued %llu, which %s", client->name, (unsigned long long)value,
                 was == WAS_TAKEN ? "was taken before" : "nobody put there");
    u64map_put(&queued, value, (void *)(uintptr_t)WAS_TAKEN);
}

static bool run_loop(struct sim_client *client, struct place at, int64_t timeout_ms) {
    char fetch[32];
    struct client_step step = {.label = "loop",
                               .has_feed = true,
                               .feed = sim_between(0, 30),
                               .tasks = tasks_of(at),
                               .n_fetches = 1};
    step.fetches[0] = name_of(fetch, sizeof(fetch), "loop", at);
    step.timeout_ms = timeout_ms;
    bool is_done = client_run(client, &step);
    if (is_done && (int64_t)step.values[0] != step.feed)
        sim_fail("%s: a loop of %lld iterations counted to %g", client->name, (long long)step.feed,
                 step.values[0]);
    return is_done;
}

static void run_partial(struct sim_client *client, struct place at) {
    char first[32], second[32];
    struct client_step step = {.label = "partial", .tasks = tasks_of(at), .n_fetches = 2};
    const char *feeds[2] = {"x:0", "y:0"};
    int64_t values[2] = {sim_between(1, 1000), sim_between(1, 1000)};
    step.fetches[0] = name_of(first, sizeof(first), "first", at);
    step.fetches[1] = name_of(second, sizeof(second), "second", at);
    int n_calls = sim_chance(150) ? 1 : 2;
    if (!client_run_partial(client, &step, feeds, values, n_calls))
        return;
    if ((int64_t)step.values[0] != values[0] + 1 ||
        (n_calls == 2 && (int64_t)step.values[1] != values[0] + 1 + values[1]))
        sim_fail("%s: a partial run fed %lld and %lld gives %g and %g", client->name,
                 (long long)values[0], (long long)values[1], step.values[0], step.values[1]);
}

static void run_bad(struct sim_client *client, struct place at) {
    char fetches[2][32];
    struct client_step step = {
        .label = "bad", .has_feed = true, .feed = 7, .tasks = tasks_of(at), .n_fetches = 2};
    step.fetches[0] = name_of(fetches[0], sizeof(fetches[0]), "bad", at);
    step.fetches[1] = name_of(fetches[1], sizeof(fetches[1]), "sum", at);
    if (client_run(client, &step))
        sim_fail("%s: a division by zero came out as %g", client->name, step.values[0]);
}

static void extend(struct sim_client *client, struct place at) {
    char fetch[32];
    struct client_step step = {.label = "more", .tasks = bit_of(cluster_worker(0)), .n_fetches = 1};
    if (!client_extend(client))
        return;
    snprintf(fetch, sizeof(fetch), "more%llu", (unsigned long long)client->n_extensions);
    step.fetches[0] = fetch;
    if (client_run(client, &step) && (uint64_t)step.values[0] != client->n_extensions)
        sim_fail("%s: node %s is %g", client->name, fetch, step.values[0]);
}

static void renew(struct sim_client *client, struct place at) { client_close_session(client); }
static void add_once(struct sim_client *client, struct place at) {
    add_to_counter(client, at, draw_timeout_ms());
}
static void read_once(struct sim_client *client, struct place at) { read_counter(client, at); }
static void loop_once(struct sim_client *client, struct place at) {
    run_loop(client, at, draw_timeout_ms());
}

static const struct action {
    void (*act)(struct sim_client *client, struct place at);
    int weight;
} actions[] = {
    {add_once, 30},   {read_once, 10}, {peek, 10},   {add_to_both, 10}, {put_large, 10},
    {take_large, 10}, {enqueue, 8},    {dequeue, 8}, {loop_once, 8},    {run_partial, 6},
    {run_bad, 4},     {extend, 3},     {renew, 2},
};

static void act(struct sim_client *client) {
    int total = 0;
    struct place at = draw_place();
    for (size_t i = 0; i < ARRAY_LEN(actions); i++)
        total += actions[i].weight;
    int64_t n = (int64_t)sim_below((uint64_t)total);
    const struct action *action = actions;
    while ((n -= action->weight) >= 0)
        action++;
    for (int k = 0; k < cluster.n_ps; k++)
        review(client, k);
    action->act(client, at);
}

/* ---- a life ---- */

static bool is_time_to_flow(void) {
    return sim_now_ns() > clients_settled_ns + FLOWS_WITHIN_NS && !cluster_master_vanished_lately();
}

/* After the last fault: each pair of tasks has to work again soon, and then always. */
static void make_sure(struct sim_client *client) {
    for (int k = 0; k < cluster.n_ps; k++) {
        for (int w = 0; w < cluster.n_workers; w++) {
            struct place at = {.k = k, .w = w};
            for (;;) {
                review(client, k);
                if (client_ensure_session(client) && add_to_counter(client, at, 0))
                    break;
                if (is_time_to_flow() && TF_GetCode(client->status) != TF_ABORTED)
                    sim_fail("%s: %.1f s after the last fault no step flows between ps %d and "
                             "worker %d: %s",
                             client->name, (double)(sim_now_ns() - clients_settled_ns) / 1e9, k, w,
                             TF_Message(client->status));
                sim_sleep(100 * SIM_MS);
            }
            if (!read_counter(client, at) || !run_loop(client, at, 0))
                if (is_time_to_flow())
                    sim_fail("%s: a step fails though nothing is wrong: %s", client->name,
                             TF_Message(client->status));
        }
    }
}

static void live(void *arg) {
    struct sim_client *client = arg;
    sim_sleep(sim_between(300, 800) * SIM_MS); /* the daemons have started by then */
    while (clients_settled_ns == 0) {
        if (client_ensure_session(client))
            act(client);
        else
            sim_sleep(sim_between(50 * SIM_MS, 500 * SIM_MS));
        sim_sleep(sim_chance(500) ? sim_between(0, 2 * SIM_MS) : sim_between(SIM_MS, 400 * SIM_MS));
    }
    make_sure(client);
    client_close_session(client);
    client->is_done = true;
}

void clients_begin(void) {
    char target[64];
    memset(clients, 0, sizeof(clients));
    u64map_init(&queued);
    clients_settled_ns = 0;
    n_clients = (int)sim_between(1, 4);
    snprintf(target, sizeof(target), "grpc://10.0.0.1:%d", CLUSTER_MASTER_PORT);
    for (int i = 0; i < n_clients; i++) {
        struct sim_client *client = &clients[i];
        client->index = i;
        snprintf(client->name, sizeof(client->name), "client %d", i);
        client->options = TF_NewSessionOptions();
        client->status = TF_NewStatus();
        TF_SetTarget(client->options, target);
        for (int k = 0; k < CLUSTER_MAX_PS; k++) {
            model_init(&client->counters[k]);
            model_init(&client->large[k]);
        }
        client->process =
            sim_process_new(client->name, CLUSTER_FIRST_CLIENT_HOST + i, live, client);
    }
}

bool clients_are_done(void) {
    for (int i = 0; i < n_clients; i++)
        if (!clients[i].is_done && clients[i].process->is_alive)
            return false;
    return true;
}

void clients_settle(void) { clients_settled_ns = sim_now_ns(); }
