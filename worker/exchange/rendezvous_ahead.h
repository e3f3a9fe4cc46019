/* What grants ahead count (worker/exchange/rendezvous.h). Any thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_AHEAD_H
#define MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_AHEAD_H

#include "common/base/metrics.h"

extern struct metric worker_ahead_granted_total, worker_ahead_arrived_total,
    worker_ahead_sent_total;

#endif
