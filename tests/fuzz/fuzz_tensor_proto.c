/* Tensors from strangers: every TensorProto decodes or is refused, and what decodes survives our
 * own encoding. */
#include "common/tensor/tensor_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LIMIT_BYTES = 64 << 20 }; /* a message may claim any size */
    struct allocator *allocator = allocator_host_new("fuzz", LIMIT_BYTES);
    struct tensor t, again;
    struct str out = STR_INIT;
    struct status *st =
        tensor_from_proto((struct span){(const char *)data, size}, NULL, allocator, &t);
    if (!st && tensor_size_bytes(&t) <= 1 << 20) {
        tensor_print(&t, 100, &out);
        str_clear(&out);
        tensor_to_proto(&t, &out);
        CHECK(out.len == tensor_proto_size(&t));
        struct status *st_again =
            tensor_from_proto((struct span){out.data, out.len}, NULL, allocator, &again);
        CHECK(st_again == NULL);
        CHECK(t.dtype == DT_RESOURCE || t.dtype == DT_VARIANT || tensor_equal(&t, &again));
        tensor_clear(&again);
    }
    if (!st)
        tensor_clear(&t);
    status_unref(st);
    str_fini(&out);
    allocator_host_free(allocator);
    return 0;
}
