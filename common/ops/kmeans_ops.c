/* Lists the k-means family: nearest centres, and initial centres. TensorFlow infers no shapes for
 * these ops and therefore refuses no graph, so only the kernels check. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"NearestNeighbors", "the k nearest centers of each point, and their squared distances",
     shape_unknown},
    {"KmeansPlusPlusInitialization", "points to start k-means from, far from each other by chance",
     shape_unknown},
    {"KMC2ChainInitialization", "a place of a vector of distances, a far one by chance",
     shape_unknown},
};
// clang-format on

const struct op_def_list kmeans_ops = {rows, ARRAY_LEN(rows)};
