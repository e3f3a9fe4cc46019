/* Sessions of the C client [WP 2]: they create a graph at a master, extend it and run steps. Calls
 * block. Several threads may use a session, and their calls overlap. */
#ifndef MILLRACE_CLIENT_C_SESSION_H
#define MILLRACE_CLIENT_C_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "client/c_buffer.h"
#include "client/c_graph.h"
#include "client/c_status.h"
#include "client/c_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TF_SessionOptions TF_SessionOptions;
TF_SessionOptions *TF_NewSessionOptions(void);
void TF_DeleteSessionOptions(TF_SessionOptions *options);
/* "grpc://host:port", "grpcs://host:port", "unix:/path", or "", the default: a master and a worker
 * inside this process, for this session alone. A process that has forked does not use the sessions
 * of its parent. */
void TF_SetTarget(TF_SessionOptions *options, const char *target);
/* a serialized ConfigProto */
void TF_SetConfig(TF_SessionOptions *options, const void *proto, size_t length, TF_Status *status);
/* How long each call may take; < 0, the default: no limit. */
void MR_SetTimeout(TF_SessionOptions *options, int64_t timeout_ms);

/* For grpcs:// targets: the PEM files of the authorities that vouch for the master (NULL: the
 * system's) and of our own certificate and its key (NULL: none), and the name that the master's
 * certificate must carry (NULL: the target's host; it also has "millrace://CLUSTER/master"). For
 * each that is NULL, $MILLRACE_TLS_CA, _CERT, _KEY or _NAME is used if it is set. */
void MR_SetTls(TF_SessionOptions *options, const char *ca_file, const char *cert_file,
               const char *key_file, const char *name);

typedef struct TF_DeprecatedSession TF_DeprecatedSession;
/* The session connects at the first call that needs the master. Returns NULL and sets the status
 * for a target that is no address. */
TF_DeprecatedSession *TF_NewDeprecatedSession(const TF_SessionOptions *options, TF_Status *status);
void TF_CloseDeprecatedSession(TF_DeprecatedSession *session, TF_Status *status);
/* Closes the session first if it is open. */
void TF_DeleteDeprecatedSession(TF_DeprecatedSession *session, TF_Status *status);
/* Adds the nodes of a serialized GraphDef; the first call creates the session at the master. */
void TF_ExtendGraph(TF_DeprecatedSession *session, const void *graph_def, size_t length,
                    TF_Status *status);
/* Runs one step. `inputs` stay the caller's. On success each outputs[i] is a new tensor of the
 * caller's. A reply without a fetch is TF_INTERNAL. run_options is a serialized RunOptions or NULL;
 * run_metadata receives a serialized RunMetadata, and may be NULL. */
void TF_Run(TF_DeprecatedSession *session, const TF_Buffer *run_options, const char **input_names,
            TF_Tensor **inputs, int ninputs, const char **output_names, TF_Tensor **outputs,
            int noutputs, const char **target_names, int ntargets, TF_Buffer *run_metadata,
            TF_Status *status);
/* A partial run: one step that is fed and fetched in parts. The setup names all feeds, fetches and
 * targets; each TF_PRun gives some of them. *handle is set on success and freed with
 * TF_DeletePRunHandle. */
void TF_PRunSetup(TF_DeprecatedSession *session, const char **input_names, int ninputs,
                  const char **output_names, int noutputs, const char **target_names, int ntargets,
                  const char **handle, TF_Status *status);
void TF_PRun(TF_DeprecatedSession *session, const char *handle, const char **input_names,
             TF_Tensor **inputs, int ninputs, const char **output_names, TF_Tensor **outputs,
             int noutputs, const char **target_names, int ntargets, TF_Status *status);
void TF_DeletePRunHandle(const char *handle);
/* Drops the resources of the containers and closes all sessions of the master. Without a
 * container it drops those of the default containers of all tasks. */
void TF_Reset(const TF_SessionOptions *options, const char **containers, int ncontainers,
              TF_Status *status);

/* ---- sessions of a graph ---- */

typedef struct TF_Session TF_Session;
/* A session of a graph, which may grow: each run first sends the master the operations that were
 * added. Several sessions may have one graph. */
TF_Session *TF_NewSession(TF_Graph *graph, const TF_SessionOptions *options, TF_Status *status);
void TF_CloseSession(TF_Session *session, TF_Status *status);
/* Closes the session first if it is open, and frees it in any case. No other thread may be in a
 * call of the session: TF_CloseSession ends such calls. */
void TF_DeleteSession(TF_Session *session, TF_Status *status);
/* Sends the master the operations that were added, as the next run would. */
void TF_ExtendSession(TF_Session *session, TF_Status *status);
/* As TF_Run, with outputs and operations of the session's graph. */
void TF_SessionRun(TF_Session *session, const TF_Buffer *run_options, const TF_Output *inputs,
                   TF_Tensor *const *input_values, int ninputs, const TF_Output *outputs,
                   TF_Tensor **output_values, int noutputs, const TF_Operation *const *target_opers,
                   int ntargets, TF_Buffer *run_metadata, TF_Status *status);
/* As TF_PRunSetup and TF_PRun. */
void TF_SessionPRunSetup(TF_Session *session, const TF_Output *inputs, int ninputs,
                         const TF_Output *outputs, int noutputs,
                         const TF_Operation *const *target_opers, int ntargets, const char **handle,
                         TF_Status *status);
void TF_SessionPRun(TF_Session *session, const char *handle, const TF_Output *inputs,
                    TF_Tensor *const *input_values, int ninputs, const TF_Output *outputs,
                    TF_Tensor **output_values, int noutputs,
                    const TF_Operation *const *target_opers, int ntargets, TF_Status *status);

/* ---- devices ---- */

typedef struct TF_DeviceList TF_DeviceList;
TF_DeviceList *TF_SessionListDevices(TF_Session *session, TF_Status *status);
TF_DeviceList *TF_DeprecatedSessionListDevices(TF_DeprecatedSession *session, TF_Status *status);
void TF_DeleteDeviceList(TF_DeviceList *list);
int TF_DeviceListCount(const TF_DeviceList *list);
const char *TF_DeviceListName(const TF_DeviceList *list, int index, TF_Status *status);
const char *TF_DeviceListType(const TF_DeviceList *list, int index, TF_Status *status);
int64_t TF_DeviceListMemoryBytes(const TF_DeviceList *list, int index, TF_Status *status);
uint64_t TF_DeviceListIncarnation(const TF_DeviceList *list, int index, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
