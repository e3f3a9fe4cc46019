/* Lists the CPU kernels of linear algebra: the routine and the check of each op. */
#include "kernels/cpu/linalg/linalg.h"

extern const struct kernel_list linalg_kernels;

#define OP(name, check_name)                                                              \
    static const struct linalg_op op_##name = {linalg_##name##_f32, linalg_##name##_f64,  \
                                               linalg_##name##_c64, linalg_##name##_c128, \
                                               linalg_check_##check_name};
#define OP_OF_ALL(name, check_name)                                                         \
    static const struct linalg_op op_##name = {linalg_##name, linalg_##name, linalg_##name, \
                                               linalg_##name, linalg_check_##check_name};
OP(cholesky, cholesky)
OP(cholesky_grad, cholesky_grad)
OP(determinant, determinant)
OP(log_determinant, log_determinant)
OP(inverse, square)
OP(solve, solve)
OP(triangular_solve, triangular_solve)
OP(banded_solve, banded_solve)
OP(lu, lu)
OP(qr, qr)
OP(svd, svd)
OP(self_adjoint_eig, self_adjoint_eig)
OP(self_adjoint_eig_v1, self_adjoint_eig_v1)
OP(solve_ls, solve_ls)
OP(tridiagonal_solve, tridiagonal_solve)
OP(tridiagonal_matmul, tridiagonal_matmul)
OP_OF_ALL(eig, eig)
OP_OF_ALL(square_root, square)
OP_OF_ALL(logarithm, square)

#define F32 DTYPE_BIT(DT_FLOAT)
#define F64 DTYPE_BIT(DT_DOUBLE)
#define C64 DTYPE_BIT(DT_COMPLEX64)
#define C128 DTYPE_BIT(DT_COMPLEX128)
#define REAL (F32 | F64)
#define ALL (REAL | DTYPES_COMPLEX)
#define HALF DTYPE_BIT(DT_HALF)
#define ROW(op, name, types) \
    { (op), {{"T", (types)}}, linalg_compute, linalg_init, .arg = &op_##name }
#define EIG(types, out) \
    { "Eig", {{"T", (types)}, {"Tout", (out)}}, linalg_compute, linalg_init, .arg = &op_eig }

// clang-format off
static const struct kernel_def rows[] = {
    ROW("Cholesky", cholesky, ALL), ROW("BatchCholesky", cholesky, REAL),
    ROW("CholeskyGrad", cholesky_grad, REAL), ROW("BatchCholeskyGrad", cholesky_grad, REAL),
    ROW("MatrixDeterminant", determinant, ALL), ROW("BatchMatrixDeterminant", determinant, ALL),
    ROW("LogMatrixDeterminant", log_determinant, ALL),
    ROW("MatrixInverse", inverse, ALL | HALF), ROW("BatchMatrixInverse", inverse, REAL),
    ROW("MatrixSolve", solve, ALL), ROW("BatchMatrixSolve", solve, REAL),
    ROW("MatrixTriangularSolve", triangular_solve, ALL),
    ROW("BatchMatrixTriangularSolve", triangular_solve, REAL),
    ROW("BandedTriangularSolve", banded_solve, ALL),
    ROW("Lu", lu, ALL),
    ROW("Qr", qr, ALL | HALF),
    ROW("Svd", svd, ALL), ROW("BatchSvd", svd, ALL),
    ROW("SelfAdjointEigV2", self_adjoint_eig, ALL), ROW("BatchSelfAdjointEigV2", self_adjoint_eig,
        REAL),
    ROW("SelfAdjointEig", self_adjoint_eig_v1, REAL),
    ROW("BatchSelfAdjointEig", self_adjoint_eig_v1, REAL),
    EIG(F32 | C64, C64), EIG(F64 | C128, C128),
    ROW("MatrixSquareRoot", square_root, ALL),
    ROW("MatrixLogarithm", logarithm, DTYPES_COMPLEX),
    ROW("MatrixSolveLs", solve_ls, ALL), ROW("BatchMatrixSolveLs", solve_ls, REAL),
    ROW("TridiagonalSolve", tridiagonal_solve, ALL),
    ROW("TridiagonalMatMul", tridiagonal_matmul, ALL),
};
// clang-format on
const struct kernel_list linalg_kernels = {rows, ARRAY_LEN(rows)};
