/* Plans broadcasts and copies stretched operands; see broadcast.h. */
#include "kernels/support/broadcast.h"

/* Size of the operand `shape` along output dimension i of `rank`. */
static int64_t dim_at(struct shape shape, int i, int rank) {
    int own = i - (rank - shape.rank);
    return own < 0 ? 1 : shape.dims[own];
}

static bool output_dim(const struct shape *operands, int n_operands, int i, int rank,
                       int64_t *ret_dim, unsigned *ret_stretched) {
    int64_t dim = 1;
    for (int k = 0; k < n_operands; k++) {
        int64_t own = dim_at(operands[k], i, rank);
        if (own == 1)
            continue;
        if (dim != 1 && dim != own)
            return false;
        dim = own;
    }
    unsigned stretched = 0;
    for (int k = 0; k < n_operands; k++)
        stretched |= (unsigned)(dim_at(operands[k], i, rank) == 1 && dim != 1) << k;
    *ret_dim = dim;
    *ret_stretched = stretched;
    return true;
}

bool broadcast_init(struct broadcast *plan, const struct shape *operands, int n_operands) {
    int rank = 0;
    for (int k = 0; k < n_operands; k++)
        rank = MAX(rank, operands[k].rank);
    unsigned masks[SHAPE_MAX_RANK + 1];
    plan->n_operands = n_operands;
    plan->out_rank = rank;
    plan->n_elements = 1;
    plan->rank = 0;
    plan->ever_stretched = 0;
    bool is_empty = false;
    for (int i = 0; i < rank; i++) {
        int64_t dim;
        unsigned stretched;
        if (!output_dim(operands, n_operands, i, rank, &dim, &stretched))
            return false;
        plan->out_dims[i] = dim;
        is_empty |= dim == 0;
        if (dim == 1)
            continue;
        if (!is_empty && mul_overflows_i64(plan->n_elements, dim, &plan->n_elements))
            return false;
        plan->ever_stretched |= stretched;
        if (plan->rank > 0 && masks[plan->rank - 1] == stretched && !is_empty) {
            plan->dims[plan->rank - 1] *= dim;
        } else {
            plan->dims[plan->rank] = dim;
            masks[plan->rank++] = stretched;
        }
    }
    if (is_empty)
        plan->n_elements = 0;
    if (plan->rank == 0) {
        plan->dims[0] = 1;
        masks[plan->rank++] = 0;
    }
    plan->inner_stretched = masks[plan->rank - 1];
    for (int k = 0; k < n_operands && !is_empty; k++) {
        int64_t stride = 1;
        for (int i = plan->rank - 1; i >= 0; i--) {
            bool is_stretched = masks[i] >> k & 1;
            plan->strides[k][i] = is_stretched ? 0 : stride;
            if (!is_stretched)
                stride *= plan->dims[i];
        }
    }
    return true;
}

void broadcast_seek(const struct broadcast *plan, int64_t position, struct broadcast_cursor *ret) {
    int last = plan->rank - 1;
    ret->inner = position % plan->dims[last];
    position /= plan->dims[last];
    for (int k = 0; k < plan->n_operands; k++)
        ret->outer[k] = 0;
    for (int i = last - 1; i >= 0; i--) {
        ret->index[i] = position % plan->dims[i];
        position /= plan->dims[i];
        for (int k = 0; k < plan->n_operands; k++)
            ret->outer[k] += ret->index[i] * plan->strides[k][i];
    }
}

void broadcast_next_row(const struct broadcast *plan, struct broadcast_cursor *cursor) {
    cursor->inner = 0;
    for (int i = plan->rank - 2; i >= 0; i--) {
        for (int k = 0; k < plan->n_operands; k++)
            cursor->outer[k] += plan->strides[k][i];
        if (++cursor->index[i] < plan->dims[i])
            return;
        for (int k = 0; k < plan->n_operands; k++)
            cursor->outer[k] -= plan->strides[k][i] * plan->dims[i];
        cursor->index[i] = 0;
    }
}

struct element16 {
    uint64_t half[2];
};

/* Fills n_rows rows of `run` elements each. The first row starts at `offset`, and rows are `stride`
 * apart. The step from element to element is 0 or 1. */
#define FILL_ROWS(T)                                                     \
    do {                                                                 \
        const T *in = (const T *)from + offset;                          \
        T *out = (T *)to + done;                                         \
        for (int64_t r = 0; r < n_rows; r++, in += stride, out += run) { \
            if (is_one) {                                                \
                T value = *in;                                           \
                for (int64_t i = 0; i < run; i++)                        \
                    out[i] = value;                                      \
            } else {                                                     \
                for (int64_t i = 0; i < run; i++)                        \
                    out[i] = in[i];                                      \
            }                                                            \
        }                                                                \
    } while (0)

void broadcast_gather(const struct broadcast *plan, int k, const void *from, size_t element_size,
                      int64_t begin, int64_t n, void *to) {
    struct broadcast_cursor cursor;
    broadcast_seek(plan, begin, &cursor);
    int last = plan->rank - 1;
    int64_t inner_dim = plan->dims[last], stride = last > 0 ? plan->strides[k][last - 1] : 0;
    bool is_one = plan->inner_stretched >> k & 1;
    for (int64_t done = 0; done < n;) {
        int64_t run = MIN(inner_dim - cursor.inner, n - done),
                offset = broadcast_offset(plan, &cursor, k), n_rows = 1;
        /* whole rows, up to the end of the next outer dimension */
        if (last > 0 && run == inner_dim)
            n_rows = MIN((n - done) / inner_dim, plan->dims[last - 1] - cursor.index[last - 1]);
        switch (element_size) {
        case 1:
            FILL_ROWS(uint8_t);
            break;
        case 2:
            FILL_ROWS(uint16_t);
            break;
        case 4:
            FILL_ROWS(uint32_t);
            break;
        case 8:
            FILL_ROWS(uint64_t);
            break;
        case 16:
            FILL_ROWS(struct element16);
            break;
        default:
            CHECK(!"element size");
            return;
        }
        done += n_rows * run;
        if (n_rows > 1) {
            cursor.index[last - 1] += n_rows - 1;
            for (int operand = 0; operand < plan->n_operands; operand++)
                cursor.outer[operand] += (n_rows - 1) * plan->strides[operand][last - 1];
        }
        broadcast_next_row(plan, &cursor);
    }
}
