/* Describes _MrFused (common/graph/fused.h). */
#include "common/graph/fused.h"
#include "common/ops/op_def.h"

/* What the instructions of a program have: shapes by the ids of the program's nodes, which are the
 * inputs and then the instructions. */
static struct status *infer_instruction(struct shape_inference *ctx, const struct node *node,
                                        struct shape *shapes) {
    const struct op_def *def = op_def_find(node->op_name);
    int n = node->n_data + 1;
    const struct tensor **values = arena_array(ctx->arena, const struct tensor *, n);
    const struct shape **as_shapes = arena_array(ctx->arena, const struct shape *, n);
    struct shape_inference own = {
        .node = node,
        .producer = ctx->producer,
        .arena = ctx->arena,
        .in_values = values,
        .in_as_shapes = as_shapes,
        .in_handle_dtypes = arena_array(ctx->arena, enum dtype, n),
        .out = &shapes[node->id],
        .out_handle_dtypes = arena_array(ctx->arena, enum dtype, 1),
        .out_handle_shapes = arena_array(ctx->arena, struct shape, 1),
    };
    struct shape *in = arena_array(ctx->arena, struct shape, n),
                 *handles = arena_array(ctx->arena, struct shape, n);
    for (int i = 0; i < node->n_data; i++) {
        int operand = node->inputs[i].src->id;
        in[i] = shapes[operand];
        handles[i] = SHAPE_UNKNOWN;
        if (operand < ctx->node->n_data) { /* the axes of a reduction are an input of the program */
            values[i] = ctx->in_values[operand];
            as_shapes[i] = ctx->in_as_shapes[operand];
        }
    }
    own.in = in;
    own.in_handle_shapes = handles;
    own.out_handle_shapes[0] = SHAPE_UNKNOWN;
    shapes[node->id] = SHAPE_UNKNOWN;
    return def ? def->shape(&own) : NULL;
}

/* Each instruction has the shape that its op's function says. Where that finds a mistake, the
 * result is unknown, and the kernel reports the mistake with the name of the node. */
static struct status *shape_fused(struct shape_inference *ctx) {
    struct fused_program program;
    TRY(fused_program_read(ctx->node, &program));
    struct shape *shapes = arena_array(ctx->arena, struct shape, program.graph.n_nodes);
    for (int i = 0; i < program.n_inputs; i++)
        shapes[program.inputs[i]->id] = ctx->in[i];
    for (int k = 0; k < program.n_instructions; k++) {
        struct status *st = infer_instruction(ctx, program.instructions[k], shapes);
        if (st)
            shapes[program.instructions[k]->id] = SHAPE_UNKNOWN;
        status_unref(st);
    }
    for (int i = 0; i < program.n_outputs; i++)
        ctx->out[i] = shapes[program.instructions[program.results[i]]->id];
    fused_program_fini(&program);
    return NULL;
}

static const struct op_def rows[] = {
    {"_MrFused", "several elementwise ops, computed block by block", shape_fused},
};

const struct op_def_list fused_ops = {rows, ARRAY_LEN(rows)};
