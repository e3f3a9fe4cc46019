/* MR_Coordinator: lets the threads of a program stop together [OSDI 4.3]. The first that fails
 * asks all to stop, and its error is kept.
 *
 *   MR_Coordinator *c = MR_NewCoordinator();
 *   MR_StartThread(c, replica, &arguments[i], status);     each loops until MR_ShouldStop(c)
 *   MR_Join(c, status);
 *
 * Any thread may call any function, except that one thread joins, and deletes after it. */
#ifndef MILLRACE_CLIENT_TRAINING_COORDINATOR_H
#define MILLRACE_CLIENT_TRAINING_COORDINATOR_H

#include <stdint.h>

#include "client/c_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_Coordinator MR_Coordinator;
MR_Coordinator *MR_NewCoordinator(void);
/* Asks for a stop and waits for the threads first. Not from one of them. */
void MR_DeleteCoordinator(MR_Coordinator *coordinator);

/* Asks all threads to stop; `status` may be NULL. An error is kept, unless the stop was asked for
 * before: what fails then follows from the stop. OUT_OF_RANGE is the end of a queue, so it only
 * stops. */
void MR_RequestStop(MR_Coordinator *coordinator, const TF_Status *status);
unsigned char MR_ShouldStop(MR_Coordinator *coordinator);
/* Waits until a stop is asked for, at most timeout_ms (< 0: no limit), and says whether it was. For
 * threads that do something now and then, as saving. */
unsigned char MR_WaitForStop(MR_Coordinator *coordinator, int64_t timeout_ms);

/* Starts a thread. It sets its own status; when it returns, an error asks all to stop. Errors:
 * FAILED_PRECONDITION after MR_Join; RESOURCE_EXHAUSTED when there can be no more threads. */
void MR_StartThread(MR_Coordinator *coordinator,
                    void (*run)(MR_Coordinator *coordinator, void *arg, TF_Status *status),
                    void *arg, TF_Status *status);
/* Waits until all threads have returned, and sets `status` to the first error. */
void MR_Join(MR_Coordinator *coordinator, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
