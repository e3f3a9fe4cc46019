/* The rows of the pass `simplify`: what an op must be, and what becomes of it (simplify.h). Of
 * several rows of one op the first that holds is applied. */
#include "master/compile/rewrite/simplify.h"

#define INTS (DTYPES_INT)
#define FLOATS (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
#define BOOL (DTYPE_BIT(DT_BOOL))

/* An arithmetic op of two inputs takes what a broadcast repeats, if the other input is as large. */
#define BROADCASTS(op) \
    { op, simplify_is_broadcast_anyway, simplify_take_input, .types = DTYPES_REAL }
#define PUSHES(op, types_) \
    { op, simplify_has_two_constants, simplify_push_constant, .types = (types_) }
#define NEUTRAL(op, value, types_) \
    { op, simplify_is_neutral, simplify_hand_on, .types = (types_), .neutral = (value) }
#define NEUTRAL_RIGHT(op, value, types_) \
    { op, simplify_is_neutral_right, simplify_hand_on, .types = (types_), .neutral = (value) }
#define CANCELS(op, types_) \
    { op, simplify_cancels, simplify_hand_on, .types = (types_), .partner = (op) }
#define IDEMPOTENT(op, types_) \
    { op, simplify_is_idempotent, simplify_hand_on, .types = (types_) }
#define REDUCES(op, types_) \
    { op, simplify_reduces_nothing, simplify_hand_on, .types = (types_) }

// clang-format off
const struct simplify_rule simplify_rules[] = {
    IDEMPOTENT("Abs", INTS | FLOATS),
    NEUTRAL("Add", 0, INTS), PUSHES("Add", INTS), BROADCASTS("Add"),
    {"AddN", simplify_adds_one_input, simplify_hand_on},
    NEUTRAL("AddV2", 0, INTS), PUSHES("AddV2", INTS), BROADCASTS("AddV2"),
    REDUCES("All", BOOL),
    REDUCES("Any", BOOL),
    PUSHES("BitwiseAnd", INTS),
    NEUTRAL("BitwiseOr", 0, INTS), PUSHES("BitwiseOr", INTS),
    NEUTRAL("BitwiseXor", 0, INTS), PUSHES("BitwiseXor", INTS),
    {"BroadcastTo", simplify_reshapes_to_own, simplify_hand_on},
    {"BroadcastTo", simplify_keeps_shape, simplify_hand_on},
    {"Cast", simplify_casts_nothing, simplify_hand_on},
    {"Cast", simplify_casts_back, simplify_hand_on},
    {"Cast", simplify_casts_through, simplify_take_input},
    IDEMPOTENT("Ceil", FLOATS),
    {"ConcatV2", simplify_joins_results, simplify_join_first},
    CANCELS("Conj", DTYPES_COMPLEX),
    NEUTRAL_RIGHT("Div", 1, INTS | FLOATS), BROADCASTS("Div"),
    IDEMPOTENT("Floor", FLOATS),
    NEUTRAL_RIGHT("FloorDiv", 1, INTS),
    {"IdentityN", simplify_adds_one_input, simplify_hand_on},
    CANCELS("Invert", INTS),
    NEUTRAL_RIGHT("LeftShift", 0, INTS),
    NEUTRAL("LogicalAnd", 1, BOOL),
    CANCELS("LogicalNot", BOOL),
    NEUTRAL("LogicalOr", 0, BOOL),
    REDUCES("Max", INTS),
    BROADCASTS("Maximum"),
    REDUCES("Min", INTS),
    BROADCASTS("Minimum"),
    NEUTRAL("Mul", 1, INTS | FLOATS), PUSHES("Mul", INTS), BROADCASTS("Mul"),
    CANCELS("Neg", INTS | FLOATS | DTYPES_COMPLEX),
    {"Pad", simplify_pads_nothing, simplify_hand_on},
    {"PadV2", simplify_pads_nothing, simplify_hand_on},
    REDUCES("Prod", INTS),
    {"Rank", simplify_knows_shape, simplify_be_constant},
    {"Rank", simplify_asks_shape_of_result, simplify_take_input},
    NEUTRAL_RIGHT("RealDiv", 1, FLOATS), BROADCASTS("RealDiv"),
    IDEMPOTENT("Relu", INTS | FLOATS),
    {"Reshape", simplify_reshapes_to_own, simplify_hand_on},
    {"Reshape", simplify_keeps_shape, simplify_hand_on},
    {"Reshape", simplify_reshapes_again, simplify_take_input},
    {"ReverseV2", simplify_reverses_nothing, simplify_hand_on},
    {"ReverseV2", simplify_reverses_back, simplify_hand_on},
    NEUTRAL_RIGHT("RightShift", 0, INTS),
    IDEMPOTENT("Rint", FLOATS),
    IDEMPOTENT("Round", INTS | FLOATS),
    {"Select", simplify_chooses_equal, simplify_hand_on},
    {"SelectV2", simplify_chooses_equal, simplify_hand_on},
    {"Shape", simplify_knows_shape, simplify_be_constant},
    {"Shape", simplify_asks_shape_of_result, simplify_take_input},
    IDEMPOTENT("Sign", INTS | FLOATS),
    {"Size", simplify_knows_shape, simplify_be_constant},
    {"Size", simplify_asks_shape_of_result, simplify_take_input},
    {"Slice", simplify_slices_all, simplify_hand_on},
    {"Split", simplify_splits_in_one, simplify_hand_on},
    {"SplitV", simplify_splits_in_one, simplify_hand_on},
    {"Squeeze", simplify_keeps_shape, simplify_hand_on},
    {"Squeeze", simplify_squeezes_expanded, simplify_hand_on},
    {"StridedSlice", simplify_strides_over_all, simplify_hand_on},
    NEUTRAL_RIGHT("Sub", 0, INTS | FLOATS), BROADCASTS("Sub"),
    REDUCES("Sum", INTS),
    {"Tile", simplify_tiles_once, simplify_hand_on},
    {"Transpose", simplify_transposes_nothing, simplify_hand_on},
    {"Transpose", simplify_transposes_back, simplify_hand_on},
    NEUTRAL_RIGHT("TruncateDiv", 1, INTS),
};
// clang-format on
const size_t n_simplify_rules = ARRAY_LEN(simplify_rules);
