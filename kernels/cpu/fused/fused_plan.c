/* Plans one execution of a fused program by blocks: the shapes of the values, the order of the
 * stages, and the memory of the values that outlive their stage.
 *
 * A class is a shape that occurs. A stage computes all instructions whose results have one class.
 * An operand has the class of the result, or a class with fewer elements, or one with as many
 * elements and a lower rank, so stages in that order never wait for each other. */
#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/cpu/math/math_rows.h"
#include "kernels/support/broadcast.h"
#include "kernels/support/reduction_checks.h"

/* ---- shapes ---- */

static int class_of_shape(struct fused_run *run, struct shape shape, int64_t n_elements) {
    for (int c = 0; c < run->n_classes; c++)
        if (run->classes[c].n_elements == n_elements && shape_equal(run->classes[c].shape, shape))
            return c;
    struct fused_class *made = &run->classes[run->n_classes];
    int64_t *dims = shape.rank <= TENSOR_INLINE_RANK
                        ? made->short_dims
                        : arena_array(&run->arena, int64_t, shape.rank);
    for (int i = 0; i < shape.rank; i++)
        dims[i] = shape.dims[i];
    made->shape = (struct shape){shape.rank, dims};
    made->n_elements = n_elements;
    return run->n_classes++;
}

static bool is_scalar_class(const struct fused_run *run, int class_of) {
    return run->classes[class_of].shape.rank == 0;
}

static int class_of_broadcast(struct fused_run *run, const int *classes, int n) {
    struct broadcast plan;
    struct shape shapes[BROADCAST_MAX_OPERANDS];
    if (n > BROADCAST_MAX_OPERANDS)
        return -1;
    for (int i = 0; i < n; i++)
        shapes[i] = run->classes[classes[i]].shape;
    if (!broadcast_init(&plan, shapes, n))
        return -1;
    return class_of_shape(run, broadcast_shape(&plan), plan.n_elements);
}

static int broadcast_class(struct fused_run *run, const int *classes, int n) {
    int found = classes[0];
    for (int i = 1; i < n; i++) {
        if (classes[i] == found || is_scalar_class(run, classes[i]))
            continue;
        if (!is_scalar_class(run, found))
            return class_of_broadcast(run, classes, n);
        found = classes[i];
    }
    return found;
}

static bool is_bias_of(const struct fused_run *run, int value, int bias) {
    struct shape of = run->classes[value].shape, vector = run->classes[bias].shape;
    return of.rank >= 2 && vector.rank == 1 && vector.dims[0] == of.dims[of.rank - 1];
}

static int reduced_class(struct fused_run *run, const struct fused_instruction *instruction) {
    struct shape shape = run->classes[run->values[instruction->operands[0]].class_of].shape;
    bool is_reduced[SHAPE_MAX_RANK];
    int64_t dims[SHAPE_MAX_RANK], n = 1;
    memset(is_reduced, 0, (size_t)shape.rank);
    struct status *st =
        reduction_read_axes(&run->ctx->inputs[instruction->operands[1]], shape.rank, is_reduced);
    if (st) {
        status_unref(st);
        return -1;
    }
    shape = math_reduced_shape(&instruction->kernel, shape, is_reduced, dims);
    for (int i = 0; i < shape.rank; i++)
        n *= shape.dims[i];
    return class_of_shape(run, shape, n);
}

/* Returns -1 where the kernel's own compute has to answer. */
static int result_class(struct fused_run *run, const struct fused_instruction *instruction) {
    int n = instruction->n_operands, classes[FUSED_MAX_OPERANDS];
    if (instruction->is_reduction)
        return reduced_class(run, instruction);
    for (int i = 0; i < n; i++)
        classes[i] = run->values[instruction->operands[i]].class_of;
    switch (instruction->shapes) {
    case BLOCK_BROADCAST:
        return broadcast_class(run, classes, n);
    case BLOCK_EQUAL:
        for (int i = 1; i < n; i++)
            if (classes[i] != classes[0])
                return -1;
        return classes[0];
    case BLOCK_SELECT:
        if (classes[1] != classes[2])
            return -1;
        return classes[0] == classes[1] || is_scalar_class(run, classes[0]) ? classes[1] : -1;
    case BLOCK_CLIP:
        for (int i = 1; i < n; i++)
            if (classes[i] != classes[0] && !is_scalar_class(run, classes[i]))
                return -1;
        return classes[0];
    case BLOCK_BIAS:
        return is_bias_of(run, classes[0], classes[1]) ? classes[0] : -1;
    case BLOCK_NEVER:
        break;
    }
    return -1;
}

bool fused_plan_shapes(struct fused_run *run, struct shape product) {
    const struct fused_state *state = run->state;
    int n_values = fused_n_values(state);
    int64_t n_elements = 1; /* of the product */
    for (int i = 0; i < product.rank; i++)
        n_elements *= product.dims[i];
    if (n_elements == 0)
        return false;
    run->classes =
        arena_alloc(&run->arena, (size_t)n_values * sizeof(*run->classes)); /* written when made */
    run->values = arena_array(&run->arena, struct fused_value, n_values);
    for (int i = 0; i < state->n_inputs; i++) {
        const struct tensor *in = &run->ctx->inputs[i];
        if (in->n_elements == 0)
            return false;
        run->values[i] =
            (struct fused_value){class_of_shape(run, tensor_shape(in), in->n_elements),
                                 dtype_size((enum dtype)in->dtype), (char *)tensor_cdata(in)};
    }
    for (int k = 0; k < state->n_instructions; k++) {
        struct fused_value *value = &run->values[state->n_inputs + k];
        value->class_of = k == 0 && product.rank >= 0 ? class_of_shape(run, product, n_elements)
                                                      : result_class(run, &state->instructions[k]);
        value->size = state->instructions[k].size;
        if (value->class_of < 0)
            return false;
    }
    return true;
}

/* ---- stages ---- */

bool fused_class_is_before(const struct fused_class *a, const struct fused_class *b) {
    return a->n_elements != b->n_elements ? a->n_elements < b->n_elements
                                          : a->shape.rank < b->shape.rank;
}

int fused_plan_stages(const struct fused_run *run, int *ret_classes) {
    int n = 0;
    for (int k = 0; k < run->state->n_instructions; k++) {
        int class_of = run->values[run->state->n_inputs + k].class_of, at = 0;
        while (at < n && ret_classes[at] != class_of)
            at++;
        if (at < n)
            continue;
        for (at = n++; at > 0 && fused_class_is_before(&run->classes[class_of],
                                                       &run->classes[ret_classes[at - 1]]);
             at--)
            ret_classes[at] = ret_classes[at - 1];
        ret_classes[at] = class_of;
    }
    return n;
}

/* ---- memory ---- */

/* May the result of instruction `at` take over the memory of the input? No stage after that of `at`
 * may read the input, and no instruction after `at` in the same stage. Earlier ones have read each
 * element before it is written: elements are computed in blocks, and those of one block by one
 * instruction after the other. */
static bool is_free_after(const struct fused_run *run, int input, int at, const int *place_of) {
    const struct fused_state *state = run->state;
    const struct fused_value *results = &run->values[state->n_inputs];
    int place = place_of[results[at].class_of];
    for (int k = 0; k < state->n_instructions; k++) {
        int own = place_of[results[k].class_of];
        if (own < place || (own == place && k <= at))
            continue;
        for (int i = 0; i < state->instructions[k].n_operands; i++)
            if (state->instructions[k].operands[i] == input)
                return false;
    }
    return true;
}

/* Returns -1 when there is no such input. */
static int input_to_take(const struct fused_run *run, int at, const int *place_of) {
    const struct fused_value *result = &run->values[run->state->n_inputs + at];
    /* the instructions may have to run once more, and a product reads its inputs while outputs are
     * written */
    if (run->state->may_fail || run->state->has_product)
        return -1;
    for (int i = 0; i < run->state->n_inputs; i++) {
        const struct tensor *in = &run->ctx->inputs[i];
        if (in->storage == TENSOR_BUFFER && run->values[i].size == result->size &&
            in->n_elements == run->classes[result->class_of].n_elements &&
            buffer_is_sole(in->buffer) && is_free_after(run, i, at, place_of))
            return i;
    }
    return -1;
}

static struct status *make_output(struct fused_run *run, int at, const int *place_of) {
    const struct fused_instruction *instruction = &run->state->instructions[at];
    struct fused_value *value = &run->values[run->state->n_inputs + at];
    struct shape shape = run->classes[value->class_of].shape;
    enum dtype dtype = (enum dtype)instruction->kernel.out_types[0];
    int taken = input_to_take(run, at, place_of);
    if (taken >= 0)
        TRY(kernel_forward_or_alloc(run->ctx, taken, instruction->output, dtype, shape));
    else
        TRY(kernel_alloc(run->ctx, instruction->output, dtype, shape));
    value->data = tensor_data(&run->ctx->outputs[instruction->output]);
    return NULL;
}

/* Does an instruction of another stage read the result? */
static bool outlives_stage(const struct fused_run *run, int at) {
    const struct fused_state *state = run->state;
    const struct fused_value *results = &run->values[state->n_inputs];
    for (int k = at + 1; k < state->n_instructions; k++) {
        if (results[k].class_of == results[at].class_of)
            continue;
        for (int i = 0; i < state->instructions[k].n_operands; i++)
            if (state->instructions[k].operands[i] == state->n_inputs + at)
                return true;
    }
    return false;
}

/* The last instruction that reads a value; 0: none does. */
static int last_reader(const struct fused_state *state, int value) {
    int last = 0;
    for (int k = 1; k < state->n_instructions; k++)
        for (int i = 0; i < state->instructions[k].n_operands; i++)
            if (state->instructions[k].operands[i] == value)
                last = k;
    return last;
}

/* Makes a product in the memory of an output that no reader of the product comes after, or else in
 * memory of its own. All outputs are there. */
static struct status *place_product(struct fused_run *run) {
    const struct fused_state *state = run->state;
    const struct fused_instruction *product = &state->instructions[0];
    struct fused_value *results = &run->values[state->n_inputs];
    if (product->output >= 0)
        return NULL;
    for (int k = last_reader(state, state->n_inputs);
         k < state->n_instructions && !outlives_stage(run, 0); k++) {
        const struct fused_instruction *of = &state->instructions[k];
        if (of->output >= 0 && results[k].class_of == results[0].class_of &&
            of->kernel.out_types[0] == product->kernel.out_types[0]) {
            results[0].data = results[k].data;
            tensor_copy(&run->scratch[0], &run->ctx->outputs[of->output]);
            return NULL;
        }
    }
    TRY(kernel_new(run->ctx, (enum dtype)product->kernel.out_types[0],
                   run->classes[results[0].class_of].shape, &run->scratch[0]));
    results[0].data = tensor_data(&run->scratch[0]);
    return NULL;
}

struct status *fused_plan_memory(struct fused_run *run, const int *stages, int n_stages) {
    const struct fused_state *state = run->state;
    int *place_of = arena_alloc(&run->arena, (size_t)run->n_classes * sizeof(*place_of));
    for (int s = 0; s < n_stages; s++)
        place_of[stages[s]] = s;
    if (n_stages > 1 || state->has_product)
        run->scratch = fused_tensors_new(&run->arena, state->n_instructions);
    for (int k = 0; k < state->n_instructions; k++) {
        const struct fused_instruction *instruction = &state->instructions[k];
        struct fused_value *value = &run->values[state->n_inputs + k];
        if (instruction->output >= 0) {
            TRY(make_output(run, k, place_of));
        } else if (n_stages > 1 && outlives_stage(run, k) && !(state->has_product && k == 0)) {
            TRY(kernel_new(run->ctx, (enum dtype)instruction->kernel.out_types[0],
                           run->classes[value->class_of].shape, &run->scratch[k]));
            value->data = tensor_data(&run->scratch[k]);
        }
    }
    if (state->has_product)
        return place_product(run);
    return NULL;
}
