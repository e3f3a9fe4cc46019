/* Fuzzes what the client reads of a RunStep reply: any bytes of a server end as tensors, or as a
 * status and no tensor. What was read stays readable after the reply itself is freed, and needs no
 * more memory than the bytes of the reply justify.
 *
 *   input   how many fetches are expected, then the message */
#include "client/step_call.h"

#include <stdlib.h>

#include "tests/fuzz/input_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_GROWTH = 16, SPARE_BYTES = 16 << 20 };

static const char *const names[] = {"a", "b:1", "c:0", "a:0"};

static volatile unsigned sum; /* so that the reads stay */

static void read_elements(TF_Tensor *tensor) {
    const unsigned char *bytes = TF_TensorData(tensor);
    for (size_t i = 0; i < TF_TensorByteSize(tensor); i++)
        sum += bytes[i];
    for (int i = 0; i < TF_NumDims(tensor); i++)
        sum += (unsigned)TF_Dim(tensor, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    in = (struct span){(const char *)data, size};
    unsigned choice = take_byte();
    int n = (int)(choice % (ARRAY_LEN(names) + 1));
    struct buffer *buffer = buffer_alloc(allocator_host(), in.len);
    CHECK(buffer);
    memcpy(buffer->data, in.data, in.len);
    struct grpc_message reply = {buffer, {buffer->data, in.len}};
    if (step_reply_align(reply.body, reply.body.len) > reply.body.len)
        abort();
    TF_Tensor *outputs[ARRAY_LEN(names)] = {NULL};
    TF_Buffer *metadata = choice & 128 ? TF_NewBuffer() : NULL;
    struct status *st = step_reply_take(&reply, names, outputs, n, metadata);
    buffer_unref(buffer);
    for (int i = 0; i < n; i++) {
        if ((st == NULL) != (outputs[i] != NULL))
            abort();
        if (outputs[i]) {
            if (TF_TensorByteSize(outputs[i]) > MAX_GROWTH * in.len + SPARE_BYTES)
                abort();
            read_elements(outputs[i]);
        }
        TF_DeleteTensor(outputs[i]);
    }
    TF_DeleteBuffer(metadata);
    status_unref(st);
    return 0;
}
