"""Convolution, pooling, normalisation, recurrent cells: three sizes each."""

import numpy
import tensorflow as tf

from kernels import Row

R = tf.raw_ops
RNG = numpy.random.default_rng(1)
SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def data(*shape, dtype="float32"):
    return tf.constant(RNG.normal(size=shape).astype("float32"), dtype=dtype)


def conv_2d():
    # LeNet's second layer, a residual block, a late and wide one: batch, image, channels in, out,
    # window
    for label, (n, size, i, o, k) in {"lenet": (32, 14, 32, 64, 5), "resnet": (8, 56, 64, 64, 3),
                                      "wide": (8, 14, 256, 256, 3)}.items():
        x, f, g = (n, size, size, i), (k, k, i, o), (n, size, size, o)
        yield Row(f"Conv2D {label}", lambda x=x,
                  f=f: R.Conv2D(input=data(*x), filter=data(*f), **SAME))
        yield Row(f"Conv2DBackpropInput {label}", lambda x=x, f=f,
                  g=g: R.Conv2DBackpropInput(input_sizes=list(x), filter=data(*f),
                                             out_backprop=data(*g), **SAME))
        yield Row(f"Conv2DBackpropFilter {label}", lambda x=x, f=f,
                  g=g: R.Conv2DBackpropFilter(input=data(*x), filter_sizes=list(f),
                                              out_backprop=data(*g), **SAME))
    first = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    yield Row("Conv2D first layer 7x7",
              lambda: R.Conv2D(input=data(4, 112, 112, 3), filter=data(7, 7, 3, 64), **first))
    yield Row("Conv2D 1x1", lambda: R.Conv2D(input=data(8, 28, 28, 128),
                                             filter=data(1, 1, 128, 256), **SAME))
    yield Row("Conv2D small", lambda: R.Conv2D(input=data(4, 8, 8, 3), filter=data(3, 3, 3, 8),
                                               **SAME))
    yield Row("Conv2D double", lambda: R.Conv2D(input=data(4, 14, 14, 32, dtype="float64"),
                                                filter=data(3, 3, 32, 64, dtype="float64"), **SAME))


def depthwise():
    for label, (n, size, c, m) in {"small": (4, 14, 16, 1), "mobile": (8, 28, 128, 1),
                                   "multiplied": (8, 28, 32, 4)}.items():
        x, f, g = (n, size, size, c), (3, 3, c, m), (n, size, size, c * m)
        yield Row(f"DepthwiseConv2dNative {label}", lambda x=x,
                  f=f: R.DepthwiseConv2dNative(input=data(*x), filter=data(*f), **SAME))
        yield Row(
            f"DepthwiseConv2dNativeBackpropInput {label}",
            lambda x=x, f=f, g=g: R.DepthwiseConv2dNativeBackpropInput(input_sizes=list(x),
                    filter=data(*f), out_backprop=data(*g), **SAME),
        )
        yield Row(
            f"DepthwiseConv2dNativeBackpropFilter {label}",
            lambda x=x, f=f, g=g: R.DepthwiseConv2dNativeBackpropFilter(input=data(*x),
                    filter_sizes=list(f), out_backprop=data(*g), **SAME),
            "a tap's sums leave the registers after each row of places" if label == "mobile"
            else "",
        )


def volumes():
    for label, (n, size, i, o) in {"small": (2, 6, 4, 8), "middle": (2, 12, 16, 32),
                                   "large": (2, 16, 32, 64)}.items():
        yield Row(f"Conv3D {label}", lambda n=n, s=size, i=i,
                  o=o: R.Conv3D(input=data(n, s, s, s, i), filter=data(3, 3, 3, i, o),
                                strides=[1] * 5, padding="SAME"))


def pooling():
    half = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    for label, (n, size, c) in {"small": (4, 8, 16), "middle": (32, 28, 32),
                                "large": (16, 56, 64)}.items():
        x, y = (n, size, size, c), (n, size // 2, size // 2, c)
        yield Row(f"MaxPool {label}", lambda x=x: R.MaxPool(input=data(*x), **half))
        yield Row(f"MaxPoolGrad {label}", lambda x=x,
                  y=y: R.MaxPoolGrad(orig_input=data(*x), orig_output=data(*y), grad=data(*y),
                                     **half))
        yield Row(f"AvgPool {label}", lambda x=x: R.AvgPool(value=data(*x), **half))
        yield Row(f"AvgPoolGrad {label}", lambda x=x,
                  y=y: R.AvgPoolGrad(orig_input_shape=list(x), grad=data(*y), **half))


def normalisation():
    for label, (n, size, c) in {"small": (4, 8, 16), "middle": (32, 14, 64),
                                "large": (16, 56, 64)}.items():
        x, v = (n, size, size, c), (c,)
        yield Row(
            f"FusedBatchNormV3 training {label}",
            lambda x=x, v=v: R.FusedBatchNormV3(x=data(*x), scale=data(*v), offset=data(*v),
                                                mean=data(*v), variance=data(*v), is_training=True)[
                                                    0],
        )
        yield Row(
            f"FusedBatchNormV3 inference {label}",
            lambda x=x, v=v: R.FusedBatchNormV3(x=data(*x), scale=data(*v), offset=data(*v),
                                                mean=data(*v), variance=abs(data(*v)) + 1,
                                                is_training=False)[0],
        )
        yield Row(
            f"FusedBatchNormGradV3 {label}",
            lambda x=x, v=v: R.FusedBatchNormGradV3(
                y_backprop=data(*x), x=data(*x), scale=data(*v), reserve_space_1=data(*v),
                reserve_space_2=abs(data(*v)) + 1, reserve_space_3=data(*v), is_training=True
            )[0],
        )
        reason = ("16 channels: the loops run pixel by pixel, and calling them costs as much as "
                  "they do" if label == "small" else "")
        yield Row(f"LRN {label}",
                  lambda x=x: R.LRN(input=data(*x), depth_radius=2, alpha=1e-4, beta=0.75), reason)


def recurrent():
    for label, (steps, n, i, c) in {"small": (8, 4, 16, 32), "middle": (16, 32, 64, 128),
                                    "large": (16, 64, 128, 256)}.items():

        def inputs(steps=steps, n=n, i=i, c=c):
            return {"x": data(steps, n, i), "cs_prev": data(n, c), "h_prev": data(n, c),
                    "w": data(i + c, 4 * c), "wci": data(c), "wcf": data(c), "wco": data(c),
                    "b": data(4 * c)}

        yield Row(f"BlockLSTM {label}", lambda inputs=inputs,
                  steps=steps: R.BlockLSTM(seq_len_max=tf.constant(steps, tf.int64), **inputs())[0])

        def gradient(inputs=inputs, steps=steps, n=n, c=c):
            state = {name: data(steps, n, c)
                     for name in ("i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad")}
            return R.BlockLSTMGrad(seq_len_max=tf.constant(steps, tf.int64), **inputs(), **state,
                                   use_peephole=False)[0]

        yield Row(f"BlockLSTMGrad {label}", gradient)

        def gru(n=n, i=i, c=c):
            return R.GRUBlockCell(x=data(n, i), h_prev=data(n, c), w_ru=data(i + c, 2 * c),
                                  w_c=data(i + c, c), b_ru=data(2 * c), b_c=data(c))[0]

        yield Row(f"GRUBlockCell {label}", gru)


def rows():
    yield from conv_2d()
    yield from depthwise()
    yield from volumes()
    yield from pooling()
    yield from normalisation()
    yield from recurrent()
