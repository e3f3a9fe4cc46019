/* Reads operations: names, inputs, outputs, and who uses them. */
#include "client/c_graph_internal.h"

const char *TF_OperationName(TF_Operation *oper) { return oper ? oper->node->name : ""; }
const char *TF_OperationOpType(TF_Operation *oper) { return oper ? oper->node->op_name : ""; }
const char *TF_OperationDevice(TF_Operation *oper) { return oper ? oper->node->device : ""; }
int TF_OperationNumOutputs(TF_Operation *oper) { return oper ? oper->node->n_outputs : 0; }
int TF_OperationNumInputs(TF_Operation *oper) { return oper ? oper->node->n_data : 0; }

TF_DataType TF_OperationOutputType(TF_Output oper_out) {
    bool is_there =
        oper_out.oper && oper_out.index >= 0 && oper_out.index < oper_out.oper->node->n_outputs;
    return (TF_DataType)(is_there ? oper_out.oper->node->out_types[oper_out.index] : 0);
}

static bool input_is_there(TF_Input input) {
    return input.oper && input.index >= 0 && input.index < input.oper->node->n_data;
}

TF_DataType TF_OperationInputType(TF_Input oper_in) {
    return (TF_DataType)(input_is_there(oper_in) ? oper_in.oper->node->in_types[oper_in.index] : 0);
}

/* ---- arguments ---- */

static int list_length(const char *function, TF_Operation *oper, const char *arg_name,
                       bool is_output, TF_Status *status) {
    if (!oper || !arg_name) {
        tf_status_set(status, null_refused(function, oper ? "arg_name" : "oper"));
        return -1;
    }
    const struct op_signature *op = oper->node->op;
    const struct op_arg_signature *args = is_output ? op->outputs : op->inputs;
    for (int i = 0; i < (is_output ? op->n_outputs : op->n_inputs); i++) {
        int64_t n = -1;
        if (strcmp(args[i].name, arg_name) != 0)
            continue;
        tf_status_set(status, node_count_arg(oper->node, &args[i], &n));
        return (int)n;
    }
    tf_status_set(status, status_invalid("%s: %s '%s' not found in '%s' (op %s)", function,
                                         is_output ? "Output arg" : "Input arg", arg_name,
                                         oper->node->name, op->name));
    return -1;
}

int TF_OperationOutputListLength(TF_Operation *oper, const char *arg_name, TF_Status *status) {
    return list_length(__func__, oper, arg_name, true, status);
}

int TF_OperationInputListLength(TF_Operation *oper, const char *arg_name, TF_Status *status) {
    return list_length(__func__, oper, arg_name, false, status);
}

/* ---- edges ---- */

static TF_Output output_of(const TF_Operation *oper, struct node_input input) {
    return (TF_Output){graph_operation(oper->owner, input.src), input.index};
}

TF_Output TF_OperationInput(TF_Input oper_in) {
    TF_Output output = {NULL, -1};
    if (!input_is_there(oper_in))
        return output;
    pthread_mutex_lock(&oper_in.oper->owner->lock);
    output = output_of(oper_in.oper, oper_in.oper->node->inputs[oper_in.index]);
    pthread_mutex_unlock(&oper_in.oper->owner->lock);
    return output;
}

void TF_OperationAllInputs(TF_Operation *oper, TF_Output *inputs, int max_inputs) {
    for (int i = 0; oper && inputs && i < max_inputs && i < oper->node->n_data; i++)
        inputs[i] = TF_OperationInput((TF_Input){oper, i});
}

int TF_OperationNumControlInputs(TF_Operation *oper) {
    return oper ? oper->node->n_inputs - oper->node->n_data : 0;
}

int TF_OperationGetControlInputs(TF_Operation *oper, TF_Operation **control_inputs,
                                 int max_control_inputs) {
    int n = 0;
    if (!oper || !control_inputs)
        return 0;
    pthread_mutex_lock(&oper->owner->lock);
    for (int i = oper->node->n_data; i < oper->node->n_inputs; i++, n++)
        if (n < max_control_inputs)
            control_inputs[n] = graph_operation(oper->owner, oper->node->inputs[i].src);
    pthread_mutex_unlock(&oper->owner->lock);
    return n;
}

/* Lists the first `max` consumers of an output, or those that wait for the node, in either array
 * that is not NULL. Returns how many there are. */
static int list_consumers(TF_Operation *oper, int index, TF_Input *inputs, TF_Operation **opers,
                          int max) {
    int n = 0;
    pthread_mutex_lock(&oper->owner->lock);
    for (int i = 0; i < oper->n_consumers; i++) {
        const struct consumer *consumer = &oper->consumers[i];
        if (consumer->index != index)
            continue;
        if (inputs && n < max)
            inputs[n] = (TF_Input){consumer->oper, consumer->position};
        else if (opers && n < max)
            opers[n] = consumer->oper;
        n++;
    }
    pthread_mutex_unlock(&oper->owner->lock);
    return n;
}

int TF_OperationOutputNumConsumers(TF_Output oper_out) {
    return oper_out.oper && oper_out.index >= 0
               ? list_consumers(oper_out.oper, oper_out.index, NULL, NULL, 0)
               : 0;
}

int TF_OperationOutputConsumers(TF_Output oper_out, TF_Input *consumers, int max_consumers) {
    return oper_out.oper && oper_out.index >= 0 && consumers
               ? list_consumers(oper_out.oper, oper_out.index, consumers, NULL, max_consumers)
               : 0;
}

int TF_OperationNumControlOutputs(TF_Operation *oper) {
    return oper ? list_consumers(oper, CONTROL_EDGE, NULL, NULL, 0) : 0;
}

int TF_OperationGetControlOutputs(TF_Operation *oper, TF_Operation **control_outputs,
                                  int max_control_outputs) {
    return oper && control_outputs
               ? list_consumers(oper, CONTROL_EDGE, NULL, control_outputs, max_control_outputs)
               : 0;
}

void TF_OperationToNodeDef(TF_Operation *oper, TF_Buffer *output_node_def, TF_Status *status) {
    struct str text = STR_INIT;
    if (!oper || !output_node_def) {
        tf_status_set(status, null_refused(__func__, oper ? "output_node_def" : "oper"));
        return;
    }
    pthread_mutex_lock(&oper->owner->lock);
    node_to_nodedef(oper->node, &text);
    pthread_mutex_unlock(&oper->owner->lock);
    tf_status_set(status, buffer_fill(__func__, output_node_def, &text));
}
