/* Differentiates ops of the array family on diagonals and bands. array_grad.c has the rest. */
#include "common/gradients/build.h"

static void diag_grad(struct gradient_ctx *g) { SET(0, OP("DiagPart", DY(0))); }
static void diag_part_grad(struct gradient_ctx *g) { SET(0, OP("Diag", DY(0))); }

/* ---- matrices from diagonals ---- */

static void matrix_diag_grad(struct gradient_ctx *g) { SET(0, OP("MatrixDiagPart", DY(0))); }
static void matrix_diag_v2_grad(struct gradient_ctx *g) {
    SET(0, OP("MatrixDiagPartV2", DY(0), IN(1), NUM(0)));
}
static void matrix_diag_v3_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MatrixDiagPartV3", DY(0), IN(1), NUM(0)));
}

/* ---- diagonals of matrices ---- */

static void matrix_diag_part_grad(struct gradient_ctx *g) {
    SET(0, OP("MatrixSetDiag", ZEROS(IN(0)), DY(0)));
}
static void matrix_diag_part_v2_grad(struct gradient_ctx *g) {
    SET(0, OP("MatrixSetDiagV2", ZEROS(IN(0)), DY(0), IN(1)));
}
static void matrix_diag_part_v3_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MatrixSetDiagV3", ZEROS(IN(0)), DY(0), IN(1)));
}

/* ---- matrices with other diagonals ---- */

static void matrix_set_diag_grad(struct gradient_ctx *g) {
    SET(0, OP("MatrixSetDiag", DY(0), ZEROS(IN(1))));
    SET(1, OP("MatrixDiagPart", DY(0)));
}

static void matrix_set_diag_v2_grad(struct gradient_ctx *g) {
    SET(0, OP("MatrixSetDiagV2", DY(0), ZEROS(IN(1)), IN(2)));
    SET(1, OP("MatrixDiagPartV2", DY(0), IN(2), NUM(0)));
}

static void matrix_set_diag_v3_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MatrixSetDiagV3", DY(0), ZEROS(IN(1)), IN(2)));
    SET(1, LIKE("MatrixDiagPartV3", DY(0), IN(2), NUM(0)));
}

static void matrix_band_part_grad(struct gradient_ctx *g) {
    SET(0, OP("MatrixBandPart", DY(0), IN(1), IN(2)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Diag", diag_grad),
    GRADIENT("DiagPart", diag_part_grad),
    GRADIENT("MatrixDiag", matrix_diag_grad),
    GRADIENT("MatrixDiagV2", matrix_diag_v2_grad),
    GRADIENT("MatrixDiagV3", matrix_diag_v3_grad),
    GRADIENT("MatrixDiagPart", matrix_diag_part_grad),
    GRADIENT("MatrixDiagPartV2", matrix_diag_part_v2_grad),
    GRADIENT("MatrixDiagPartV3", matrix_diag_part_v3_grad),
    GRADIENT("MatrixSetDiag", matrix_set_diag_grad),
    GRADIENT("MatrixSetDiagV2", matrix_set_diag_v2_grad),
    GRADIENT("MatrixSetDiagV3", matrix_set_diag_v3_grad),
    GRADIENT("MatrixBandPart", matrix_band_part_grad),
    GRADIENT("BatchMatrixDiag", matrix_diag_grad),
    GRADIENT("BatchMatrixDiagPart", matrix_diag_part_grad),
    GRADIENT("BatchMatrixSetDiag", matrix_set_diag_grad),
    GRADIENT("BatchMatrixBandPart", matrix_band_part_grad),
};
// clang-format on

const struct gradient_list array_diag_gradients = {rows, ARRAY_LEN(rows)};
