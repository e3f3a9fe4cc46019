/* Writes a step's answer: RunStepResponse or RunCallableResponse. Large values are not copied from
 * the workers' replies. */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "master/step/step_internal.h"

void step_add_fetch(struct grpc_body *body, const char *name, const struct fetched *fetched) {
    struct str head = STR_INIT, tensor = STR_INIT;
    size_t content = 0, proto_len;
    bool is_plain = fetched->proto.data == NULL;
    if (is_plain) {
        tensor_proto_head(&fetched->value, &tensor);
        content = tensor_size_bytes(&fetched->value);
        proto_len = tensor.len + content;
    } else {
        proto_len = fetched->proto.len;
    }
    proto_add_tag(&head, 1, 2);
    if (name) { /* NamedTensorProto {name, tensor} */
        size_t name_len = strlen(name);
        proto_add_varint(&head, 1 + proto_varint_size(name_len) + name_len + 1 +
                                    proto_varint_size(proto_len) + proto_len);
        proto_add_bytes(&head, 1, name, name_len);
        proto_add_tag(&head, 2, 2);
    }
    proto_add_varint(&head, proto_len);
    grpc_body_add_copy(body, head.data, head.len);
    if (is_plain) {
        grpc_body_add_copy(body, tensor.data, tensor.len);
        if (content && fetched->value.storage == TENSOR_BUFFER && content > 1024)
            grpc_body_add_shared(body, tensor_cdata(&fetched->value), content,
                                 buffer_ref(fetched->value.buffer));
        else
            grpc_body_add_copy(body, tensor_cdata(&fetched->value), content);
    } else {
        if (fetched->value.storage == TENSOR_BUFFER)
            grpc_body_add_shared(body, fetched->proto.data, fetched->proto.len,
                                 buffer_ref(fetched->value.buffer));
        else
            grpc_body_add_copy(body, fetched->proto.data, fetched->proto.len);
    }
    str_fini(&head);
    str_fini(&tensor);
}

/* RunMetadata {step_stats 1, cost_graph 2, partition_graphs 3}; the messages of several tasks, one
 * behind the other, are one StepStats. */
void step_add_metadata(const struct step *step, struct grpc_body *body) {
    struct str head = STR_INIT;
    size_t stats = step->request.trace_level > 0 ? step->traces_size_bytes : 0, stats_head = 0,
           graphs = step->graphs ? step->graphs->size_bytes : 0, costs_head = 0;
    if (stats > 0)
        stats_head = 1 + proto_varint_size(stats);
    if (step->cost_graph.len > 0)
        costs_head = 1 + proto_varint_size(step->cost_graph.len);
    size_t len = graphs + stats_head + stats + costs_head + step->cost_graph.len;
    if (len == 0)
        return;
    proto_add_tag(&head, 2, 2);
    proto_add_varint(&head, len);
    if (costs_head > 0)
        proto_add_bytes(&head, 2, step->cost_graph.data, step->cost_graph.len);
    grpc_body_add_copy(body, head.data, head.len);
    if (graphs > 0)
        grpc_body_add_shared(body, step->graphs->data, graphs, buffer_ref(step->graphs));
    if (stats > 0) {
        head.len = 0;
        proto_add_tag(&head, 1, 2);
        proto_add_varint(&head, stats);
        grpc_body_add_copy(body, head.data, head.len);
    }
    for (const struct trace *trace = stats > 0 ? step->traces : NULL; trace; trace = trace->next)
        grpc_body_add_shared(body, trace->bytes.data, trace->bytes.len, buffer_ref(trace->buffer));
    str_fini(&head);
}

void step_answer_error(struct grpc_call *call, bool in_body, struct status *status_take) {
    if (!in_body) {
        grpc_call_fail(call, status_take);
        return;
    }
    struct str head = STR_INIT;
    struct grpc_body body;
    const char *message = status_message(status_take);
    proto_add_int(&head, 3, (uint64_t)status_code(status_take));
    proto_add_bytes(&head, 4, message, strlen(message));
    grpc_body_init(&body);
    grpc_body_add_copy(&body, head.data, head.len);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
    str_fini(&head);
    status_unref(status_take);
}

void step_answer(struct step *step, struct status *status_take) {
    if (status_take) {
        step_answer_error(step->call, step->request.store_errors_in_response_body, status_take);
        return;
    }
    struct grpc_body body;
    const struct executable *executable = step->executable;
    grpc_body_init(&body);
    bool by_name = step->form == STEP_FORM_RUN;
    for (int i = 0; i < executable->signature.n_fetches; i++)
        if (!by_name || !executable->is_repeated_fetch[i])
            step_add_fetch(&body, by_name ? executable->signature.fetches[i] : NULL,
                           &step->fetched[i]);
    step_add_metadata(step, &body);
    grpc_call_reply(step->call, &body);
    grpc_body_fini(&body);
}
