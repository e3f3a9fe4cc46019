/* Writes /stepz: each running step, which tasks it waits for, and what it waits for there.
 *
 * It asks these tasks, and finishes the page when all have replied, or after REPLY_WAIT_MS: a task
 * that does not reply may be the very one that the reader looks for. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "master/service/service_internal.h"
#include "master/step/step.h"
#include "proto/worker.pb-c.h"
#include "rpc/daemon/daemon.h"
#include "rpc/daemon/page.h"

enum {
    REPLY_WAIT_MS = 500,
    MAX_DETAIL_BYTES = 4096,
    STEPS_PER_PAGE = 1000,
};

struct page_call {
    struct task_call call;
    struct step_page *page;
    struct task *task;
    bool is_asked, has_replied;
    Millrace__Steps *steps; /* NULL: none yet, or malformed */
};

struct step_page {
    struct list link; /* of the service's pages that are not finished */
    struct service *service;
    struct admin_reply *reply; /* NULL: the page is logged */
    bool is_json;
    struct loop_timer timer;
    int n_waiting, n_calls;
    struct page_call calls[];
};

static void page_freed(struct loop_timer *timer) {
    free(CONTAINER_OF(timer, struct step_page, timer));
}

/* ---- as text ---- */

/* Appends the lines of a task's reply below the step's. */
static void add_waits(struct str *out, const struct task *task, const char *waits) {
    size_t left = MAX_DETAIL_BYTES;
    for (const char *line = waits; *line;) {
        size_t len = strcspn(line, "\n");
        if (len > left) {
            str_addf(out, "    %s: …\n", task_name(task));
            return;
        }
        str_addf(out, "    %s: %.*s\n", task_name(task), (int)len, line);
        left -= len;
        line += len + (line[len] == '\n');
    }
}

static void add_text_waits(const struct page_call *page_call, const char *waits, struct str *out) {
    if (waits)
        add_waits(out, page_call->task, waits);
    else
        str_addf(out, "    %s: does not reply\n", task_name(page_call->task));
}

/* ---- as JSON ---- */

static void add_json_waits(const struct page_call *page_call, const char *waits, struct str *out) {
    page_open(out, NULL, '{');
    page_text(out, "task", task_name(page_call->task));
    page_text(out, "waits", waits ? waits : "does not reply");
    page_close(out, '}');
}

/* ---- both ---- */

/* Calls `add` with what each task says of the step, NULL for a task that does not reply. */
static void add_details(const struct step_page *page, const struct step *step,
                        void (*add)(const struct page_call *page_call, const char *waits,
                                    struct str *out),
                        struct str *out) {
    for (int i = 0; i < page->n_calls; i++) {
        const struct page_call *page_call = &page->calls[i];
        if (!page_call->is_asked || !step_waits_for(step, page_call->task))
            continue;
        if (!page_call->has_replied)
            add(page_call, NULL, out);
        for (size_t k = 0; page_call->steps && k < page_call->steps->n_step; k++)
            if (page_call->steps->step[k]->step_id == step_id(step))
                add(page_call, page_call->steps->step[k]->waits, out);
    }
}

static void add_step(const struct step_page *page, const struct step *step, struct str *out) {
    double age_s = (double)step_age_ns(step) / 1e9;
    struct str state = STR_INIT;
    step_describe(step, &state);
    if (page->is_json) {
        page_open(out, NULL, '{');
        page_id(out, "step", step_id(step));
        page_text(out, "session", step_session_handle(step));
        page_real(out, "age_seconds", age_s);
        page_text(out, "state", str_text(&state));
        page_open(out, "tasks", '[');
        add_details(page, step, add_json_waits, out);
        page_close(out, ']');
        page_close(out, '}');
    } else {
        str_addf(out, "step %016llx session %s, %.3f s: %s\n", (unsigned long long)step_id(step),
                 step_session_handle(step), age_s, str_text(&state));
        add_details(page, step, add_text_waits, out);
    }
    str_fini(&state);
}

/* Returns how many steps there are. */
static int add_steps(const struct step_page *page, struct str *out) {
    int n = 0;
    LIST_FOR_EACH (link, &page->service->sessions) {
        const struct session *session = LIST_ENTRY(link, struct session, link);
        LIST_FOR_EACH (step_link, &session->steps)
            if (n++ < STEPS_PER_PAGE)
                add_step(page, step_of_session_link(step_link), out);
    }
    return n;
}

static void add_body(const struct step_page *page, struct str *out) {
    if (page->is_json) {
        page_open(out, NULL, '{');
        page_open(out, "steps", '[');
    }
    int n_more = add_steps(page, out) - STEPS_PER_PAGE;
    if (page->is_json) {
        page_more(out, (size_t)MAX(n_more, 0));
        page_close(out, ']');
        page_close(out, '}');
        str_add_char(out, '\n');
    } else if (n_more > 0) {
        str_addf(out, "and %d more steps\n", n_more);
    }
}

static void finish(struct step_page *page) {
    struct str body = STR_INIT;
    add_body(page, &body);
    for (int i = 0; i < page->n_calls; i++) {
        task_call_forget(&page->calls[i].call);
        if (page->calls[i].steps)
            millrace__steps__free_unpacked(page->calls[i].steps, NULL);
    }
    if (page->reply)
        admin_reply_finish(page->reply, 200, &body);
    else
        daemon_log_steps(&body);
    str_fini(&body);
    list_remove(&page->link);
    loop_timer_close(&page->timer, page_freed);
}

static void on_timeout(struct loop_timer *timer) {
    finish(CONTAINER_OF(timer, struct step_page, timer));
}

static void on_steps(struct task_call *call, struct status *status_take,
                     struct wire_message *message) {
    struct page_call *page_call = CONTAINER_OF(call, struct page_call, call);
    struct step_page *page = page_call->page;
    page_call->has_replied = !status_take;
    if (message)
        page_call->steps =
            millrace__steps__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    status_unref(status_take);
    if (--page->n_waiting == 0)
        finish(page);
}

static bool is_awaited(struct service *service, const struct task *task) {
    LIST_FOR_EACH (link, &service->sessions)
        LIST_FOR_EACH (step_link, &LIST_ENTRY(link, struct session, link)->steps)
            if (step_waits_for(step_of_session_link(step_link), task))
                return true;
    return false;
}

static void ask(void *arg, struct task *task, int index) {
    struct step_page *page = arg;
    struct page_call *page_call = &page->calls[index];
    page_call->page = page;
    page_call->task = task;
    page_call->call.on_reply = on_steps;
    if (!is_awaited(page->service, task))
        return;
    page_call->is_asked = true;
    page->n_waiting++;
    task_call_start(task, &page_call->call, &(struct wire_out){.type = WIRE_GET_STEPS});
}

void service_page_steps(struct service *service, struct admin_reply *reply, bool is_json) {
    int n_tasks = service_for_each_task(service, NULL, NULL);
    struct step_page *page = xcalloc(1, sizeof(*page) + (size_t)n_tasks * sizeof(page->calls[0]));
    page->service = service;
    page->reply = reply;
    page->is_json = is_json;
    page->n_calls = n_tasks;
    list_push_back(&service->step_pages, &page->link);
    page->n_waiting = 1; /* the reference of this function */
    loop_timer_init(service->env.loop, &page->timer, on_timeout);
    loop_timer_start(&page->timer, REPLY_WAIT_MS, 0);
    service_for_each_task(service, ask, page);
    if (--page->n_waiting == 0)
        finish(page);
}

void service_end_step_pages(struct service *service) {
    while (!list_is_empty(&service->step_pages))
        finish(LIST_ENTRY(service->step_pages.next, struct step_page, link));
}
