/* TF_Buffer: bytes with the function that frees them; serialized messages are handed over so. One
 * thread at a time. */
#ifndef MILLRACE_CLIENT_C_BUFFER_H
#define MILLRACE_CLIENT_C_BUFFER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TF_Buffer {
    const void *data;
    size_t length;
    void (*data_deallocator)(void *data, size_t length);
} TF_Buffer;
TF_Buffer *TF_NewBuffer(void);
/* Copies; NULL where there are no data to copy. */
TF_Buffer *TF_NewBufferFromString(const void *data, size_t length);
void TF_DeleteBuffer(TF_Buffer *buffer);
TF_Buffer TF_GetBuffer(TF_Buffer *buffer); /* its fields; all 0 for NULL */

#ifdef __cplusplus
}
#endif
#endif
