/* Learning rates as operations on the step. */
#include "client/training/schedule.h"

#include <math.h>

#include "client/training/builder_internal.h"

static bool check_schedule(MR_Builder *b, TF_DataType dtype, TF_Output step, double steps) {
    if (!builder_check_output(b, "step", step))
        return false;
    if (dtype != TF_FLOAT && dtype != TF_DOUBLE)
        builder_fail(b, status_invalid("dtype is %s, not float or double", builder_dtype(dtype)));
    else if (!(steps > 0))
        builder_fail(b, status_invalid("steps is %g, not above 0", steps));
    return builder_is_ok(b);
}

/* step / steps, at most 1 where it is_bounded */
static TF_Output progress(MR_Builder *b, TF_DataType dtype, TF_Output step, double steps,
                          bool is_bounded) {
    TF_Output all = MR_Scalar(b, dtype, steps), now = MR_Cast(b, step, dtype);
    return MR_Binary(b, "RealDiv", is_bounded ? MR_Binary(b, "Minimum", now, all) : now, all);
}

TF_Output MR_ExponentialDecay(MR_Builder *builder, TF_DataType dtype, TF_Output step, double rate,
                              double steps, double decay, unsigned char is_staircase) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (check_schedule(builder, dtype, step, steps)) {
        TF_Output p = progress(builder, dtype, step, steps, false);
        if (is_staircase)
            p = MR_Unary(builder, "Floor", p);
        out = MR_Binary(builder, "Mul", MR_Scalar(builder, dtype, rate),
                        MR_Binary(builder, "Pow", MR_Scalar(builder, dtype, decay), p));
    }
    builder_leave(builder, outer);
    return out;
}

TF_Output MR_PiecewiseConstant(MR_Builder *builder, TF_DataType dtype, TF_Output step,
                               const int64_t *boundaries, const double *values,
                               int num_boundaries) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (!values || (num_boundaries > 0 && !boundaries))
        builder_fail(builder, status_invalid("%s is NULL", values ? "boundaries" : "values"));
    else if (num_boundaries < 0)
        builder_fail(builder, status_invalid("%d boundaries", num_boundaries));
    else if (check_schedule(builder, dtype, step, 1))
        out = MR_Scalar(builder, dtype, values[0]);
    for (int i = 0; builder_is_ok(builder) && i < num_boundaries; i++) {
        if (i > 0 && boundaries[i] <= boundaries[i - 1])
            builder_fail(builder,
                         status_invalid("boundary %d is %lld, not above %lld", i,
                                        (long long)boundaries[i], (long long)boundaries[i - 1]));
        TF_Output boundary =
            MR_Scalar(builder, TF_OperationOutputType(step), (double)boundaries[i]);
        out = MR_Op(builder, "SelectV2", NULL,
                    MR_INPUTS(MR_Binary(builder, "Greater", step, boundary),
                              MR_Scalar(builder, dtype, values[i + 1]), out));
    }
    builder_leave(builder, outer);
    return out;
}

TF_Output MR_PolynomialDecay(MR_Builder *builder, TF_DataType dtype, TF_Output step, double rate,
                             double steps, double end, double power) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (check_schedule(builder, dtype, step, steps)) {
        TF_Output p = progress(builder, dtype, step, steps, true);
        TF_Output rest = MR_Binary(builder, "Sub", MR_Scalar(builder, dtype, 1), p);
        TF_Output low = MR_Scalar(builder, dtype, end);
        TF_Output range = MR_Binary(builder, "Sub", MR_Scalar(builder, dtype, rate), low);
        TF_Output factor = MR_Binary(builder, "Pow", rest, MR_Scalar(builder, dtype, power));
        out = MR_Binary(builder, "AddV2", MR_Binary(builder, "Mul", range, factor), low);
    }
    builder_leave(builder, outer);
    return out;
}

TF_Output MR_CosineDecay(MR_Builder *builder, TF_DataType dtype, TF_Output step, double rate,
                         double steps, double alpha) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (check_schedule(builder, dtype, step, steps)) {
        TF_Output p = progress(builder, dtype, step, steps, true);
        TF_Output wave =
            MR_Unary(builder, "Cos", MR_Binary(builder, "Mul", MR_Scalar(builder, dtype, M_PI), p));
        TF_Output half = MR_Binary(builder, "Mul", MR_Scalar(builder, dtype, 0.5),
                                   MR_Binary(builder, "AddV2", MR_Scalar(builder, dtype, 1), wave));
        TF_Output factor = MR_Binary(
            builder, "AddV2", MR_Binary(builder, "Mul", MR_Scalar(builder, dtype, 1 - alpha), half),
            MR_Scalar(builder, dtype, alpha));
        out = MR_Binary(builder, "Mul", MR_Scalar(builder, dtype, rate), factor);
    }
    builder_leave(builder, outer);
    return out;
}
