/* Serves grpc.health.v1.Health, which load balancers, grpc_health_probe and a kubelet's gRPC probe
 * call.
 *
 *   Check   HealthCheckRequest{service 1} → HealthCheckResponse{status 1: SERVING 1, NOT_SERVING 2}
 *           NOT_FOUND for an unknown service
 *   Watch   the same at once and after each change, until the client cancels; SERVICE_UNKNOWN 3 for
 *           an unknown service
 *
 * Source: the gRPC health checking protocol. Loop thread. Internal to rpc/grpc. */
#ifndef MILLRACE_RPC_GRPC_GRPC_HEALTH_H
#define MILLRACE_RPC_GRPC_GRPC_HEALTH_H

#include "rpc/grpc/grpc_server.h"

struct grpc_health;

/* Adds its methods to the server's. */
struct grpc_health *grpc_health_new(struct grpc_server *server);
bool grpc_health_owns(const struct grpc_method *method);
/* The next three accept NULL. Review: tells the watchers when the state has changed. */
void grpc_health_review(struct grpc_health *health);
void grpc_health_stop(struct grpc_health *health); /* the server drains: ends the watchers' calls */
void grpc_health_free(struct grpc_health *health); /* after the last call has ended */

#endif
