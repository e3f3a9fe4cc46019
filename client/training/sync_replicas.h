/* MR_SyncReplicas: synchronous replicas, with backup workers [OSDI 4.4, figures 4b and 4c].
 *
 *   replica 0 ─┐ gradients  ┌──────────────┐ the first num_to_aggregate
 *   replica 1 ─┼───────────►│ accumulators │──────────► one step of the optimizer
 *   replica 2 ─┘            └──────────────┘                    │
 *       ▲        tokens with the number of the next step        │
 *       └────────────── token queue ◄───────────────────────────┘
 *
 * Gradients of a step that is over are dropped, so training goes on while some replicas are slow.
 * The operations and shared names are those of tf.compat.v1.train.SyncReplicasOptimizer: a replica
 * in C and one in Python can work on the same variables.
 *
 * Replicas are threads or processes, each with a session of its own. One of them is the chief: it
 * also has a thread that runs MR_SyncUpdate again and again. A builder owns what is made here. One
 * thread at a time per builder. */
#ifndef MILLRACE_CLIENT_TRAINING_SYNC_REPLICAS_H
#define MILLRACE_CLIENT_TRAINING_SYNC_REPLICAS_H

#include "client/training/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_SyncReplicas MR_SyncReplicas;

/* Needs num_to_aggregate gradients of each variable for a step; with num_replicas above it, the
 * others are backup workers. The queue's shared name is "sync_token_q" whatever the prefix, so a
 * cluster trains one such model at a time. */
MR_SyncReplicas *MR_NewSyncReplicas(MR_Builder *builder, MR_Optimizer *optimizer,
                                    MR_Variable *global_step, int num_to_aggregate,
                                    int num_replicas);

/* What one replica runs. */
typedef struct MR_SyncReplica {
    TF_Operation *init;  /* once, after MR_SyncInitialize has run */
    TF_Operation *train; /* in each step: hands in the gradients, and waits for a token */
} MR_SyncReplica;
/* Adds a replica on the device of the builder. Call it once for each replica that is in this
 * graph; all must have gradients of the same variables, else INVALID_ARGUMENT. */
MR_SyncReplica MR_SyncTrain(MR_Builder *builder, MR_SyncReplicas *sync,
                            const MR_Gradient *gradients, int num_gradients);

/* The chief's operations, to be added after MR_SyncTrain. */
/* Waits for gradients, applies their mean, counts the global step, and hands out tokens. Slots are
 * made here, so MR_InitializeAll must follow. */
TF_Operation *MR_SyncUpdate(MR_Builder *builder, MR_SyncReplicas *sync);
/* To be run once, when all variables are initialized or restored. */
TF_Operation *MR_SyncInitialize(MR_Builder *builder, MR_SyncReplicas *sync);
/* Ends the training: replicas that wait for tokens get OUT_OF_RANGE. */
TF_Operation *MR_SyncClose(MR_Builder *builder, MR_SyncReplicas *sync);

#ifdef __cplusplus
}
#endif
#endif
