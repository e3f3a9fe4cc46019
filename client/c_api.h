/* The C client library: the functions of TensorFlow's C API that a client of a remote master needs,
 * without TensorFlow.
 *
 * A session speaks TensorFlow's client protocol (gRPC) to a Millrace master or to TensorFlow's own
 * server. Graphs are serialized GraphDefs; feeds and fetches are named "node:index". Calls block.
 * Several threads may use a session; their calls wait for each other. A function with the name of
 * one in TensorFlow's tensorflow/c/c_api.h has the same meaning; those with MR_ are our own.
 *
 * Ownership: what a TF_New… or TF_Allocate… returns is freed by its TF_Delete…, which accepts NULL.
 * Each call with a TF_Status sets it (TF_OK on success). */
#ifndef MILLRACE_CLIENT_C_API_H
#define MILLRACE_CLIENT_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---- */

typedef enum TF_Code {
    TF_OK = 0,
    TF_CANCELLED = 1,
    TF_UNKNOWN = 2,
    TF_INVALID_ARGUMENT = 3,
    TF_DEADLINE_EXCEEDED = 4,
    TF_NOT_FOUND = 5,
    TF_ALREADY_EXISTS = 6,
    TF_PERMISSION_DENIED = 7,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_ABORTED = 10,
    TF_OUT_OF_RANGE = 11,
    TF_UNIMPLEMENTED = 12,
    TF_INTERNAL = 13,
    TF_UNAVAILABLE = 14,
    TF_DATA_LOSS = 15,
    TF_UNAUTHENTICATED = 16
} TF_Code;

typedef struct TF_Status TF_Status;
TF_Status *TF_NewStatus(void);
void TF_DeleteStatus(TF_Status *status);
void TF_SetStatus(TF_Status *status, TF_Code code, const char *message);
TF_Code TF_GetCode(const TF_Status *status);
const char *TF_Message(const TF_Status *status); /* valid until the status changes */

/* ---- buffers ---- */

typedef struct TF_Buffer {
    const void *data;
    size_t length;
    void (*data_deallocator)(void *data, size_t length);
} TF_Buffer;
TF_Buffer *TF_NewBuffer(void);
TF_Buffer *TF_NewBufferFromString(const void *data, size_t length); /* copies */
void TF_DeleteBuffer(TF_Buffer *buffer);

/* ---- tensors ---- */

/* TensorFlow's numbers: 1 float, 2 double, 3 int32, 7 string, 9 int64, 10 bool, … */
typedef int TF_DataType;
typedef struct TF_Tensor TF_Tensor;

/* Copies `length` bytes of elements and calls the deallocator (when not NULL) at once. NULL for
 * an unknown dtype, a wrong length or a bad shape. Not for strings: MR_NewStringTensor. */
TF_Tensor *TF_NewTensor(TF_DataType dtype, const int64_t *dims, int num_dims, void *data,
                        size_t length, void (*deallocator)(void *data, size_t length, void *arg),
                        void *arg);
/* The elements are undefined. */
TF_Tensor *TF_AllocateTensor(TF_DataType dtype, const int64_t *dims, int num_dims, size_t length);
void TF_DeleteTensor(TF_Tensor *tensor);
TF_DataType TF_TensorType(const TF_Tensor *tensor);
int TF_NumDims(const TF_Tensor *tensor);
int64_t TF_Dim(const TF_Tensor *tensor, int index);
int64_t TF_TensorElementCount(const TF_Tensor *tensor);
size_t TF_TensorByteSize(const TF_Tensor *tensor);
void *TF_TensorData(const TF_Tensor *tensor); /* not for strings */
/* Strings, element by element. The bytes of MR_StringAt live as long as the tensor. */
TF_Tensor *MR_NewStringTensor(const int64_t *dims, int num_dims, const char *const *data,
                              const size_t *lengths);
const char *MR_StringAt(const TF_Tensor *tensor, int64_t index, size_t *length);

/* ---- sessions ---- */

typedef struct TF_SessionOptions TF_SessionOptions;
TF_SessionOptions *TF_NewSessionOptions(void);
void TF_DeleteSessionOptions(TF_SessionOptions *options);
/* "grpc://host:port", "grpcs://host:port" or "unix:/path" */
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
/* Drops the resources of the containers and closes all sessions of the master. Without a
 * container it drops those of the default containers of all tasks. */
void TF_Reset(const TF_SessionOptions *options, const char **containers, int ncontainers,
              TF_Status *status);

typedef struct TF_DeviceList TF_DeviceList;
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
