/* The metrics of pre-grants (worker/exchange/rendezvous.h). Any thread. */
#ifndef MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_PREGRANT_H
#define MILLRACE_WORKER_EXCHANGE_RENDEZVOUS_PREGRANT_H

#include "common/base/metrics.h"

extern struct metric worker_pregrants_total, worker_pregranted_received_total,
    worker_pregranted_sent_total;

#endif
