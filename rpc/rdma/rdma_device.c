/* Opens the RDMA device of this process, and runs jobs on its thread. */
#include "rpc/rdma/rdma_device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "rpc/rdma/rdma_queue.h"

/* ---- the end ---- */

static void device_free(struct rdma_device *device) {
    const struct verbs *verbs = device->verbs;
    pool_free(device->thread);
    rdma_regions_free(device->regions);
    if (device->send_pd)
        CHECK(verbs->dealloc_pd(device->send_pd) == 0);
    if (device->completions)
        verbs->destroy_comp_channel(device->completions);
    if (device->port.context)
        verbs->close_device(device->port.context);
    status_unref(device->broken);
    free(device);
}

static void on_poll_closed(uv_handle_t *handle) {
    struct rdma_device *device = handle->data;
    if (--device->n_open_polls == 0)
        device_free(device);
}

static void close_when_done(struct rdma_device *device) {
    if (!device->is_closing || device->n_holders > 0)
        return;
    uv_close((uv_handle_t *)&device->completions_poll, on_poll_closed);
    uv_close((uv_handle_t *)&device->events_poll, on_poll_closed);
}

void rdma_device_hold(struct rdma_device *device) { device->n_holders++; }

void rdma_device_release(struct rdma_device *device) {
    device->n_holders--;
    close_when_done(device);
}

void rdma_device_close(struct rdma_device *device) {
    if (!device || device->is_closing)
        return;
    device->is_closing = true;
    close_when_done(device);
}

/* ---- completions and events ---- */

/* The descriptors do not block: reading an empty one returns an error. */
static void on_completions(uv_poll_t *poll, int error, int events) {
    struct rdma_device *device = poll->data;
    struct ibv_cq *cq;
    void *queue;
    rdma_device_hold(device);
    while (device->verbs->get_cq_event(device->completions, &cq, &queue) == 0) {
        device->verbs->ack_cq_events(cq, 1);
        rdma_queue_on_event(queue);
    }
    rdma_device_release(device);
}

static bool is_fatal(enum ibv_event_type type) {
    return type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_CQ_ERR;
}

/* Each queue learns of its own errors from its completions. Here the event is only logged, and no
 * queue is opened on the device while it is broken. */
static void on_events(uv_poll_t *poll, int error, int events) {
    struct rdma_device *device = poll->data;
    struct ibv_async_event event;
    while (device->verbs->get_async_event(device->port.context, &event) == 0) {
        const char *words = device->verbs->event_type_str(event.event_type);
        log_event(EVENT_RDMA_DEVICE, "RDMA device %s: %s", device->port.name, words);
        if (is_fatal(event.event_type) && !device->broken)
            device->broken = status_unavailable("RDMA device %s: %s", device->port.name, words);
        else if (event.event_type == IBV_EVENT_PORT_ACTIVE) {
            status_unref(device->broken);
            device->broken = NULL;
        }
        device->verbs->ack_async_event(&event);
    }
}

static struct status *watch(struct rdma_device *device, uv_poll_t *poll, int fd,
                            uv_poll_cb callback) {
    int flags = fcntl(fd, F_GETFL), error = 0;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return status_unavailable("RDMA device %s: %s", device->port.name, strerror(errno));
    if ((error = uv_poll_init(loop_uv(device->loop), poll, fd)) != 0)
        return status_unavailable("RDMA device %s: %s", device->port.name, uv_strerror(error));
    poll->data = device;
    device->n_open_polls++;
    CHECK(uv_poll_start(poll, UV_READABLE, callback) == 0);
    return NULL;
}

/* ---- the beginning ---- */

static struct status *open_parts(struct rdma_device *device) {
    const struct verbs *verbs = device->verbs;
    struct ibv_context *context = device->port.context;
    device->send_pd = verbs->alloc_pd(context);
    device->completions = device->send_pd ? verbs->create_comp_channel(context) : NULL;
    if (!device->completions)
        return status_exhausted("RDMA device %s: %s", device->port.name, strerror(errno));
    TRY(watch(device, &device->completions_poll, device->completions->fd, on_completions));
    return watch(device, &device->events_poll, context->async_fd, on_events);
}

struct status *rdma_device_open(struct loop *loop, const struct verbs *verbs,
                                const struct rdma_choice *choice, struct rdma_device **ret) {
    struct rdma_device *device = xcalloc(1, sizeof(*device));
    device->verbs = verbs;
    device->loop = loop;
    struct status *st = rdma_port_choose(verbs, choice, &device->port);
    if (!st)
        st = open_parts(device);
    /* Only the second descriptor could not be polled, so the first has to be stopped. */
    if (st && device->n_open_polls > 0)
        uv_close((uv_handle_t *)&device->completions_poll, on_poll_closed);
    else if (st)
        device_free(device);
    if (st)
        return st;
    device->thread = pool_new_io(1);
    device->regions = rdma_regions_new(verbs, device->send_pd, RDMA_REGIONS_MAX_BYTES);
    *ret = device;
    return NULL;
}

void rdma_device_set_exporter(struct rdma_device *device, struct rdma_exporter *exporter) {
    device->exporter = exporter;
    rdma_regions_set_exporter(device->regions, exporter);
}

/* ---- jobs ---- */

static void on_job_done(struct loop_task *task) {
    struct rdma_job *job = CONTAINER_OF(task, struct rdma_job, done_task);
    struct rdma_device *device = job->device;
    job->done(job);
    rdma_device_release(device);
}

static void on_job(struct pool_task *task) {
    struct rdma_job *job = CONTAINER_OF(task, struct rdma_job, work_task);
    job->work(job);
    loop_post(job->device->loop, &job->done_task);
}

void rdma_device_submit(struct rdma_device *device, struct rdma_job *job) {
    job->device = device;
    job->work_task.run = on_job;
    job->done_task.run = on_job_done;
    rdma_device_hold(device);
    pool_submit(device->thread, &job->work_task);
}

void rdma_device_describe(struct rdma_device *device, struct str *out) {
    char gid[INET6_ADDRSTRLEN] = "";
    (void)inet_ntop(AF_INET6, device->port.gid.raw, gid, sizeof(gid));
    str_addf(out,
             "{\"device\":\"%s\",\"port\":%d,\"gid_index\":%u,\"gid\":\"%s\",\"link\":\"%s\","
             "\"mtu\":%d,\"max_message_bytes\":%u,\"regions\":",
             device->port.name, (int)device->port.number, (unsigned)device->port.gid_index, gid,
             device->port.is_ethernet ? "RoCE v2" : "InfiniBand", 128 << device->port.mtu,
             (unsigned)device->port.max_message_bytes);
    rdma_regions_describe(device->regions, out);
    str_add_char(out, '}');
}
