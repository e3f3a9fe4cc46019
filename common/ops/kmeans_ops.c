/* The clustering family: the nearest centers, and where k-means starts. TensorFlow infers
 * nothing of their shapes, and so refuses no graph for them: the kernels check. */
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
