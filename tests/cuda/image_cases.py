"""Cases of run_ops.py: pooling and batch normalisation of images with channels last, which a GPU
reads in packs where channels and addresses allow it. Results of those named Image must have the
CPU's bits, and others the same bits at every address."""
import functools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

RAW = tf.raw_ops
FLOATS = ["half", "bfloat16", "float32", "float64"]

# Image, window, strides, padding: windows that a kernel is compiled for and others; apart, touching
# and overlapping; at the edges cut or not; larger than the image; more taps than a byte counts.
POOLS = [
    ([2, 9, 9, 8], (2, 2), (2, 2), "VALID"), ([2, 7, 8, 16], (2, 2), (2, 2), "SAME"),
    ([1, 9, 11, 8], (2, 2), (3, 4), "VALID"), ([2, 9, 7, 8], (1, 2), (4, 2), "SAME"),
    ([2, 6, 9, 8], (3, 3), (3, 3), "SAME"), ([3, 5, 5, 8], (1, 1), (1, 1), "VALID"),
    ([1, 7, 9, 24], (3, 3), (2, 2), "SAME"), ([2, 8, 9, 8], (3, 3), (2, 2), "VALID"),
    ([2, 6, 7, 64], (3, 3), (1, 1), "SAME"), ([1, 7, 7, 16], (7, 7), (1, 1), "VALID"),
    ([1, 6, 5, 8], (5, 4), (2, 1), "SAME"), ([2, 6, 8, 8], (3, 2), (1, 2), "SAME"),
    ([1, 5, 9, 8], (2, 3), (2, 1), "VALID"), ([1, 8, 8, 8], (2, 2), (1, 1), "SAME"),
    ([1, 3, 3, 8], (5, 5), (1, 1), "SAME"), ([2, 1, 1, 8], (3, 3), (2, 2), "SAME"),
    ([1, 1, 9, 8], (1, 1), (1, 1), "SAME"), ([1, 17, 17, 8], (16, 16), (1, 1), "SAME"),
    ([1, 1, 300, 8], (1, 256), (1, 1), "VALID"), ([1, 1, 300, 8], (1, 257), (1, 1), "VALID"),
    ([0, 4, 4, 8], (2, 2), (2, 2), "SAME"),
    ([2, 5, 6, 1], (3, 3), (2, 2), "SAME"), ([2, 5, 6, 2], (2, 2), (2, 2), "SAME"),
    ([2, 7, 5, 4], (3, 3), (1, 1), "SAME"), ([2, 5, 6, 5], (3, 3), (2, 2), "SAME"),
    ([2, 5, 4, 12], (2, 2), (2, 2), "VALID"),
]
EXPLICIT = [
    ([2, 5, 6, 8], (3, 2), (1, 2), ((2, 0), (0, 1))),
    ([1, 6, 5, 8], (3, 3), (2, 2), ((1, 2), (2, 1))),
    ([2, 4, 5, 8], (2, 2), (2, 2), ((1, 1), (1, 0))),
    ([2, 4, 5, 3], (2, 2), (2, 2), ((1, 1), (1, 0))),
    ([1, 0, 8, 8], (2, 2), (2, 2), ((1, 1), (0, 0))),  # windows of padding only
    ([1, 4, 0, 8], (3, 3), (2, 2), ((0, 0), (2, 2))),
]


def values(cases, dtype, shape):
    """Few numbers, so that maxima are not the only ones, and some that are none."""
    x = cases.rng.integers(-2, 3, shape).astype(tf.as_dtype(dtype).as_numpy_dtype)
    if x.size:
        places = cases.rng.integers(0, x.size, [6, max(x.size // 40, 1)])
        for at, value in zip(places, (numpy.nan, -0.0, numpy.inf, -numpy.inf, 0.3, -0.7)):
            x.flat[at] = value
    return x


def shifted(x, is_shifted):
    """An image at an address that is no multiple of 16: behind the first element of a buffer."""
    if not is_shifted:
        return x
    return tf.reshape(tf.concat([tf.zeros([1], x.dtype), tf.reshape(x, [-1])], 0)[1:], x.shape)


def same(x, y):
    """Which elements are equal or both NaN."""
    return tf.equal(x, y) | tf.not_equal(x, x) & tf.not_equal(y, y)


def maxima(x, gradient, attrs, is_shifted):
    x, gradient = shifted(x, is_shifted), shifted(gradient, is_shifted)
    y = RAW.MaxPool(input=x, **attrs)
    made = [y, RAW.MaxPoolGrad(orig_input=x, orig_output=y, grad=gradient, **attrs)]
    if attrs["padding"] != "EXPLICIT" and x.shape[0]:
        for counts_batch in (False, True):
            made += RAW.MaxPoolWithArgmax(input=x, Targmax=tf.int64,
                                          include_batch_in_index=counts_batch, **attrs)
    return tuple(made)


def means(x, attrs, is_shifted):
    return RAW.AvgPool(value=shifted(x, is_shifted), **attrs)


def mean_gradients(gradient, shape, attrs):
    """At both addresses, and whether they have the same bits."""
    made = [RAW.AvgPoolGrad(orig_input_shape=tf.constant(shape), grad=shifted(gradient, is_shifted),
                            **attrs) for is_shifted in (False, True)]
    return *made, same(*made)


def out_of(size, window, stride, padding):
    if padding == "SAME":
        return -(-size // stride)
    before, after = (0, 0) if padding == "VALID" else padding
    return (size + before + after - window) // stride + 1


# Few rows, and so many that chunks are merged; packs that are one, no power of two, and more than a
# block reads at once.
NORMS = [[2, 3, 4, 8], [4, 40, 37, 4], [2, 9, 8, 72], [1, 1, 1, 4], [1, 1, 2, 12], [3, 5, 7, 132],
         [6, 30, 31, 64], [2, 7, 7, 512], [1, 2, 2, 2048]]


def normed(x, g, scale, offset, mean, variance, is_training):
    made = []
    for is_shifted in (False, True):
        x, g = shifted(x, is_shifted), shifted(g, is_shifted)
        y = RAW.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=mean, variance=variance,
                                 epsilon=1e-3, exponential_avg_factor=0.9, is_training=is_training)
        gradients = RAW.FusedBatchNormGradV3(
            y_backprop=g, x=x, scale=scale, reserve_space_1=y.reserve_space_1,
            reserve_space_2=y.reserve_space_2, reserve_space_3=y.reserve_space_3, epsilon=1e-3,
            is_training=is_training)
        made.append([*y[:5], *gradients[:3]])
    return *made[0], *map(same, *made)


def norm_cases(cases):
    for dtype in FLOATS[:3]:
        for shape in NORMS:
            operands = [cases.values(dtype, shape, 1, 7), cases.values(dtype, shape)]
            operands += [cases.values("float32", shape[-1:], 0.5, 2) for _ in range(4)]
            for is_training in (True, False):
                cases.add(f"BatchNorm/last/{dtype}/{shape}{is_training}", functools.partial(
                    normed, is_training=is_training), *operands)


def local_response(x, g, radius):
    attrs = {"depth_radius": radius, "bias": 1.5, "alpha": 0.3, "beta": 0.75}
    y = RAW.LRN(input=x, **attrs)
    return y, RAW.LRNGrad(input_grads=g, input_image=x, output_image=y, **attrs)


def image_cases(cases):
    norm_cases(cases)
    for shape in ([2, 3, 4, 9], [1, 5, 3, 1], [2, 2, 3, 64], [0, 2, 2, 3]):
        for radius in (0, 2, 5, 70):
            cases.add(f"LRN/float32/{shape}{radius}", functools.partial(
                local_response, radius=radius), *(cases.values("float32", shape)
                                                  for _ in range(2)))
    for dtype in FLOATS:
        for shape, size, stride, padding in POOLS + EXPLICIT:
            attrs = {"ksize": [1, *size, 1], "strides": [1, *stride, 1], "padding": padding}
            pads = [padding] * 2
            if not isinstance(padding, str):
                flat = [n for pair in padding for n in pair]
                attrs.update(padding="EXPLICIT", explicit_paddings=[0, 0, *flat, 0, 0])
                pads = padding
            to = [shape[0], *map(out_of, shape[1:3], size, stride, pads), shape[3]]
            operands = [values(cases, dtype, shape), values(cases, dtype, to)]
            if shape[2] == 300:  # the last tap of each window has the maximum
                operands[0][:] = numpy.arange(300)[:, None]
            for is_shifted in (False, True):
                name = f"{dtype}/{shape}{size}{stride}{padding}{'/shifted' if is_shifted else ''}"
                cases.add(f"ImageMaxPoolGrad/{name}", functools.partial(
                    maxima, attrs=attrs, is_shifted=is_shifted), *operands)
                if isinstance(padding, str):
                    cases.add(f"ImageAvgPool/{name}", functools.partial(
                        means, attrs=attrs, is_shifted=is_shifted), operands[0])
            if isinstance(padding, str):  # a CPU may round products and sums at once
                cases.add(f"AvgPoolGrad/image/{dtype}/{shape}{size}{stride}{padding}",
                          functools.partial(mean_gradients, shape=shape, attrs=attrs), operands[1])
