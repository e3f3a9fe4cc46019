/* TF_Status: what a call of the C client came to. A status belongs to its caller and serves one
 * thread at a time. Where a function gets NULL in place of its status, nobody learns what the call
 * came to; the functions of training/ that run several steps then do nothing. */
#ifndef MILLRACE_CLIENT_C_STATUS_H
#define MILLRACE_CLIENT_C_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

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

/* The version of this library. */
const char *TF_Version(void);

typedef struct TF_Status TF_Status;
TF_Status *TF_NewStatus(void);
void TF_DeleteStatus(TF_Status *status);
void TF_SetStatus(TF_Status *status, TF_Code code, const char *message);
/* TF_INVALID_ARGUMENT for NULL. */
TF_Code TF_GetCode(const TF_Status *status);
const char *TF_Message(const TF_Status *status); /* valid until the status changes */

#ifdef __cplusplus
}
#endif
#endif
