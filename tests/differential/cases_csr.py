"""Sparse matrices by compressed rows: conversions, products, and their refusals."""

import numpy as np
import oracle
import tensorflow as tf
from tensorflow.python.ops.linalg.sparse import gen_sparse_csr_matrix_ops as R

RNG = np.random.default_rng(5)
DTYPES = ("float32", "float64", "complex64", "complex128")
LOOSE = {"float32": 1e-5, "float64": 1e-12, "complex64": 1e-5, "complex128": 1e-12}


def entries(dtype, shape, share=0.4):
    """(indices, values) of a random matrix, in order."""
    indices = np.argwhere(RNG.random(shape) < share).astype(np.int64)
    return indices, oracle.sample(RNG, dtype, (len(indices),))


def matrix(dtype, shape, share=0.4, of=None):
    indices, values = of or entries(dtype, shape, share)
    return R.sparse_tensor_to_csr_sparse_matrix(
        indices=oracle.const(indices.reshape(-1, len(shape))), values=oracle.const(values, dtype),
        dense_shape=oracle.const(np.asarray(shape, np.int64)))


def dense(csr, dtype):
    return R.csr_sparse_matrix_to_dense(sparse_input=csr, type=tf.as_dtype(dtype))


def parts(csr, dtype, index=0):
    return list(R.csr_sparse_matrix_components(csr_sparse_matrix=csr,
                                               index=oracle.const(np.int32(index)),
                                               type=tf.as_dtype(dtype)))


def back(csr, dtype):
    return list(R.csr_sparse_matrix_to_sparse_tensor(sparse_matrix=csr, type=tf.as_dtype(dtype)))


def whole(dtype, shape, share):
    of = entries(dtype, shape, share)

    def build():
        csr = matrix(dtype, shape, of=of)
        return [dense(csr, dtype), R.sparse_matrix_nnz(sparse_matrix=csr)] + back(
            csr, dtype) + parts(csr, dtype)

    return build


def from_dense(dtype, shape):
    indices, _ = entries(dtype, shape)
    values = oracle.sample(RNG, dtype, shape)
    return lambda: [dense(R.dense_to_csr_sparse_matrix(dense_input=oracle.const(values, dtype),
                                                       indices=oracle.const(indices)), dtype)]


def transposed(dtype, shape, conjugate):
    of = entries(dtype, shape)
    return lambda: [dense(R.sparse_matrix_transpose(input=matrix(dtype, shape, of=of),
            conjugate=conjugate, type=tf.as_dtype(dtype)), dtype)]


def product(dtype, a, b, **attrs):
    of, values = entries(dtype, a), oracle.sample(RNG, dtype, b)
    return lambda: [R.sparse_matrix_mat_mul(a=matrix(dtype, a, of=of),
                                            b=oracle.const(values, dtype), **attrs)]


def sparse_product(dtype, a, b, **attrs):
    of, other = entries(dtype, a), entries(dtype, b)

    def build():
        csr = R.sparse_matrix_sparse_mat_mul(a=matrix(dtype, a, of=of),
                                             b=matrix(dtype, b, of=other),
                                             type=tf.as_dtype(dtype), **attrs)
        return [dense(csr, dtype), R.sparse_matrix_nnz(sparse_matrix=csr)]

    return build


def raw(indices, values, shape):
    return lambda: [dense(matrix("float32", shape, of=(np.asarray(indices, np.int64),
                                                       np.asarray(values, np.float32))), "float32")]


def cases():
    for dtype in DTYPES:
        loose = {"rtol": LOOSE[dtype], "atol": LOOSE[dtype]}
        for shape in ((3, 4), (2, 3, 4), (0, 3), (3, 0), (30, 20)):
            for share in (0.4, 0.0, 1.0):
                yield f"SparseTensorToCSRSparseMatrix/{dtype}/{shape}/{share}", whole(dtype, shape,
                        share)
            yield f"DenseToCSRSparseMatrix/{dtype}/{shape}", from_dense(dtype, shape)
            for conjugate in (False, True):
                yield f"SparseMatrixTranspose/{dtype}/{shape}/{conjugate}", transposed(
                    dtype, shape, conjugate)
        for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 4), (3, 5)), 
                     ((3, 4), (2, 4, 5)), ((2, 3, 4), (3, 4, 5))):
            yield f"SparseMatrixMatMul/{dtype}/{a}/{b}", product(dtype, a, b), loose
            yield f"SparseMatrixSparseMatMul/{dtype}/{a}/{b}", sparse_product(dtype, a, b), loose
        for name in ("transpose_a", "adjoint_a"):
            yield f"SparseMatrixMatMul/{dtype}/{name}", product(dtype, (4, 3), (4, 5),
                                                                **{name: True}), loose
            yield f"SparseMatrixSparseMatMul/{dtype}/{name}", sparse_product(
                dtype, (4, 3), (4, 5), **{name: True}), loose
        for name in ("transpose_b", "adjoint_b"):
            yield f"SparseMatrixMatMul/{dtype}/{name}", product(dtype, (3, 4), (5, 4),
                                                                **{name: True}), loose
            yield f"SparseMatrixSparseMatMul/{dtype}/{name}", sparse_product(
                dtype, (3, 4), (5, 4), **{name: True}), loose
        for name in ("transpose_output", "conjugate_output"):
            yield f"SparseMatrixMatMul/{dtype}/{name}", product(dtype, (3, 4), (4, 5),
                                                                **{name: True}), loose
    yield "CSRSparseMatrixComponents/second", lambda: parts(matrix("float32", (2, 3, 4), 1.0),
                                                            "float32", 1)
    for index in (2, -1):
        yield f"CSRSparseMatrixComponents/{index}", lambda i=index: parts(
            matrix("float32", (2, 3, 4)), "float32", i)
    yield "CSRSparseMatrixToDense/type", lambda: [dense(matrix("float32", (2, 3)), "float64")]
    yield "SparseTensorToCSRSparseMatrix/values", raw([[0, 0]], [1.0, 2.0], (3, 3))
