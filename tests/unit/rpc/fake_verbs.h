/* An RDMA device made of memory: the table of rpc/rdma/verbs.h over queue pairs that copy within
 * the process. It is as strict as hardware about keys, ranges, protection domains, rights and
 * states, and it fails or delays calls when a test wants that.
 *
 * A dmabuf is a file that can be mapped; the descriptor's position is where the dmabuf begins. What
 * is written into one is there after fake_verbs_flush_writes only, as a GPU's memory shows writes
 * late.
 *
 * Writes are carried out at once; while is_held is set, fake_verbs_run carries out as many as it is
 * told. Loop thread, except for registering. */
#ifndef MILLRACE_TESTS_UNIT_RPC_FAKE_VERBS_H
#define MILLRACE_TESTS_UNIT_RPC_FAKE_VERBS_H

#include "rpc/rdma/verbs.h"

struct fake_gid {
    uint8_t raw[16];
    uint32_t type; /* IBV_GID_TYPE_… */
};

struct fake_port {
    const char *device;
    enum ibv_transport_type transport;
    enum ibv_port_state state;
    bool is_infiniband;
    uint16_t lid;
    enum ibv_mtu mtu;
    uint32_t max_message_bytes;
    struct fake_gid gids[4];
    int n_gids;
};

struct fake_verbs {
    struct fake_port ports[4]; /* a device each */
    int n_ports;
    bool is_held;                /* writes wait for fake_verbs_run */
    bool is_silent;              /* the network carries nothing: writes end with RETRY_EXC */
    bool is_damaging;            /* it carries other bytes */
    int n_registrations_to_fail; /* the next ones that may be written by peers; -1: all */
    int n_sources_to_fail;       /* the next ones that may not */
    int dmabuf_error;            /* registering a dmabuf fails with this; 0: it does not */
    /* registrations wait until it is off again (fake_verbs_let_register) */
    bool is_registering_held;
    /* "create_qp", "modify_qp", "alloc_pd", "create_cq", "post_send": fails */
    const char *failing_call;
    /* counted */
    _Atomic int n_regions; /* that live; tests look without the lock */
    int n_queue_pairs, n_domains;
    uint64_t n_registered, n_writes, n_numbers;
    int n_unflushed; /* writes into dmabufs that are not there yet */
    uint32_t largest_write_bytes;
    int n_waiting; /* writes that are held */
};

extern struct fake_verbs fake_verbs;
extern const struct verbs fake_verbs_table;

void fake_verbs_reset(void); /* one RoCE device of MTU 4096 */
void fake_verbs_run(int n);  /* held writes; -1: all */
void fake_verbs_let_register(void);
void fake_verbs_flush_writes(void); /* any thread */
/* A completion on each queue pair that receives, as if a write with that number had come. */
void fake_verbs_forge_number(uint32_t number);
/* Breaks each queue pair that receives. */
void fake_verbs_break_receivers(void);

#endif
