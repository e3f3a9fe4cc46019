/* Differentiates tensor maps: the gradient of a map is a map of gradients with the same keys. */
#include "common/gradients/build.h"

static struct node_input lookup(struct gradient_ctx *g, struct node_input map,
                                struct node_input key, struct node_input like) {
    return OP_WITH("TensorMapLookup", ATTRS(ATTR_T("value_dtype", gradient_dtype(like))), map, key);
}

static struct node_input erase(struct gradient_ctx *g, struct node_input map, struct node_input key,
                               struct node_input like) {
    return OP_WITH("TensorMapErase", ATTRS(ATTR_T("value_dtype", gradient_dtype(like))), map, key);
}

/* (map, key) → value */
static void lookup_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorMapInsert", OP("EmptyTensorMap", GRADIENT_END), IN(1), DY(0)));
}

/* (map, key, value) → map. The gradient's map has the key if somebody looked the value up. Then the
 * key is removed from it, because the map before had another value or none. */
static void insert_grad(struct gradient_ctx *g) {
    struct node_input key = IN(1), value = IN(2);
    struct node_input has = OP("TensorMapHasKey", DY(0), key);
    struct node_input map = OP("Switch", DY(0), has), values = OP("Switch", value, has);
    struct node_input with = SECOND(map);
    SET(0, OP("Merge", map, erase(g, with, key, value)));
    SET(2, OP("Merge", ZEROS(values), lookup(g, with, key, value)));
}

static void erase_grad(struct gradient_ctx *g) { SET(0, DY(0)); }

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("EmptyTensorMap"),
    GRADIENT("TensorMapInsert", insert_grad),
    GRADIENT("TensorMapErase", erase_grad),
    GRADIENT("TensorMapLookup", lookup_grad),
    NO_GRADIENT("TensorMapHasKey"),
    NO_GRADIENT("TensorMapSize"),
    NO_GRADIENT("TensorMapStackKeys"),
};
// clang-format on

const struct gradient_list tensor_map_gradients = {rows, ARRAY_LEN(rows)};
