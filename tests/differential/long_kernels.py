"""Kernels that run long: a table of op -> a graph whose kernel of that op computes for some
tenths of a second or more on one core. bench/isolation.py --cancel cuts them short and measures;
run_cancel.py checks those that are known to stop (STOP)."""

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
raw = tf.raw_ops


def _large(*shape, dtype=tf.float32):
    if dtype.is_complex:
        part = tf.float32 if dtype == tf.complex64 else tf.float64
        return tf.complex(_large(*shape, dtype=part), _large(*shape, dtype=part))
    if dtype.is_integer:
        return tf.cast(tf.random.uniform(shape, 0, 100, tf.int32, seed=1), dtype)
    return tf.cast(tf.random.uniform(shape, seed=1), dtype)


def _indices(n, below, dtype=tf.int32):
    return tf.random.uniform([n], 0, below, dtype, seed=1)


def _sorted(n, below, dtype=tf.int64):
    return tf.range(n, dtype=dtype) * below // n


def _numbers(n):
    return tf.strings.as_string(tf.range(n))


def _text(n, word="a b "):
    return tf.strings.reduce_join(tf.fill([n], word))


def _positive(n, dtype=tf.float32):
    return _large(n, n, dtype=dtype) + tf.cast(n * 1000, dtype) * tf.eye(n, dtype=dtype)


def _sparse(n, rows, columns):
    """Indices and values of n entries in order, of a matrix of that size."""
    at = tf.range(n, dtype=tf.int64) * (rows * columns // n)
    return (tf.stack([at // columns, at % columns], 1), _large(n),
            np.array([rows, columns], np.int64))


def _int64(*values):
    return np.array(values, np.int64)


def _matmul(dtype, n):
    return lambda: tf.matmul(_large(n, n, dtype=dtype), _large(n, n, dtype=dtype))


def _conv(rank, direction, dtype=tf.float32, batch=1, side=128, channels=64, groups=1):
    """One large image: no split over the batch helps."""
    def build():
        picture = [batch] + [side] * rank + [channels]
        window = [3] * rank + [channels // groups, channels]
        strides, shape = [1] * (rank + 2), np.array(picture)
        x, w = _large(*picture, dtype=dtype), _large(*window, dtype=dtype)
        if direction == "forward":
            return (raw.Conv2D if rank == 2 else raw.Conv3D)(input=x, filter=w, strides=strides,
                                                             padding="SAME")
        if direction == "input":
            call = raw.Conv2DBackpropInput if rank == 2 else raw.Conv3DBackpropInputV2
            return call(input_sizes=shape, filter=w, out_backprop=x, strides=strides,
                        padding="SAME")
        call = raw.Conv2DBackpropFilter if rank == 2 else raw.Conv3DBackpropFilterV2
        return call(input=x, filter_sizes=np.array(window), out_backprop=x, strides=strides,
                    padding="SAME")
    return build


def _depthwise(direction):
    def build():
        x, w = _large(4, 512, 512, 32), _large(7, 7, 32, 1)
        if direction == "forward":
            return raw.DepthwiseConv2dNative(input=x, filter=w, strides=[1] * 4, padding="SAME")
        if direction == "input":
            return raw.DepthwiseConv2dNativeBackpropInput(
                input_sizes=[4, 512, 512, 32], filter=w, out_backprop=x, strides=[1] * 4,
                padding="SAME")
        return raw.DepthwiseConv2dNativeBackpropFilter(
            input=x, filter_sizes=[7, 7, 32, 1], out_backprop=x, strides=[1] * 4, padding="SAME")
    return build


def _examples(n):
    example = tf.train.Example()
    for i in range(20):
        example.features.feature[f"f{i}"].float_list.value.extend([1.0, 2.0])
    data = example.SerializeToString()
    return tf.fill([n], data)


def _parse():
    return tf.io.parse_example(_examples(200_000), {
        f"f{i}": tf.io.FixedLenFeature([2], tf.float32) for i in range(20)})["f0"]


def _parse_var():
    return tf.io.parse_example(_examples(200_000), {
        f"f{i}": tf.io.VarLenFeature(tf.float32) for i in range(20)})["f0"].values


def _lstm():
    n, cell, steps = 64, 512, 60
    return raw.BlockLSTM(
        seq_len_max=np.int64(steps), x=_large(steps, n, cell), cs_prev=_large(n, cell),
        h_prev=_large(n, cell), w=_large(2 * cell, 4 * cell), wci=_large(cell), wcf=_large(cell),
        wco=_large(cell), b=_large(4 * cell))[0]


def _lstm_cell():
    n, cell = 2048, 1024
    return raw.LSTMBlockCell(x=_large(n, cell), cs_prev=_large(n, cell), h_prev=_large(n, cell),
                             w=_large(2 * cell, 4 * cell), wci=_large(cell), wcf=_large(cell),
                             wco=_large(cell), b=_large(4 * cell))[0]


def _gru_cell():
    n, cell = 2048, 1024
    return raw.GRUBlockCell(x=_large(n, cell), h_prev=_large(n, cell),
                            w_ru=_large(2 * cell, 2 * cell), w_c=_large(2 * cell, cell),
                            b_ru=_large(2 * cell), b_c=_large(cell))[3]


def _ctc_loss():
    t, batch, classes, labels = 300, 64, 2000, 100
    at = tf.range(batch * labels, dtype=tf.int64)
    return raw.CTCLoss(inputs=_large(t, batch, classes),
                       labels_indices=tf.stack([at // labels, at % labels], 1),
                       labels_values=tf.cast(at % 1000, tf.int32),
                       sequence_length=np.full(batch, t, np.int32),
                       ignore_longer_outputs_than_inputs=True)[0]


def _ctc_beam():
    return raw.CTCBeamSearchDecoder(inputs=_large(100, 8, 200),
                                    sequence_length=np.full(8, 100, np.int32), beam_width=50,
                                    top_paths=1)[3]


def _boxes(n):
    corner = _large(n, 2) * 0.98  # so that the box ends inside, too
    return tf.concat([corner, corner + 0.01], 1)


def _binary(n):
    return tf.fill([n], b"x" * 100)


CASES = {
    # products
    "MatMul": _matmul(tf.float32, 3000),
    "MatMul/double": _matmul(tf.float64, 1800),
    "MatMul/complex64": _matmul(tf.complex64, 1400),
    "MatMul/complex128": _matmul(tf.complex128, 1000),
    "MatMul/int32": _matmul(tf.int32, 1000),
    "MatMul/int64": _matmul(tf.int64, 1000),
    "MatMul/bfloat16": _matmul(tf.bfloat16, 2500),
    "MatMul/half": _matmul(tf.half, 2500),
    "MatMul/tall": lambda: tf.matmul(_large(1, 30_000_000), _large(30_000_000, 4)),
    "MatMul/inner": lambda: tf.matmul(_large(16, 8_000_000), _large(8_000_000, 16)),
    "MatMul/inner int32": lambda: tf.matmul(_large(8, 8_000_000, dtype=tf.int32),
                                            _large(8_000_000, 8, dtype=tf.int32)),
    "MatMul/inner transposed": lambda: tf.matmul(_large(16, 8_000_000), _large(16, 8_000_000),
                                                 transpose_b=True),
    "BatchMatMulV2/inner": lambda: tf.matmul(_large(2, 8, 8_000_000), _large(2, 8_000_000, 8)),
    "Einsum/batch": lambda: tf.einsum("bij,bjk->bik", _large(2, 2500, 2500),
                                      _large(2, 2500, 2500)),
    "BatchMatMulV2": lambda: tf.matmul(_large(2, 2500, 2500), _large(2, 2500, 2500)),
    "BatchMatMulV2/int64": lambda: tf.matmul(_large(2, 900, 900, dtype=tf.int64),
                                             _large(2, 900, 900, dtype=tf.int64)),
    "Einsum": lambda: tf.einsum("abc,cd,dbe->aeb", _large(30, 60, 500), _large(500, 400),
                                _large(400, 60, 500)),
    "SparseMatMul": lambda: raw.SparseMatMul(a=_large(2500, 2500), b=_large(2500, 2500)),
    "QuantizedMatMul": lambda: raw.QuantizedMatMul(
        a=tf.cast(_large(1500, 1500, dtype=tf.int32), tf.quint8),
        b=tf.cast(_large(1500, 1500, dtype=tf.int32), tf.quint8), min_a=0., max_a=1., min_b=0.,
        max_b=1.)[0],
    "SparseTensorDenseMatMul": lambda: raw.SparseTensorDenseMatMul(
        a_indices=_sparse(2_000_000, 10_000, 10_000)[0], a_values=_large(2_000_000),
        a_shape=[10_000, 10_000], b=_large(10_000, 256)),
    "SparseMatrixSparseMatMul": lambda: raw.CSRSparseMatrixToDense(
        sparse_input=raw.SparseMatrixSparseMatMul(
            a=raw.DenseToCSRSparseMatrix(dense_input=_large(1200, 1200),
                                         indices=tf.where(_large(1200, 1200) >= 0)),
            b=raw.DenseToCSRSparseMatrix(dense_input=_large(1200, 1200),
                                         indices=tf.where(_large(1200, 1200) >= 0)),
            type=tf.float32), type=tf.float32),
    "SparseMatrixMatMul": lambda: raw.SparseMatrixMatMul(
        a=raw.DenseToCSRSparseMatrix(dense_input=_large(2000, 2000),
                                     indices=tf.where(_large(2000, 2000) >= 0)),
        b=_large(2000, 512)),
    # convolutions
    "Conv2D": _conv(2, "forward", side=400),
    "Conv2D/batch": _conv(2, "forward", batch=24, side=128),
    "Conv2D/double": _conv(2, "forward", tf.float64, side=128),
    "Conv2D/half": _conv(2, "forward", tf.half, side=300),
    "Conv2D/int32": _conv(2, "forward", tf.int32, side=100),
    "Conv2D/groups": _conv(2, "forward", side=512, groups=4),
    "Conv2D/big window": lambda: tf.nn.conv2d(_large(2, 200, 200, 64), _large(7, 7, 64, 128), 1,
                                              "SAME"),
    "Conv2DBackpropInput": _conv(2, "input", side=400),
    "Conv2DBackpropInput/double": _conv(2, "input", tf.float64, side=128),
    "Conv2DBackpropFilter": _conv(2, "filter", side=400),
    "Conv2DBackpropFilter/batch": _conv(2, "filter", batch=24, side=128),
    "Conv2DBackpropFilter/double": _conv(2, "filter", tf.float64, side=128),
    "Conv3D": _conv(3, "forward", side=48),
    "Conv3DBackpropInputV2": _conv(3, "input", side=48),
    "Conv3DBackpropFilterV2": _conv(3, "filter", side=48),
    "DepthwiseConv2dNative": _depthwise("forward"),
    "DepthwiseConv2dNativeBackpropInput": _depthwise("input"),
    "DepthwiseConv2dNativeBackpropFilter": _depthwise("filter"),
    "QuantizedConv2D": lambda: raw.QuantizedConv2D(
        input=tf.cast(_large(1, 128, 128, 64, dtype=tf.int32), tf.quint8),
        filter=tf.cast(_large(3, 3, 64, 64, dtype=tf.int32), tf.quint8), min_input=0.,
        max_input=1., min_filter=0., max_filter=1., strides=[1] * 4, padding="SAME")[0],
    "Dilation2D": lambda: raw.Dilation2D(input=_large(4, 512, 512, 16), filter=_large(5, 5, 16),
                                         strides=[1] * 4, rates=[1] * 4, padding="SAME"),
    "ExtractImagePatches": lambda: raw.ExtractImagePatches(
        images=_large(4, 512, 512, 8), ksizes=[1, 5, 5, 1], strides=[1] * 4, rates=[1] * 4,
        padding="SAME"),
    # pooling, normalisation
    "MaxPool": lambda: raw.MaxPool(input=_large(4, 1024, 1024, 8), ksize=[1, 9, 9, 1],
                                   strides=[1] * 4, padding="SAME"),
    "MaxPoolGrad": lambda: raw.MaxPoolGrad(
        orig_input=_large(2, 1024, 1024, 8), orig_output=_large(2, 1024, 1024, 8),
        grad=_large(2, 1024, 1024, 8), ksize=[1, 9, 9, 1], strides=[1] * 4, padding="SAME"),
    "AvgPool": lambda: raw.AvgPool(value=_large(4, 1024, 1024, 8), ksize=[1, 9, 9, 1],
                                   strides=[1] * 4, padding="SAME"),
    "AvgPoolGrad": lambda: raw.AvgPoolGrad(
        orig_input_shape=[2, 1024, 1024, 8], grad=_large(2, 1024, 1024, 8), ksize=[1, 9, 9, 1],
        strides=[1] * 4, padding="SAME"),
    "MaxPool3D": lambda: raw.MaxPool3D(input=_large(1, 128, 128, 128, 8), ksize=[1, 5, 5, 5, 1],
                                       strides=[1] * 5, padding="SAME"),
    "FractionalMaxPool": lambda: raw.FractionalMaxPool(
        value=_large(8, 1024, 1024, 8), pooling_ratio=[1., 1.5, 1.5, 1.])[0],
    "FractionalMaxPoolGrad": lambda: raw.FractionalMaxPoolGrad(
        orig_input=_large(8, 1024, 1024, 8), orig_output=_large(8, 512, 512, 8),
        out_backprop=_large(8, 512, 512, 8), row_pooling_sequence=np.arange(0, 1025, 2),
        col_pooling_sequence=np.arange(0, 1025, 2)),
    "FractionalAvgPoolGrad": lambda: raw.FractionalAvgPoolGrad(
        orig_input_tensor_shape=np.array([8, 1024, 1024, 8]), out_backprop=_large(8, 512, 512, 8),
        row_pooling_sequence=np.arange(0, 1025, 2), col_pooling_sequence=np.arange(0, 1025, 2)),
    "MaxPoolGradWithArgmax": lambda: raw.MaxPoolGradWithArgmax(
        input=_large(2, 1024, 1024, 16), grad=_large(2, 1024, 1024, 16),
        argmax=tf.cast(tf.reshape(_indices(1 << 25, 1 << 20), [2, 1024, 1024, 16]), tf.int64),
        ksize=[1, 2, 2, 1], strides=[1] * 4, padding="SAME"),
    "MaxPoolWithArgmax": lambda: raw.MaxPoolWithArgmax(
        input=_large(2, 1024, 1024, 8), ksize=[1, 9, 9, 1], strides=[1] * 4, padding="SAME")[0],
    "LRN": lambda: tf.nn.lrn(_large(4, 512, 512, 32)),
    "LRNGrad": lambda: raw.LRNGrad(input_grads=_large(4, 512, 512, 32),
                                   input_image=_large(4, 512, 512, 32),
                                   output_image=_large(4, 512, 512, 32)),
    "FusedBatchNormV3": lambda: raw.FusedBatchNormV3(
        x=_large(32, 512, 512, 8), scale=_large(8), offset=_large(8), mean=[], variance=[])[0],
    "FusedBatchNormGradV3": lambda: raw.FusedBatchNormGradV3(
        y_backprop=_large(32, 512, 512, 8), x=_large(32, 512, 512, 8), scale=_large(8),
        reserve_space_1=_large(8), reserve_space_2=_large(8), reserve_space_3=_large(8))[0],
    "Softmax": lambda: tf.nn.softmax(_large(1, 60_000_000)),
    "SoftmaxCrossEntropyWithLogits": lambda: raw.SoftmaxCrossEntropyWithLogits(
        features=_large(1, 30_000_000), labels=_large(1, 30_000_000))[0],
    "SparseSoftmaxCrossEntropyWithLogits": lambda: raw.SparseSoftmaxCrossEntropyWithLogits(
        features=_large(1, 40_000_000), labels=[3])[0],
    "LogSoftmax": lambda: tf.nn.log_softmax(_large(1, 60_000_000)),
    "Softmax/half": lambda: tf.nn.softmax(_large(1, 40_000_000, dtype=tf.half)),
    "InTopKV2": lambda: raw.InTopKV2(predictions=_large(1, 200_000_000), targets=[3], k=5),
    "BiasAddGrad": lambda: raw.BiasAddGrad(out_backprop=_large(150_000_000, 2)),
    "L2Loss": lambda: raw.L2Loss(t=_large(400_000_000)),
    # linear algebra
    "Cholesky": lambda: tf.linalg.cholesky(_positive(3000)),
    "CholeskyGrad": lambda: raw.CholeskyGrad(l=_positive(1500), grad=_large(1500, 1500)),
    "MatrixInverse": lambda: tf.linalg.inv(_positive(2000)),
    "MatrixInverse/double": lambda: tf.linalg.inv(_positive(2500, tf.float64)),
    "MatrixInverse/half": lambda: tf.linalg.inv(_positive(2000)),
    "MatrixDeterminant": lambda: tf.linalg.det(_positive(2500)),
    "LogMatrixDeterminant": lambda: tf.linalg.slogdet(_positive(2500))[0],
    "MatrixSolve": lambda: tf.linalg.solve(_positive(2000), _large(2000, 2000)),
    "MatrixSolveLs": lambda: tf.linalg.lstsq(_positive(1000), _large(1000, 10), fast=False),
    "MatrixSolveLs/fast": lambda: tf.linalg.lstsq(_positive(1500), _large(1500, 10)),
    "MatrixTriangularSolve": lambda: tf.linalg.triangular_solve(_positive(2500),
                                                                _large(2500, 2500)),
    "BandedTriangularSolve": lambda: raw.BandedTriangularSolve(matrix=_large(50, 50_000),
                                                               rhs=_large(50_000, 500)),
    "TridiagonalSolve": lambda: raw.TridiagonalSolve(diagonals=_large(3, 50_000),
                                                     rhs=_large(50_000, 1000)),
    "TridiagonalMatMul": lambda: raw.TridiagonalMatMul(
        superdiag=_large(1, 100_000), maindiag=_large(1, 100_000), subdiag=_large(1, 100_000),
        rhs=_large(100_000, 1000)),
    "Qr": lambda: tf.linalg.qr(_large(2000, 2000))[0],
    "Svd": lambda: tf.linalg.svd(_large(1200, 1200))[0],
    "SelfAdjointEigV2": lambda: tf.linalg.eigh(_positive(1500))[0],
    "Eig": lambda: tf.linalg.eig(_large(700, 700))[0],
    "Lu": lambda: tf.linalg.lu(_large(1800, 1800))[0],
    "MatrixExponential": lambda: tf.linalg.expm(_large(1200, 1200) * 1e-3),
    "MatrixLogarithm": lambda: raw.MatrixLogarithm(input=tf.complex(_positive(400),
                                                                    _large(400, 400))),
    "MatrixSquareRoot": lambda: raw.MatrixSquareRoot(input=_positive(700)),
    "Cross": lambda: raw.Cross(a=_large(60_000_000, 3), b=_large(60_000_000, 3)),
    # transforms
    "FFT": lambda: raw.FFT(input=_large(1 << 24, dtype=tf.complex64)),
    "FFT/Bluestein": lambda: raw.FFT(input=_large(5_000_011, dtype=tf.complex64)),
    "IFFT": lambda: raw.IFFT(input=_large(1 << 24, dtype=tf.complex64)),
    "FFT2D": lambda: raw.FFT2D(input=_large(4096, 4096, dtype=tf.complex64)),
    "FFT2D/long": lambda: raw.FFT2D(input=_large(2, 1 << 23, dtype=tf.complex64)),
    "FFT3D": lambda: raw.FFT3D(input=_large(256, 256, 256, dtype=tf.complex64)),
    "FFT3D/long": lambda: raw.FFT3D(input=_large(1 << 22, 2, 2, dtype=tf.complex64)),
    "RFFT": lambda: raw.RFFT(input=_large(1 << 24), fft_length=[1 << 24]),
    "RFFT/Bluestein": lambda: raw.RFFT(input=_large(5_000_011), fft_length=[5_000_011]),
    "IRFFT": lambda: raw.IRFFT(input=_large(1 << 23, dtype=tf.complex64),
                               fft_length=[(1 << 24) - 2]),
    # scans, sorts, sets
    "Cumsum": lambda: tf.cumsum(_large(200_000_000)),
    "Cumprod": lambda: tf.math.cumprod(_large(200_000_000)),
    "CumulativeLogsumexp": lambda: raw.CumulativeLogsumexp(x=_large(20_000_000), axis=0),
    "TopKV2": lambda: tf.math.top_k(_large(10_000_000), 5_000_000)[0],
    "TopKV2/small k": lambda: tf.math.top_k(_large(300_000_000), 3)[0],
    "NthElement": lambda: raw.NthElement(input=_large(100_000_000), n=50_000_000),
    "Unique": lambda: tf.unique(_large(10_000_000))[0],
    "UniqueV2": lambda: raw.UniqueV2(x=_large(3_000_000, 2), axis=[0])[0],
    "UniqueWithCounts": lambda: tf.unique_with_counts(_large(10_000_000))[0],
    "Unique/strings": lambda: tf.unique(_numbers(3_000_000))[0],
    "ListDiff": lambda: raw.ListDiff(x=_indices(8_000_000, 1 << 30),
                                     y=_indices(4_000_000, 1 << 30))[0],
    "Bincount": lambda: raw.Bincount(arr=_indices(150_000_000, 1000), size=1000, weights=[0.] * 0),
    "DenseBincount": lambda: raw.DenseBincount(input=_indices(150_000_000, 1000), size=1000,
                                               weights=np.zeros([0], np.float32)),
    "HistogramFixedWidth": lambda: tf.histogram_fixed_width(_large(100_000_000), [0., 1.]),
    "Bucketize": lambda: raw.Bucketize(input=_large(50_000_000),
                                       boundaries=list(np.linspace(0, 1, 100))),
    "LowerBound": lambda: raw.LowerBound(sorted_inputs=tf.cumsum(_large(1, 1_000_000), 1),
                                         values=_large(1, 20_000_000)),
    "Where": lambda: tf.where(_large(100_000_000) > .5),
    "Range": lambda: tf.range(_indices(1, 1)[0] + 500_000_000),
    "LinSpace": lambda: tf.linspace(0., 1., _indices(1, 1)[0] + 300_000_000),
    "InvertPermutation": lambda: tf.math.invert_permutation(
        tf.reverse(tf.range(_indices(1, 1)[0] + 50_000_000), [0])),
    # segments
    "SegmentSum": lambda: raw.SegmentSum(data=_large(3_000_000, 64),
                                         segment_ids=_sorted(3_000_000, 1000)),
    "SegmentMean": lambda: raw.SegmentMean(data=_large(3_000_000, 64),
                                           segment_ids=_sorted(3_000_000, 1000)),
    "SegmentMax/one": lambda: raw.SegmentMax(data=_large(200_000_000),
                                             segment_ids=_sorted(200_000_000, 1)),
    "SegmentMin/one": lambda: raw.SegmentMin(data=_large(4_000_000, 64),
                                             segment_ids=_sorted(4_000_000, 1)),
    "SegmentProd/one": lambda: raw.SegmentProd(data=_large(4_000_000, 64),
                                               segment_ids=_sorted(4_000_000, 1)),
    "SegmentSum/one": lambda: raw.SegmentSum(data=_large(200_000_000),
                                             segment_ids=_sorted(200_000_000, 1)),
    "UnsortedSegmentSum": lambda: tf.math.unsorted_segment_sum(
        _large(100_000_000), _indices(100_000_000, 1000), 1000),
    "UnsortedSegmentMax": lambda: tf.math.unsorted_segment_max(
        _large(2_000_000, 64), _indices(2_000_000, 1000), 1000),
    "SparseSegmentSum": lambda: raw.SparseSegmentSum(
        data=_large(100_000, 64), indices=_indices(10_000_000, 100_000),
        segment_ids=tf.cast(_sorted(10_000_000, 1000), tf.int32)),
    "SparseSegmentMeanGrad": lambda: raw.SparseSegmentMeanGrad(
        grad=_large(1000, 64), indices=_indices(10_000_000, 100_000),
        segment_ids=tf.cast(_sorted(10_000_000, 1000), tf.int32), output_dim0=100_000),
    "UnsortedSegmentJoin": lambda: tf.strings.unsorted_segment_join(
        _numbers(5_000_000), _indices(5_000_000, 10), 10),
    # arrays
    "Transpose": lambda: tf.transpose(_large(12_000, 12_000)),
    "GatherV2": lambda: tf.gather(_large(50_000_000), _indices(60_000_000, 50_000_000)),
    "GatherNd": lambda: tf.gather_nd(_large(1000, 1000), tf.stack(
        [_indices(20_000_000, 1000), _indices(20_000_000, 1000)], 1)),
    "ScatterNd": lambda: tf.scatter_nd(_indices(50_000_000, 1000)[:, None], _large(50_000_000),
                                       [1000]),
    "TensorScatterAdd": lambda: tf.tensor_scatter_nd_add(
        _large(1000), _indices(50_000_000, 1000)[:, None], _large(50_000_000)),
    "TensorScatterUpdate": lambda: tf.tensor_scatter_nd_update(
        _large(1000), _indices(50_000_000, 1000)[:, None], _large(50_000_000)),
    "InplaceUpdate": lambda: raw.InplaceUpdate(x=_large(1000), i=_indices(50_000_000, 1000),
                                               v=_large(50_000_000)),
    "UnravelIndex": lambda: raw.UnravelIndex(indices=_indices(20_000_000, 1000),
                                             dims=[10, 100]),
    "OneHot": lambda: tf.one_hot(_indices(2_000_000, 100), 100),
    "Tile": lambda: tf.tile(_large(1000, 1000), [20, 20]),
    "Pad": lambda: tf.pad(_large(18_000, 18_000), [[1, 1], [1, 1]]),
    "MirrorPad": lambda: tf.pad(_large(18_000, 18_000), [[1, 1], [1, 1]], "REFLECT"),
    "ReverseV2": lambda: tf.reverse(_large(18_000, 18_000), [1]),
    "ReverseSequence": lambda: tf.reverse_sequence(
        _large(10_000, 20_000), tf.fill([10_000], 20_000), seq_axis=1, batch_axis=0),
    "ConcatV2": lambda: tf.concat([_large(10_000, 10_000), _large(10_000, 10_000)], 1),
    "Pack": lambda: tf.stack([_large(100_000_000), _large(100_000_000)], 1),
    "Unpack": lambda: tf.unstack(_large(100_000_000, 2), axis=1)[0],
    "SplitV": lambda: tf.split(_large(100_000_000, 4), [1, 3], 1)[0],
    "StridedSlice": lambda: _large(400_000_000)[::2],
    "Slice": lambda: tf.slice(_large(18_000, 18_000), [1, 1], [17_000, 17_000]),
    "SpaceToBatchND": lambda: tf.space_to_batch_nd(_large(16, 1024, 1024, 8), [2, 2],
                                                   [[0, 0], [0, 0]]),
    "SpaceToDepth": lambda: tf.nn.space_to_depth(_large(16, 1024, 1024, 8), 2),
    "MatrixBandPart": lambda: tf.linalg.band_part(_large(18_000, 18_000), 1, 1),
    "MatrixDiagV3": lambda: tf.linalg.diag(_large(18_000)),
    "MatrixSetDiagV3": lambda: tf.linalg.set_diag(_large(18_000, 18_000), _large(18_000)),
    "MatrixDiagPartV3": lambda: tf.linalg.diag_part(_large(9000, 9000), k=(-4000, 4000)),
    "Diag": lambda: tf.linalg.tensor_diag(_large(18_000)),
    "DynamicPartition": lambda: tf.dynamic_partition(_large(50_000_000),
                                                     _indices(50_000_000, 4), 4)[0],
    "DynamicStitch": lambda: tf.dynamic_stitch([tf.range(50_000_000)], [_large(50_000_000)]),
    "Cast": lambda: tf.cast(_large(200_000_000), tf.float64),
    "Bitcast": lambda: tf.bitcast(_large(100_000_000), tf.int32) + 1,
    "QuantizeV2": lambda: tf.quantization.quantize(_large(100_000_000), 0., 1., tf.quint8)[0],
    "Dequantize": lambda: tf.quantization.dequantize(
        tf.cast(_large(100_000_000, dtype=tf.int32), tf.quint8), 0., 1.),
    "FakeQuantWithMinMaxVars": lambda: raw.FakeQuantWithMinMaxVars(inputs=_large(100_000_000),
                                                                   min=0., max=1.),
    "Fingerprint": lambda: raw.Fingerprint(data=_large(20_000_000, 4), method="farmhash64"),
    "DecodeRaw/long": lambda: tf.io.decode_raw([_text(8_000_000, "a" * 30)], tf.uint8),
    "DecodeRaw": lambda: tf.io.decode_raw(_binary(5_000_000), tf.uint8),
    "DecodeCompressed": lambda: raw.DecodeCompressed(
        bytes=np.array([__import__("zlib").compress(b"x" * 300_000_000)]),
        compression_type="ZLIB"),
    "CheckNumerics": lambda: tf.debugging.check_numerics(_large(400_000_000), "x"),
    "Sum": lambda: tf.reduce_sum(_large(400_000_000)),
    "Sum/columns": lambda: tf.reduce_sum(_large(200_000_000, 2), 0),
    "Sum/middle": lambda: tf.reduce_sum(_large(100, 20_000, 100), 1),
    "Prod": lambda: tf.reduce_prod(_large(400_000_000)),
    "ArgMax": lambda: tf.argmax(_large(300_000_000)),
    "ArgMax/columns": lambda: tf.argmax(_large(50_000_000, 4)),
    "ArgMin/half": lambda: tf.argmin(_large(100_000_000, dtype=tf.half)),
    "All": lambda: tf.reduce_all(_large(300_000_000) >= 0),
    "EuclideanNorm": lambda: raw.EuclideanNorm(input=_large(300_000_000), axis=0),
    # elementwise, random
    "Mul": lambda: _large(20_000, 1) * _large(1, 20_000),
    "Igamma": lambda: tf.math.igamma(_large(5_000_000), _large(5_000_000)),
    "Betainc": lambda: tf.math.betainc(_large(5_000_000), _large(5_000_000), _large(5_000_000)),
    "Zeta": lambda: tf.math.zeta(_large(5_000_000) + 1.1, _large(5_000_000)),
    "Polygamma": lambda: tf.math.polygamma(tf.floor(_large(5_000_000) * 5), _large(5_000_000)),
    "BesselK1": lambda: tf.math.special.bessel_k1(_large(20_000_000)),
    "Pow": lambda: tf.pow(_large(50_000_000), _large(50_000_000)),
    "AddN": lambda: tf.add_n([_large(100_000_000)] * 4),
    "ClipByValue": lambda: raw.ClipByValue(t=_large(300_000_000), clip_value_min=0.,
                                           clip_value_max=.5),
    "SelectV2": lambda: tf.where(_large(100_000_000) > .5, _large(100_000_000), 0.),
    "RandomUniform": lambda: tf.random.uniform([400_000_000], seed=1),
    "RandomStandardNormal": lambda: tf.random.normal([50_000_000], seed=1),
    "TruncatedNormal": lambda: tf.random.truncated_normal([30_000_000], seed=1),
    "RandomGamma": lambda: tf.random.gamma([20_000_000], 1.5, seed=1),
    "RandomGammaGrad": lambda: raw.RandomGammaGrad(alpha=_large(5_000_000),
                                                   sample=_large(5_000_000)),
    "RandomPoissonV2": lambda: tf.random.poisson([10_000_000], 50., seed=1),
    "RandomShuffle": lambda: tf.random.shuffle(_large(50_000_000), seed=1),
    "Multinomial/classes": lambda: tf.random.categorical(_large(1, 30_000_000), 1000, seed=1),
    "Multinomial": lambda: tf.random.categorical(_large(1, 10_000), 2_000_000, seed=1),
    "StatelessRandomUniform": lambda: tf.random.stateless_uniform([400_000_000], [1, 2]),
    "StatelessRandomNormal": lambda: tf.random.stateless_normal([50_000_000], [1, 2]),
    "StatelessRandomBinomial": lambda: tf.random.stateless_binomial(
        [5_000_000], [1, 2], tf.fill([5_000_000], 100.), tf.fill([5_000_000], .5)),
    "ParameterizedTruncatedNormal": lambda: raw.ParameterizedTruncatedNormal(
        shape=[30_000_000], means=0., stdevs=1., minvals=-1., maxvals=1., seed=1),
    "RandomIndexShuffle": lambda: raw.RandomIndexShuffle(
        index=_indices(3_000_000, 1000), seed=[1, 2, 3], max_index=100_000),
    "LogUniformCandidateSampler": lambda: raw.LogUniformCandidateSampler(
        true_classes=np.zeros([1, 1], np.int64), num_true=1, num_sampled=2_000_000, unique=True,
        range_max=1 << 30, seed=1)[0],
    # images
    "ResizeBilinear": lambda: tf1.image.resize_bilinear(_large(1, 1000, 1000, 3), [6000, 6000]),
    "ResizeBicubic": lambda: tf1.image.resize_bicubic(_large(1, 1000, 1000, 3), [4000, 4000]),
    "ResizeNearestNeighbor": lambda: tf1.image.resize_nearest_neighbor(
        _large(1, 1000, 1000, 3), [12_000, 12_000]),
    "ResizeArea": lambda: tf1.image.resize_area(_large(1, 4000, 4000, 3), [3000, 3000]),
    "ResizeBilinearGrad": lambda: raw.ResizeBilinearGrad(
        grads=_large(1, 6000, 6000, 3), original_image=_large(1, 1000, 1000, 3)),
    "ResizeBicubicGrad": lambda: raw.ResizeBicubicGrad(
        grads=_large(1, 4000, 4000, 3), original_image=_large(1, 1000, 1000, 3)),
    "ScaleAndTranslate": lambda: raw.ScaleAndTranslate(
        images=_large(1, 2000, 2000, 3), size=[4000, 4000], scale=[2., 2.], translation=[0., 0.]),
    "CropAndResize": lambda: tf.image.crop_and_resize(
        _large(1, 1000, 1000, 3), _boxes(100), np.zeros(100, np.int32), [600, 600]),
    "CropAndResizeGradImage": lambda: raw.CropAndResizeGradImage(
        grads=_large(100, 600, 600, 3), boxes=_boxes(100), box_ind=np.zeros(100, np.int32),
        image_size=[1, 1000, 1000, 3], T=tf.float32),
    "ImageProjectiveTransformV3": lambda: raw.ImageProjectiveTransformV3(
        images=_large(1, 6000, 6000, 3), transforms=[[1., .1, 0, .1, 1, 0, 0, 0]],
        output_shape=[6000, 6000], interpolation="BILINEAR", fill_value=0.),
    "AdjustContrastv2": lambda: raw.AdjustContrastv2(images=_large(1, 12_000, 12_000, 3),
                                                     contrast_factor=.5),
    "AdjustHue": lambda: raw.AdjustHue(images=_large(1, 5000, 5000, 3), delta=.2),
    "RGBToHSV": lambda: tf.image.rgb_to_hsv(_large(5000, 5000, 3)),
    "NonMaxSuppressionV3": lambda: tf.image.non_max_suppression(_boxes(60_000), _large(60_000),
                                                                60_000, .99),
    "CombinedNonMaxSuppression": lambda: tf.image.combined_non_max_suppression(
        _boxes(5000)[None, :, None], _large(1, 5000, 20), 2000, 20_000, .99)[0],
    "SampleDistortedBoundingBoxV2": lambda: raw.SampleDistortedBoundingBoxV2(
        image_size=[1000, 1000, 3], bounding_boxes=_boxes(1_000_000)[None],
        min_object_covered=1., max_attempts=1000, seed=1)[0],
    "DrawBoundingBoxesV2": lambda: raw.DrawBoundingBoxesV2(
        images=_large(1, 2000, 2000, 3), boxes=tf.tile(_boxes(1), [50_000, 1])[None] * 1.5,
        colors=[[1., 0, 0]]),
    "EncodePng": lambda: tf.io.encode_png(tf.cast(_large(3000, 3000, 3, dtype=tf.int32),
                                                  tf.uint8)),
    "EncodeJpeg": lambda: tf.io.encode_jpeg(tf.cast(_large(6000, 6000, 3, dtype=tf.int32),
                                                    tf.uint8)),
    "Mfcc": lambda: raw.Mfcc(spectrogram=_large(1, 20_000, 513), sample_rate=16_000,
                             filterbank_channel_count=200, dct_coefficient_count=100),
    "AudioSpectrogram": lambda: raw.AudioSpectrogram(input=_large(8_000_000, 1), window_size=1024,
                                                     stride=100),
    "EncodeWav": lambda: raw.EncodeWav(audio=_large(60_000_000, 1), sample_rate=44_100),
    # texts
    "StringSplitV2": lambda: raw.StringSplitV2(input=[_text(4_000_000)], sep=" ")[1],
    "StringSplit/bytes": lambda: raw.StringSplit(input=[_text(4_000_000)], delimiter="")[1],
    "StringJoin": lambda: tf.strings.join([_numbers(5_000_000), _numbers(5_000_000)]),
    "ReduceJoin": lambda: tf.strings.reduce_join(_numbers(8_000_000)),
    "AsString": lambda: tf.strings.as_string(_large(3_000_000)),
    "StringToNumber": lambda: tf.strings.to_number(_numbers(8_000_000)),
    "StringToHashBucketFast": lambda: tf.strings.to_hash_bucket_fast(_numbers(10_000_000), 1000),
    "StringLower": lambda: tf.strings.lower(_numbers(8_000_000)),
    "StringLower/long": lambda: tf.strings.lower(_text(60_000_000), encoding="utf-8"),
    "StringUpper/bytes": lambda: tf.strings.upper(_text(200_000_000)),
    "StringUpper/long": lambda: tf.strings.upper(_text(60_000_000), encoding="utf-8"),
    "StringLength/long": lambda: tf.strings.length(_text(100_000_000), unit="UTF8_CHAR"),
    "Substr": lambda: tf.strings.substr(_numbers(10_000_000), 0, 3),
    "StaticRegexReplace": lambda: raw.StaticRegexReplace(input=[_text(8_000_000)], pattern="a+",
                                                         rewrite="bb"),
    "StaticRegexFullMatch": lambda: raw.StaticRegexFullMatch(
        input=[_text(8_000_000, "a b " * 8)], pattern="[a-z ]*"),
    "RegexReplace": lambda: raw.RegexReplace(input=[_text(8_000_000)], pattern="a+",
                                             rewrite="bb"),
    "RegexFullMatch": lambda: raw.RegexFullMatch(input=[_text(8_000_000, "a b " * 8)],
                                                 pattern="(a b )*"),
    "StringNGrams": lambda: tf.strings.ngrams(_numbers(2_000_000), 3),
    "UnicodeDecode": lambda: raw.UnicodeDecode(input=[_text(4_000_000)],
                                               input_encoding="UTF-8")[1],
    "UnicodeTranscode": lambda: tf.strings.unicode_transcode(_text(10_000_000), "UTF-8",
                                                             "UTF-16-BE"),
    "UnicodeEncode": lambda: raw.UnicodeEncode(
        input_values=_indices(30_000_000, 1000), input_splits=np.array([0, 30_000_000], np.int64),
        output_encoding="UTF-8"),
    "EncodeBase64": lambda: tf.io.encode_base64(_text(80_000_000)),
    "DecodeBase64": lambda: tf.io.decode_base64(_text(80_000_000, "abcd")),
    "EditDistance": lambda: raw.EditDistance(
        hypothesis_indices=tf.range(5000, dtype=tf.int64)[:, None],
        hypothesis_values=_indices(5000, 100), hypothesis_shape=np.array([5000], np.int64),
        truth_indices=tf.range(5000, dtype=tf.int64)[:, None] * 1, truth_values=_indices(5000, 90),
        truth_shape=np.array([5000], np.int64)),
    "ParseExampleV2": _parse,
    "ParseExampleV2/sparse": _parse_var,
    "SerializeTensor": lambda: tf.io.serialize_tensor(_large(400_000_000)),
    "ParseTensor": lambda: tf.io.parse_tensor(
        tf.io.serialize_tensor(_large(200_000_000)), tf.float32),
    "DecodeCSV": lambda: tf.io.decode_csv(tf.fill([1_000_000], "1,2,3,4,5,6"), [[0.]] * 6)[0],
    "DecodeJSONExample": lambda: raw.DecodeJSONExample(json_examples=tf.fill([200_000],
        '{"features": {"feature": {"a": {"floatList": {"value": [1, 2, 3]}}}}}')),
    # sparse and ragged
    "SparseReorder": lambda: raw.SparseReorder(
        input_indices=tf.reverse(_sparse(5_000_000, 10_000, 10_000)[0], [0]),
        input_values=_large(5_000_000), input_shape=[10_000, 10_000])[1],
    "EditDistance": lambda: raw.EditDistance(
        hypothesis_indices=_sparse(30_000, 1, 30_000)[0], hypothesis_values=_numbers(30_000),
        hypothesis_shape=_int64(1, 30_000), truth_indices=_sparse(30_000, 1, 30_000)[0],
        truth_values=_numbers(30_000), truth_shape=_int64(1, 30_000)),
    "EditDistance/short": lambda: raw.EditDistance(
        hypothesis_indices=_sparse(2_000_000, 20_000, 100)[0],
        hypothesis_values=_numbers(2_000_000), hypothesis_shape=_int64(20_000, 100),
        truth_indices=_sparse(2_000_000, 20_000, 100)[0], truth_values=_numbers(2_000_000),
        truth_shape=_int64(20_000, 100)),
    "ComputeAccidentalHits": lambda: raw.ComputeAccidentalHits(
        true_classes=tf.reshape(_indices(2_000_000, 1 << 30, tf.int64), [-1, 1]),
        sampled_candidates=_indices(4_000_000, 1 << 30, tf.int64), num_true=1),
    "RaggedCountSparseOutput": lambda: raw.RaggedCountSparseOutput(
        splits=_int64(0, 4_000_000), values=_indices(4_000_000, 1 << 30, tf.int64),
        weights=tf.constant([], tf.int32), binary_output=False),
    "SparseAdd": lambda: raw.SparseAdd(
        a_indices=_sparse(5_000_000, 10_000, 10_000)[0], a_values=_large(5_000_000),
        a_shape=[10_000, 10_000], b_indices=_sparse(5_000_000, 10_000, 10_000)[0],
        b_values=_large(5_000_000), b_shape=[10_000, 10_000], thresh=0.)[1],
    "SparseConcat": lambda: raw.SparseConcat(
        indices=[_sparse(5_000_000, 10_000, 10_000)[0]] * 2, values=[_large(5_000_000)] * 2,
        shapes=[[10_000, 10_000]] * 2, concat_dim=1)[1],
    "SparseToDense": lambda: raw.SparseToDense(
        sparse_indices=_sparse(20_000_000, 10_000, 10_000)[0], output_shape=[10_000, 10_000],
        sparse_values=_large(20_000_000), default_value=0.),
    "SparseReduceSum": lambda: raw.SparseReduceSum(
        input_indices=_sparse(10_000_000, 10_000, 10_000)[0], input_values=_large(10_000_000),
        input_shape=[10_000, 10_000], reduction_axes=[0]),
    "SparseSoftmax": lambda: raw.SparseSoftmax(
        sp_indices=_sparse(10_000_000, 10_000, 10_000)[0], sp_values=_large(10_000_000),
        sp_shape=[10_000, 10_000]),
    "SparseFillEmptyRows": lambda: raw.SparseFillEmptyRows(
        indices=_sparse(10_000_000, 20_000_000, 10)[0], values=_large(10_000_000),
        dense_shape=[20_000_000, 10], default_value=0.)[1],
    "SparseSlice": lambda: raw.SparseSlice(
        indices=_sparse(20_000_000, 10_000, 10_000)[0], values=_large(20_000_000),
        shape=[10_000, 10_000], start=[1, 1], size=[9000, 9000])[1],
    "SparseReshape": lambda: raw.SparseReshape(
        input_indices=_sparse(20_000_000, 10_000, 10_000)[0], input_shape=[10_000, 10_000],
        new_shape=[1000, 100_000])[0],
    "SparseDenseCwiseMul": lambda: raw.SparseDenseCwiseMul(
        sp_indices=_sparse(10_000_000, 10_000, 10_000)[0], sp_values=_large(10_000_000),
        sp_shape=[10_000, 10_000], dense=_large(10_000, 10_000)),
    "SparseCross": lambda: raw.SparseCrossV2(
        indices=[], values=[], shapes=[], dense_inputs=[
            tf.strings.as_string(tf.reshape(tf.range(20_000), [10, 2000]))
            for _ in range(2)], sep="_")[1],
    "DenseToDenseSetOperation": lambda: raw.DenseToDenseSetOperation(
        set1=_large(10, 300_000, dtype=tf.int32) * _large(10, 300_000, dtype=tf.int32),
        set2=_large(10, 300_000, dtype=tf.int32), set_operation="union")[1],
    "RaggedRange": lambda: raw.RaggedRange(starts=0, limits=tf.fill([100_000], 1000),
                                           deltas=1)[1],
    "RaggedGather": lambda: raw.RaggedGather(
        params_nested_splits=[np.arange(0, 1001, 10)], params_dense_values=_large(1000),
        indices=_indices(10_000_000, 100), OUTPUT_RAGGED_RANK=1)[1],
    "RaggedTensorToTensor": lambda: raw.RaggedTensorToTensor(
        shape=[-1, -1], values=_large(50_000_000), default_value=0.,
        row_partition_tensors=[tf.range(10_000_001, dtype=tf.int64) * 5],
        row_partition_types=["ROW_SPLITS"]),
    "IsotonicRegression": lambda: raw.IsotonicRegression(input=_large(1, 20_000_000))[0],
    "KMC2ChainInitialization": lambda: raw.KMC2ChainInitialization(
        distances=_large(200_000_000), seed=1),
    "KmeansPlusPlusInitialization": lambda: raw.KmeansPlusPlusInitialization(
        points=_large(200_000, 32), num_to_sample=200, seed=1, num_retries_per_sample=1),
    "NearestNeighbors": lambda: raw.NearestNeighbors(points=_large(20_000, 64),
                                                     centers=_large(1000, 64), k=5)[0],
    "BlockLSTM": _lstm,
    "LSTMBlockCell": _lstm_cell,
    "GRUBlockCell": _gru_cell,
    "CTCLoss": _ctc_loss,
    "CTCBeamSearchDecoder": _ctc_beam,
    "CTCGreedyDecoder": lambda: raw.CTCGreedyDecoder(
        inputs=_large(2000, 64, 1000), sequence_length=np.full(64, 2000, np.int32))[2],
    "SerializeManySparse": lambda: raw.SerializeManySparse(
        sparse_indices=_sparse(2_000_000, 10_000, 10_000)[0], sparse_values=_large(2_000_000),
        sparse_shape=[10_000, 10_000]),
}

# Those that ask often enough whether they are wanted. The others are one pass over one line or one
# reduction of an extreme size, or have not been looked at.
SAMPLE = ["Conv2D/double", "Conv2DBackpropFilter", "FFT", "Cumsum", "NthElement", "MatrixLogarithm",
          "TridiagonalSolve", "ParseExampleV2", "Bucketize", "StaticRegexFullMatch"]
STOP = [
    *SAMPLE, "MatMul", "MatMul/double", "MatMul/complex64", "MatMul/complex128", "MatMul/int32",
    "MatMul/int64", "MatMul/bfloat16", "MatMul/half", "BatchMatMulV2", "BatchMatMulV2/int64",
    "SparseMatMul", "QuantizedMatMul", "SparseTensorDenseMatMul", "Conv2D", "Conv2D/batch",
    "Conv2D/half", "Conv2D/int32", "Conv2D/groups", "Conv2D/big window", "Conv2DBackpropInput",
    "Conv2DBackpropInput/double", "Conv2DBackpropFilter/batch", "Conv2DBackpropFilter/double",
    "Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", "QuantizedConv2D", "Dilation2D",
    "LRN", "LRNGrad", "FusedBatchNormV3", "FusedBatchNormGradV3", "FFT/Bluestein", "IFFT", "FFT2D",
    "FFT2D/long", "FFT3D", "FFT3D/long", "RFFT", "RFFT/Bluestein", "IRFFT", "CholeskyGrad",
    "TridiagonalMatMul", "DecodeCSV", "MatMul/inner", "MatMul/inner int32",
    "MatMul/inner transposed", "BatchMatMulV2/inner", "Einsum", "Einsum/batch", "MaxPool",
    "MaxPoolGrad", "AvgPool", "AvgPoolGrad", "MaxPool3D", "FractionalMaxPool",
    "FractionalMaxPoolGrad", "FractionalAvgPoolGrad", "MaxPoolGradWithArgmax", "MaxPoolWithArgmax",
    "Softmax", "LogSoftmax", "Softmax/half", "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits", "SparseSoftmax", "SegmentSum", "SegmentMean",
    "SegmentMax/one", "SegmentMin/one", "SegmentProd/one", "SegmentSum/one", "UnsortedSegmentSum",
    "UnsortedSegmentMax", "SparseSegmentSum", "SparseSegmentMeanGrad", "UnsortedSegmentJoin",
    "ReverseSequence", "StringLower", "StringLower/long", "StringUpper/bytes", "StringUpper/long",
    "UnicodeEncode", "EncodeBase64", "DecodeBase64", "SerializeTensor", "ParseTensor",
    "RaggedRange", "RaggedGather", "RaggedTensorToTensor",
    "MatMul/tall", "RandomShuffle", "MatrixSetDiagV3", "MatrixDiagV3", "MatrixDiagPartV3", "Diag",
    "DynamicStitch", "DynamicPartition", "DecodeCompressed", "Where", "Pad", "MirrorPad", "OneHot",
    "GatherNd", "ScatterNd", "TensorScatterAdd", "InvertPermutation", "DecodeRaw", "DecodeRaw/long",
    "ArgMax", "ArgMax/columns", "ArgMin/half", "Multinomial", "Multinomial/classes", "Bincount",
    "DenseBincount", "StaticRegexReplace", "RegexReplace", "RegexFullMatch", "EditDistance",
    "EditDistance/short", "ComputeAccidentalHits", "RaggedCountSparseOutput",
    "SparseMatrixSparseMatMul",
]
