/* Derivatives of the linear algebra family. */
#include "common/gradients/gradient.h"

extern const struct gradient_list linalg_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("Einsum"),
    LATER_GRADIENT("Cholesky"),
    NO_GRADIENT("CholeskyGrad"), /* TensorFlow has none either */
    LATER_GRADIENT("MatrixDeterminant"),
    LATER_GRADIENT("LogMatrixDeterminant"),
    LATER_GRADIENT("MatrixInverse"),
    LATER_GRADIENT("MatrixSolve"),
    LATER_GRADIENT("MatrixTriangularSolve"),
    LATER_GRADIENT("BandedTriangularSolve"),
    LATER_GRADIENT("MatrixSolveLs"),
    LATER_GRADIENT("MatrixSquareRoot"),
    NO_GRADIENT("MatrixLogarithm"), /* TensorFlow has none either */
    NO_GRADIENT("Lu"),              /* TensorFlow has none either */
    LATER_GRADIENT("Qr"),
    LATER_GRADIENT("Svd"),
    LATER_GRADIENT("SelfAdjointEigV2"),
    NO_GRADIENT("SelfAdjointEig"), /* TensorFlow has none either */
    LATER_GRADIENT("Eig"),
    LATER_GRADIENT("TridiagonalSolve"),
    LATER_GRADIENT("TridiagonalMatMul"),
    /* The old names of the same: TensorFlow differentiates none of them. */
    NO_GRADIENT("BatchCholesky"),
    NO_GRADIENT("BatchCholeskyGrad"),
    NO_GRADIENT("BatchMatrixDeterminant"),
    NO_GRADIENT("BatchMatrixInverse"),
    NO_GRADIENT("BatchMatrixSolve"),
    NO_GRADIENT("BatchMatrixTriangularSolve"),
    NO_GRADIENT("BatchMatrixSolveLs"),
    NO_GRADIENT("BatchSelfAdjointEig"),
    NO_GRADIENT("BatchSelfAdjointEigV2"),
    NO_GRADIENT("BatchSvd"),
};
// clang-format on
const struct gradient_list linalg_gradients = {rows, ARRAY_LEN(rows)};
