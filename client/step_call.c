/* The wire form of one step: fields of RunStepRequest and RunStepResponse, by hand.
 * docs/compatibility.md lists them. */
#include "client/step_call.h"

#include <stdlib.h>

#include "client/client_tensor.h"
#include "common/base/clock.h"
#include "common/tensor/tensor_proto.h"

enum {
    SHARE_BYTES = 4096,           /* larger contents are sent by reference */
    FETCH_SPARE_BYTES = 16 << 20, /* what a fetch may need beyond 16 times its bytes */
};

/* ---- the request ---- */

void step_endpoint_name(const char *name, struct str *out) {
    str_addf(out, "%s%s", name, strchr(name, ':') ? "" : ":0");
}

static void add_fetch(struct str *out, const char *name) {
    struct str full = STR_INIT;
    step_endpoint_name(name, &full);
    proto_add_bytes(out, 3, full.data, full.len);
    str_fini(&full);
}

static void add_feed(struct grpc_body *body, const char *name, const struct tensor *value) {
    struct str head = STR_INIT, tensor = STR_INIT, full = STR_INIT;
    size_t content = 0;
    step_endpoint_name(name, &full);
    if (dtype_in((enum dtype)value->dtype, DTYPES_PLAIN)) {
        tensor_proto_head(value, &tensor);
        content = tensor_size_bytes(value);
    } else {
        tensor_to_proto(value, &tensor);
    }
    size_t tensor_len = tensor.len + content;
    proto_add_tag(&head, 2, 2);
    proto_add_varint(&head, 1 + proto_varint_size(full.len) + full.len + 1 +
                                proto_varint_size(tensor_len) + tensor_len);
    proto_add_tag(&head, 1, 2);
    proto_add_varint(&head, full.len);
    str_add_bytes(&head, full.data, full.len);
    proto_add_tag(&head, 2, 2);
    proto_add_varint(&head, tensor_len);
    str_add_bytes(&head, tensor.data, tensor.len);
    grpc_body_add_copy(body, head.data, head.len);
    if (content >= SHARE_BYTES && value->storage == TENSOR_BUFFER)
        grpc_body_add_shared(body, tensor_cdata(value), content, buffer_ref(value->buffer));
    else if (content)
        grpc_body_add_copy(body, tensor_cdata(value), content);
    str_fini(&full);
    str_fini(&head);
    str_fini(&tensor);
}

static void add_str(struct grpc_body *body, const struct str *text) {
    grpc_body_add_copy(body, str_text(text), text->len);
}

void step_request_write(const struct str *session_handle, const struct step_spec *step,
                        struct grpc_body *out) {
    struct str text = STR_INIT;
    proto_add_bytes(&text, 1, session_handle->data, session_handle->len);
    add_str(out, &text);
    for (int i = 0; i < step->ninputs; i++)
        add_feed(out, step->input_names[i], &step->inputs[i]->value);
    str_clear(&text);
    for (int i = 0; i < step->noutputs; i++)
        add_fetch(&text, step->output_names[i]);
    for (int i = 0; i < step->ntargets; i++)
        proto_add_bytes(&text, 4, step->target_names[i], strlen(step->target_names[i]));
    if (step->run_options)
        proto_add_bytes(&text, 5, step->run_options->data, step->run_options->length);
    if (step->handle)
        proto_add_bytes(&text, 6, step->handle, strlen(step->handle));
    proto_add_int(&text, 7, 1);
    proto_add_int(&text, 8, random_u64());
    add_str(out, &text);
    str_fini(&text);
}

/* ---- the reply ---- */

/* RunStepResponse.tensor (1) → NamedTensorProto.tensor (2) → tensor_content (4) */
size_t step_reply_align(struct span head, size_t body_len) {
    static const uint32_t path[] = {1, 2, 4};
    return grpc_find_large(head, body_len, path, ARRAY_LEN(path), SHARE_BYTES);
}

static struct status *take_tensor(struct span named, struct buffer *owner,
                                  const char *const *output_names, TF_Tensor **outputs,
                                  int noutputs) {
    struct proto_field field;
    struct span name = {"", 0}, proto = {"", 0};
    while (proto_next(&named, &field) > 0) {
        if (field.wire_type == 2 && field.number == 1)
            name = field.bytes;
        else if (field.wire_type == 2 && field.number == 2)
            proto = field.bytes;
    }
    for (int i = 0; i < noutputs; i++) {
        size_t len = strlen(output_names[i]);
        bool is_short = !strchr(output_names[i], ':') && name.len == len + 2 &&
                        memcmp(name.data + len, ":0", 2) == 0;
        if (outputs[i] || !(span_is(name, output_names[i]) ||
                            (is_short && memcmp(name.data, output_names[i], len) == 0)))
            continue;
        struct tensor value;
        struct status *st = tensor_proto_check_claim(proto, FETCH_SPARE_BYTES);
        if (!st)
            st = tensor_from_proto(proto, owner, allocator_host(), &value);
        TRY(status_prefix_take(st, "the reply to RunStep, %s: ", output_names[i]));
        outputs[i] = client_tensor_new(&value);
    }
    return NULL;
}

static struct status *read_reply(const struct grpc_message *reply, const char *const *output_names,
                                 TF_Tensor **outputs, int noutputs, TF_Buffer *run_metadata) {
    struct proto_field field;
    struct span body = reply->body, message = {"", 0}, metadata = {NULL, 0};
    int more, code = 0;
    while ((more = proto_next(&body, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            TRY(take_tensor(field.bytes, reply->buffer, output_names, outputs, noutputs));
        else if (field.number == 2 && field.wire_type == 2)
            metadata = field.bytes;
        else if (field.number == 3 && field.wire_type == 0)
            code = (int)field.value;
        else if (field.number == 4 && field.wire_type == 2)
            message = field.bytes;
    }
    if (more < 0)
        return status_internal("the reply to RunStep is malformed");
    if (metadata.data && run_metadata) {
        TF_Buffer *copy = TF_NewBufferFromString(metadata.data, metadata.len);
        *run_metadata = *copy;
        free(copy);
    }
    TRY(status_from_wire(code, message));
    for (int i = 0; i < noutputs; i++)
        if (!outputs[i])
            return status_internal("the reply to RunStep lacks %s", output_names[i]);
    return NULL;
}

struct status *step_reply_take(const struct grpc_message *reply, const char *const *output_names,
                               TF_Tensor **outputs, int noutputs, TF_Buffer *run_metadata) {
    for (int i = 0; i < noutputs; i++)
        outputs[i] = NULL;
    struct status *st = read_reply(reply, output_names, outputs, noutputs, run_metadata);
    for (int i = 0; st && i < noutputs; i++) {
        TF_DeleteTensor(outputs[i]);
        outputs[i] = NULL;
    }
    return st;
}
