/* Answers which arguments of a node are in host memory (kernels/device.h). */
#include "kernels/device.h"

static const char *arg_name(const struct node *node, const struct op_arg_signature *args,
                            int n_args, int index) {
    for (int i = 0; i < n_args; i++) {
        int64_t size = 0;
        struct status *st = node_count_arg(node, &args[i], &size);
        CHECK(!st); /* the node was checked when it was added */
        if (index < size)
            return args[i].name;
        index -= (int)size;
    }
    return NULL;
}

bool kernel_names_host_arg(const char *const *host_args, const char *name) {
    for (; host_args && *host_args; host_args++)
        if (strcmp(*host_args, name) == 0)
            return true;
    return false;
}

static bool is_host_arg(const struct kernel_def *def, const char *name) {
    return name && kernel_names_host_arg(def->host_args, name);
}

bool kernel_input_is_on_host(const struct kernel_def *def, const struct node *node, int input) {
    return is_host_arg(def, arg_name(node, node->op->inputs, node->op->n_inputs, input));
}

bool kernel_output_is_on_host(const struct kernel_def *def, const struct node *node, int output) {
    return is_host_arg(def, arg_name(node, node->op->outputs, node->op->n_outputs, output));
}
