/* Keeps the names of this process's listeners, and hands each of them its ends of new pairs. */
#include "rpc/local.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* The lock guards the list of listeners and their sockets that wait. A listener leaves the list
 * before it is closed, so that nobody dials it any more. Its memory is freed by its own task, which
 * may be in the loop's queue at that time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list listeners = {&listeners, &listeners};

struct local_listener {
    struct list link; /* of `listeners` */
    char *name;
    struct loop *loop;
    listener_accept_fn *on_accept;
    void *arg;
    struct loop_task task; /* accepts what waits, or frees a closed listener */
    bool is_posted, is_closed;
    struct list waiting; /* struct dialled.link */
};

/* A socket that waits for its listener. */
struct dialled {
    struct list link;
    int fd;
};

static struct local_listener *find(const char *name) {
    LIST_FOR_EACH (link, &listeners) {
        struct local_listener *listener = LIST_ENTRY(link, struct local_listener, link);
        if (strcmp(listener->name, name) == 0)
            return listener;
    }
    return NULL;
}

/* The lock is held. */
static void post(struct local_listener *listener) {
    if (listener->is_posted)
        return;
    listener->is_posted = true;
    loop_post(listener->loop, &listener->task);
}

static void accept_waiting(struct loop_task *task) {
    struct local_listener *listener = CONTAINER_OF(task, struct local_listener, task);
    struct list batch, *link;
    list_init(&batch);
    pthread_mutex_lock(&lock);
    list_splice_back(&batch, &listener->waiting);
    listener->is_posted = false;
    pthread_mutex_unlock(&lock);
    while ((link = list_pop_front(&batch))) {
        struct dialled *dialled = LIST_ENTRY(link, struct dialled, link);
        if (listener->is_closed)
            close(dialled->fd);
        else
            listener->on_accept(listener->arg, dialled->fd);
        free(dialled);
    }
    if (!listener->is_closed || listener->is_posted)
        return;
    free(listener->name);
    free(listener);
}

struct status *local_listen(struct loop *loop, const char *name, listener_accept_fn *on_accept,
                            void *arg, struct local_listener **ret) {
    struct status *st = NULL;
    pthread_mutex_lock(&lock);
    if (find(name)) {
        st = status_unavailable("listen on local:%s: the name is taken", name);
    } else {
        struct local_listener *listener = xcalloc(1, sizeof *listener);
        listener->name = xstrdup(name);
        listener->loop = loop;
        listener->on_accept = on_accept;
        listener->arg = arg;
        listener->task.run = accept_waiting;
        list_init(&listener->waiting);
        list_push_back(&listeners, &listener->link);
        *ret = listener;
    }
    pthread_mutex_unlock(&lock);
    return st;
}

void local_listener_close(struct local_listener *listener) {
    pthread_mutex_lock(&lock);
    list_remove(&listener->link);
    listener->is_closed = true;
    post(listener);
    pthread_mutex_unlock(&lock);
}

struct status *local_dial(const char *name, int *ret_fd) {
    struct status *st = NULL;
    int ends[2];
    pthread_mutex_lock(&lock);
    struct local_listener *listener = find(name);
    if (!listener) {
        st = status_unavailable("connect to local:%s: nothing in this process listens there", name);
    } else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        st = status_unavailable("connect to local:%s: %s", name, strerror(errno));
    } else {
        struct dialled *dialled = xcalloc(1, sizeof *dialled);
        dialled->fd = ends[1];
        list_push_back(&listener->waiting, &dialled->link);
        post(listener);
        *ret_fd = ends[0];
    }
    pthread_mutex_unlock(&lock);
    return st;
}
