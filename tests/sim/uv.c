/* libuv's calls, for the loops of simulated processes: what rpc/ uses of them, as uv.h says and
 * libuv 1.44 does.
 *
 * One turn: timers → prepare → wait → sockets that are ready, in any order, perhaps not all of
 * them → check → closed handles. */
#include <poll.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

#include <uv.h> /* after base.h, as in rpc/loop.h */

enum { MAX_READY = 256 };

struct handle {
    struct list link; /* loop->handles */
    uv_handle_t *uv;
    bool is_active, is_referenced, is_closing;
    uv_close_cb on_closed;
    int fd, events;                 /* a poll's */
    uint64_t due_ms, repeat_ms, id; /* a timer's */
    bool is_pending;                /* an async's */
};

struct sim_loop {
    uv_loop_t *uv;
    struct sim_process *process;
    struct list handles;
    uint64_t now_ms, n_timers;
};

static struct sim_loop *loop_of(const uv_loop_t *uv) { return uv->internal_fields; }
static struct handle *handle_of(const void *uv) { return ((const uv_handle_t *)uv)->u.reserved[0]; }

/* ---- handles ---- */

static void handle_init(uv_loop_t *loop, void *uv, uv_handle_type type) {
    struct handle *handle = xcalloc(1, sizeof(*handle));
    uv_handle_t *base = uv;
    base->loop = loop;
    base->type = type;
    base->u.reserved[0] = handle;
    handle->uv = base;
    handle->is_referenced = true;
    list_push_back(&loop_of(loop)->handles, &handle->link);
}

void uv_close(uv_handle_t *uv, uv_close_cb on_closed) {
    struct handle *handle = handle_of(uv);
    CHECK(handle && !handle->is_closing);
    handle->is_closing = true;
    handle->is_active = false;
    handle->on_closed = on_closed;
}

int uv_is_closing(const uv_handle_t *uv) { return !handle_of(uv) || handle_of(uv)->is_closing; }
void uv_ref(uv_handle_t *uv) { handle_of(uv)->is_referenced = true; }
void uv_unref(uv_handle_t *uv) { handle_of(uv)->is_referenced = false; }

static bool any_closing(const struct sim_loop *loop) {
    LIST_FOR_EACH (link, &loop->handles)
        if (LIST_ENTRY(link, struct handle, link)->is_closing)
            return true;
    return false;
}

/* What a callback closes waits for the next turn. */
static void run_closing(struct sim_loop *loop) {
    struct list closing;
    list_init(&closing);
    LIST_FOR_EACH_SAFE (link, next, &loop->handles) {
        if (LIST_ENTRY(link, struct handle, link)->is_closing) {
            list_remove(link);
            list_push_back(&closing, link);
        }
    }
    struct list *link;
    while ((link = list_pop_front(&closing))) {
        struct handle *handle = LIST_ENTRY(link, struct handle, link);
        handle->uv->u.reserved[0] = NULL;
        if (handle->on_closed)
            handle->on_closed(handle->uv);
        free(handle);
    }
}

/* ---- loops ---- */

int uv_loop_init(uv_loop_t *uv) {
    struct sim_loop *loop = xcalloc(1, sizeof(*loop));
    memset(uv, 0, sizeof(*uv));
    loop->uv = uv;
    loop->process = sim_current;
    CHECK(loop->process);
    list_init(&loop->handles);
    uv->internal_fields = loop;
    uv_update_time(uv);
    return 0;
}

int uv_loop_close(uv_loop_t *uv) {
    struct sim_loop *loop = loop_of(uv);
    if (!list_is_empty(&loop->handles))
        return UV_EBUSY;
    free(loop);
    return 0;
}

int uv_loop_alive(const uv_loop_t *uv) {
    LIST_FOR_EACH (link, &loop_of(uv)->handles) {
        const struct handle *handle = LIST_ENTRY(link, struct handle, link);
        if (handle->is_closing || (handle->is_active && handle->is_referenced))
            return true;
    }
    return false;
}

void uv_update_time(uv_loop_t *uv) { loop_of(uv)->now_ms = (uint64_t)(sim_now_ns() / SIM_MS); }
uint64_t uv_now(const uv_loop_t *uv) { return loop_of(uv)->now_ms; }
const char *uv_strerror(int error) { return strerror(-error); }

/* ---- async, prepare, check, idle, signals ---- */

int uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb on_async) {
    handle_init(loop, async, UV_ASYNC);
    async->async_cb = on_async;
    handle_of(async)->is_active = true;
    return 0;
}

int uv_async_send(uv_async_t *async) {
    handle_of(async)->is_pending = true;
    sim_process_wake(loop_of(async->loop)->process, 0);
    return 0;
}

int uv_prepare_init(uv_loop_t *loop, uv_prepare_t *prepare) {
    handle_init(loop, prepare, UV_PREPARE);
    return 0;
}

int uv_prepare_start(uv_prepare_t *prepare, uv_prepare_cb on_prepare) {
    prepare->prepare_cb = on_prepare;
    handle_of(prepare)->is_active = true;
    return 0;
}

int uv_check_init(uv_loop_t *loop, uv_check_t *check) {
    handle_init(loop, check, UV_CHECK);
    return 0;
}

int uv_check_start(uv_check_t *check, uv_check_cb on_check) {
    check->check_cb = on_check;
    handle_of(check)->is_active = true;
    return 0;
}

int uv_idle_init(uv_loop_t *loop, uv_idle_t *idle) {
    handle_init(loop, idle, UV_IDLE);
    return 0;
}

int uv_idle_start(uv_idle_t *idle, uv_idle_cb on_idle) {
    handle_of(idle)->is_active = true;
    return 0;
}

int uv_idle_stop(uv_idle_t *idle) {
    handle_of(idle)->is_active = false;
    return 0;
}

int uv_signal_init(uv_loop_t *loop, uv_signal_t *signal) {
    handle_init(loop, signal, UV_SIGNAL);
    return 0;
}

int uv_signal_start(uv_signal_t *signal, uv_signal_cb on_signal, int signo) {
    signal->signal_cb = on_signal;
    signal->signum = signo;
    handle_of(signal)->is_active = true;
    return 0;
}

static bool is_signalled(const struct sim_process *process, const struct handle *handle) {
    return process->signal != 0 && handle->uv->type == UV_SIGNAL && handle->is_active &&
           ((const uv_signal_t *)handle->uv)->signum == process->signal;
}

static void run_hooks(struct sim_loop *loop, uv_handle_type type) {
    LIST_FOR_EACH_SAFE (link, next, &loop->handles) {
        struct handle *handle = LIST_ENTRY(link, struct handle, link);
        if (!handle->is_active || handle->uv->type != type)
            continue;
        if (type == UV_PREPARE)
            ((uv_prepare_t *)handle->uv)->prepare_cb((uv_prepare_t *)handle->uv);
        else
            ((uv_check_t *)handle->uv)->check_cb((uv_check_t *)handle->uv);
    }
}

/* ---- timers ---- */

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer) {
    handle_init(loop, timer, UV_TIMER);
    return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb on_fire, uint64_t timeout_ms,
                   uint64_t repeat_ms) {
    struct handle *handle = handle_of(timer);
    struct sim_loop *loop = loop_of(timer->loop);
    if (handle->is_closing)
        return UV_EINVAL;
    timer->timer_cb = on_fire;
    handle->due_ms = loop->now_ms + timeout_ms;
    handle->repeat_ms = repeat_ms;
    handle->id = loop->n_timers++;
    handle->is_active = true;
    return 0;
}

int uv_timer_stop(uv_timer_t *timer) {
    handle_of(timer)->is_active = false;
    return 0;
}

static struct handle *first_timer(const struct sim_loop *loop) {
    struct handle *first = NULL;
    LIST_FOR_EACH (link, &loop->handles) {
        struct handle *handle = LIST_ENTRY(link, struct handle, link);
        if (handle->uv->type == UV_TIMER && handle->is_active &&
            (!first || handle->due_ms < first->due_ms ||
             (handle->due_ms == first->due_ms && handle->id < first->id)))
            first = handle;
    }
    return first;
}

static void run_timers(struct sim_loop *loop) {
    struct handle *timer;
    while ((timer = first_timer(loop)) && timer->due_ms <= loop->now_ms) {
        uv_timer_t *uv = (uv_timer_t *)timer->uv;
        timer->is_active = false;
        if (timer->repeat_ms > 0)
            uv_timer_start(uv, uv->timer_cb, timer->repeat_ms, timer->repeat_ms);
        uv->timer_cb(uv);
    }
}

/* ---- sockets ---- */

int uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd) {
    handle_init(loop, poll, UV_POLL);
    handle_of(poll)->fd = fd;
    return 0;
}

int uv_poll_start(uv_poll_t *poll, int events, uv_poll_cb on_ready) {
    struct handle *handle = handle_of(poll);
    CHECK(handle && !handle->is_closing);
    poll->poll_cb = on_ready;
    handle->events = events;
    handle->is_active = events != 0;
    return 0;
}

int uv_poll_stop(uv_poll_t *poll) {
    handle_of(poll)->is_active = false;
    return 0;
}

/* What epoll would give a poll handle; a descriptor that is closed gives nothing any more. */
static int ready_events(const struct sim_process *process, const struct handle *handle) {
    if (handle->uv->type != UV_POLL || !handle->is_active)
        return 0;
    const struct sim_socket *socket = process->sockets[handle->fd % SIM_MAX_FDS];
    int wanted = POLLERR | POLLHUP | (handle->events & UV_READABLE ? POLLIN : 0) |
                 (handle->events & UV_WRITABLE ? POLLOUT : 0);
    return socket ? sim_socket_events(socket) & wanted : 0;
}

bool sim_loop_is_ready(const struct sim_loop *loop) {
    LIST_FOR_EACH (link, &loop->handles) {
        const struct handle *handle = LIST_ENTRY(link, struct handle, link);
        if (handle->is_pending || is_signalled(loop->process, handle) ||
            ready_events(loop->process, handle))
            return true;
    }
    return false;
}

static void run_poll(struct sim_process *process, struct handle *handle) {
    int events = ready_events(process, handle);
    uv_poll_t *uv = (uv_poll_t *)handle->uv;
    if (handle->is_closing || !events)
        return;
    if (events & POLLERR) {
        handle->is_active = false;
        uv->poll_cb(uv, UV_EBADF, 0);
        return;
    }
    if (events == POLLHUP) /* as epoll's back-end adds what was asked for */
        events = (handle->events & UV_READABLE ? POLLIN : 0) |
                 (handle->events & UV_WRITABLE ? POLLOUT : 0);
    uv->poll_cb(uv, 0, (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0));
}

/* Handles closed meanwhile stay in memory until run_closing. */
static void run_ready(struct sim_loop *loop) {
    struct handle *ready[MAX_READY];
    size_t n = 0;
    LIST_FOR_EACH (link, &loop->handles) {
        struct handle *handle = LIST_ENTRY(link, struct handle, link);
        if ((handle->is_pending || is_signalled(loop->process, handle) ||
             ready_events(loop->process, handle)) &&
            n < MAX_READY)
            ready[n++] = handle;
    }
    size_t n_taken = n > 1 && sim_chance(200) ? 1 + sim_below(n) : n;
    for (size_t i = 0; i < n_taken; i++) {
        size_t other = i + sim_below(n - i);
        struct handle *handle = ready[other];
        ready[other] = ready[i];
        if (handle->uv->type == UV_POLL) {
            run_poll(loop->process, handle);
        } else if (handle->uv->type == UV_SIGNAL) {
            loop->process->signal = 0;
            ((uv_signal_t *)handle->uv)
                ->signal_cb((uv_signal_t *)handle->uv, ((uv_signal_t *)handle->uv)->signum);
        } else if (handle->is_pending) {
            handle->is_pending = false;
            ((uv_async_t *)handle->uv)->async_cb((uv_async_t *)handle->uv);
        }
    }
}

/* ---- names: hosts are numbers here ---- */

int uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb on_done,
                   const char *node, const char *service, const struct addrinfo *hints) {
    return UV_EAI_NONAME;
}
void uv_freeaddrinfo(struct addrinfo *list) { CHECK(!list); }
int uv_cancel(uv_req_t *request) { return UV_EBUSY; }

/* ---- a turn ---- */

static bool must_not_sleep(const struct sim_loop *loop, uv_run_mode mode) {
    if (mode == UV_RUN_NOWAIT || any_closing(loop) || !uv_loop_alive(loop->uv))
        return true;
    LIST_FOR_EACH (link, &loop->handles) {
        const struct handle *handle = LIST_ENTRY(link, struct handle, link);
        if (handle->is_active && handle->uv->type == UV_IDLE)
            return true;
    }
    return false;
}

static void wait(struct sim_loop *loop, uv_run_mode mode) {
    int64_t deadline_ns = INT64_MAX;
    const struct handle *timer = first_timer(loop);
    if (must_not_sleep(loop, mode))
        deadline_ns = sim_now_ns();
    else if (timer)
        deadline_ns = (int64_t)timer->due_ms * SIM_MS;
    sim_process_park(loop, deadline_ns);
    uv_update_time(loop->uv);
}

int uv_run(uv_loop_t *uv, uv_run_mode mode) {
    struct sim_loop *loop = loop_of(uv);
    while (uv_loop_alive(uv)) {
        uv_update_time(uv);
        run_timers(loop);
        run_hooks(loop, UV_PREPARE);
        wait(loop, mode);
        run_ready(loop);
        run_hooks(loop, UV_CHECK);
        run_closing(loop);
        if (mode == UV_RUN_DEFAULT)
            continue;
        uv_update_time(uv);
        run_timers(loop);
        break;
    }
    return uv_loop_alive(uv);
}
