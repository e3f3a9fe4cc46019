/* How a value is updated. The loops of the CPU and of devices share it; it is plain C, which
 * kernels in CUDA read, too. */
#ifndef MILLRACE_KERNELS_SUPPORT_UPDATE_OP_H
#define MILLRACE_KERNELS_SUPPORT_UPDATE_OP_H

enum update_op {
    UPDATE_ASSIGN,
    UPDATE_ADD,
    UPDATE_SUB,
    UPDATE_MUL,
    UPDATE_DIV,
    UPDATE_MIN,
    UPDATE_MAX,
    N_UPDATE_OPS
};

#endif
