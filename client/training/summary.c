/* Adds the operations of a SummaryWriter. */
#include "client/training/summary.h"

#include "client/training/builder_internal.h"
#include "common/tensor/text.h"

struct MR_SummaryWriter {
    MR_Builder *builder;
    const char *device;
    TF_Output handle, step;
    TF_Operation *open, *flush, *close;
    TF_Operation **writes; /* in the arena of the builder */
    int n_writes, capacity;
};

static bool check_new(MR_Builder *b, const char *folder, TF_Output step) {
    if (!folder || !step.oper)
        builder_fail(b, status_invalid("%s is NULL", folder ? "step" : "folder"));
    else if (TF_OperationOutputType(step) != TF_INT64)
        builder_fail(b, status_invalid("step '%s' is %s, not int64", TF_OperationName(step.oper),
                                       builder_dtype(TF_OperationOutputType(step))));
    return builder_is_ok(b);
}

MR_SummaryWriter *MR_NewSummaryWriter(MR_Builder *builder, const char *folder, TF_Output step) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    MR_SummaryWriter *writer = NULL;
    if (check_new(builder, folder, step)) {
        enum { MAX_QUEUE = 10, FLUSH_MS = 120000 }; /* TensorFlow's */
        struct str attrs = STR_INIT, shared_name = STR_INIT;
        str_add(&shared_name, builder->prefix);
        str_add(&shared_name, folder);
        str_add(&attrs, "shared_name=");
        text_add_quoted(&attrs, (struct span){str_text(&shared_name), shared_name.len});
        int n_controls = builder->n_controls;
        builder->n_controls = 0;
        writer = arena_new(&builder->arena, MR_SummaryWriter);
        writer->builder = builder;
        writer->device = builder->device;
        writer->step = step;
        writer->handle = MR_Op(builder, "SummaryWriter", str_text(&attrs), NULL, 0);
        writer->open =
            MR_Op(builder, "CreateSummaryFileWriter", NULL,
                  MR_INPUTS(writer->handle, MR_String(builder, folder),
                            MR_Scalar(builder, TF_INT32, MAX_QUEUE),
                            MR_Scalar(builder, TF_INT32, FLUSH_MS), MR_String(builder, "")))
                .oper;
        writer->flush = MR_Unary(builder, "FlushSummaryWriter", writer->handle).oper;
        writer->close = MR_Unary(builder, "CloseSummaryWriter", writer->handle).oper;
        builder->n_controls = n_controls;
        str_fini(&attrs);
        str_fini(&shared_name);
    }
    builder_leave(builder, outer);
    return builder_is_ok(builder) ? writer : NULL;
}

static bool check_writer(MR_Builder *b, const MR_SummaryWriter *writer) {
    if (!writer || writer->builder != b)
        builder_fail(
            b, status_invalid(writer ? "the writer is of another builder" : "writer is NULL"));
    return builder_is_ok(b);
}

static TF_Operation *summarize(MR_Builder *b, const char *function, MR_SummaryWriter *writer,
                               const char *op, const char *tag, TF_Output value) {
    const char *outer;
    TF_Operation *oper = NULL;
    if (!builder_enter(b, function, &outer))
        return NULL;
    if (!tag)
        builder_fail(b, status_invalid("tag is NULL"));
    if (check_writer(b, writer)) {
        const char *device = builder_swap_device(b, writer->device);
        oper = MR_Op(b, op, NULL, MR_INPUTS(writer->handle, writer->step, MR_String(b, tag), value))
                   .oper;
        builder_swap_device(b, device);
    }
    if (oper && writer->n_writes == writer->capacity) {
        writer->capacity = MAX(8, 2 * writer->capacity);
        TF_Operation **more = arena_array(&b->arena, TF_Operation *, writer->capacity);
        if (writer->n_writes > 0)
            memcpy(more, writer->writes, (size_t)writer->n_writes * sizeof *more);
        writer->writes = more;
    }
    if (oper)
        writer->writes[writer->n_writes++] = oper;
    builder_leave(b, outer);
    return oper;
}

TF_Operation *MR_SummarizeScalar(MR_Builder *builder, MR_SummaryWriter *writer, const char *tag,
                                 TF_Output value) {
    return summarize(builder, __func__, writer, "WriteScalarSummary", tag, value);
}

TF_Operation *MR_SummarizeHistogram(MR_Builder *builder, MR_SummaryWriter *writer, const char *tag,
                                    TF_Output values) {
    return summarize(builder, __func__, writer, "WriteHistogramSummary", tag, values);
}

TF_Operation *MR_SummaryWrite(MR_Builder *builder, const MR_SummaryWriter *writer) {
    const char *outer;
    TF_Operation *all = NULL;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    if (check_writer(builder, writer))
        all = MR_Group(builder, NULL, writer->writes, writer->n_writes);
    builder_leave(builder, outer);
    return all;
}

TF_Operation *MR_SummaryOpen(const MR_SummaryWriter *writer) {
    return writer ? writer->open : NULL;
}
TF_Operation *MR_SummaryFlush(const MR_SummaryWriter *writer) {
    return writer ? writer->flush : NULL;
}
TF_Operation *MR_SummaryClose(const MR_SummaryWriter *writer) {
    return writer ? writer->close : NULL;
}
