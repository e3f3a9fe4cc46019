/* The training helpers [WP 4.1, OSDI 4]: what a C program needs to build, train and save a model on
 * a cluster. This is the one header that a program includes besides c_api.h. docs/model-in-c.md is
 * the introduction. */
#ifndef MILLRACE_CLIENT_TRAINING_H
#define MILLRACE_CLIENT_TRAINING_H

#include "client/training/builder.h"
#include "client/training/coordinator.h"
#include "client/training/lbfgs.h"
#include "client/training/optimizer.h"
#include "client/training/saver.h"
#include "client/training/schedule.h"
#include "client/training/summary.h"
#include "client/training/sync_replicas.h"
#include "client/training/variable.h"

#endif
