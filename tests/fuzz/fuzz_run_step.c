/* RunStepRequest and its feeds: any bytes are refused or read, within the memory that they have. */
#include <stddef.h>
#include <stdint.h>

#include "common/tensor/tensor_proto.h"
#include "master/request/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena arena;
    struct run_step_request request;
    struct span body = {(const char *)data, size};
    arena_init(&arena);
    struct status *st = run_step_request_parse(body, &arena, &request);
    for (int i = 0; !st && i < request.n_feeds; i++) {
        struct tensor value = TENSOR_INIT;
        status_unref(tensor_from_proto(request.feed_protos[i], NULL, allocator_host(), &value));
        tensor_clear(&value);
    }
    if (!st)
        (void)run_step_request_key(&request, &arena);
    (void)run_step_request_align((struct span){body.data, MIN(body.len, (size_t)4096)}, size);
    status_unref(st);
    arena_fini(&arena);
    return 0;
}
