/* Lists the CPU kernels of linear algebra: the routine and the check of each op. */
#include "kernels/cpu/linalg/linalg.h"

extern const struct kernel_list linalg_kernels;

#define OP(name, check_name, weight)                                                            \
    static const struct linalg_op op_##name = {linalg_##name##_f32,       linalg_##name##_f64,  \
                                               linalg_##name##_c64,       linalg_##name##_c128, \
                                               linalg_check_##check_name, weight};
#define OP_OF_ALL(name, check_name, weight)                                                    \
    static const struct linalg_op op_##name = {                                                \
        linalg_##name, linalg_##name, linalg_##name, linalg_##name, linalg_check_##check_name, \
        weight};
OP(cholesky, cholesky, 1)
OP(cholesky_grad, cholesky_grad, 20)
OP(determinant, determinant, 1)
OP(log_determinant, log_determinant, 1)
OP(inverse, square, 2)
OP(solve, solve, 2)
OP(triangular_solve, triangular_solve, 1)
OP(banded_solve, banded_solve, 10)
OP(lu, lu, 5)
OP(qr, qr, 3)
OP(svd, svd, 20)
OP(self_adjoint_eig, self_adjoint_eig, 10)
OP(self_adjoint_eig_v1, self_adjoint_eig_v1, 10)
OP(solve_ls, solve_ls, 20)
OP(tridiagonal_solve, tridiagonal_solve, 10)
OP(tridiagonal_matmul, tridiagonal_matmul, 10)
OP_OF_ALL(eig, eig, 300)
OP_OF_ALL(square_root, square, 300)
OP_OF_ALL(logarithm, square, 1000)

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
