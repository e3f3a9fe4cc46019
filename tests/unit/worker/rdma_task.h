/* A task of two_tasks.h with a device of fake verbs, or without. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_RDMA_TASK_H
#define MILLRACE_TESTS_UNIT_WORKER_RDMA_TASK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rpc/rdma/rdma_device.h"
#include "tests/unit/rpc/fake_verbs.h"
#include "tests/unit/worker/two_tasks.h"

static inline void task_start_rdma(struct test_task *task, struct loop *loop, const char *name,
                                   enum rdma_mode mode) {
    struct rdma_choice any = {.gid = -1};
    struct rdma_device *device = NULL;
    task_init(task, loop, name);
    task_listen_tcp(task, "127.0.0.1");
    if (mode != RDMA_OFF)
        assert_null(rdma_device_open(loop, &fake_verbs_table, &any, &device));
    peer_table_use_rdma(task->peers, mode, device, "switched off");
}

#endif
