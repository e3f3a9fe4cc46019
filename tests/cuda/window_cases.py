"""Cases of run_ops.py: ops of sliding windows and batch normalisation with channels first, which
most CPU kernels do not have. The CPU computes with channels last. The GPU computes with channels
first, on transposed images, and its results are transposed back. The cases of tests/differential
compare channels last of a simulated GPU with TensorFlow."""
import functools
import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

RAW = tf.raw_ops
FLOATS = ["half", "bfloat16", "float32", "float64"]
NARROW_AND_FLOAT = FLOATS[:3]


def first(x):
    """An image or a volume with its channels moved to the front."""
    rank = len(x.shape)
    return tf.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def last(x):
    rank = len(x.shape)
    return tf.transpose(x, [0, *range(2, rank), 1])


class Format:
    """What a case asks about the device that it is made for."""

    def __init__(self, operand):
        self.rank = len(operand.shape)
        self.is_first = "GPU" in operand.device
        self.name = {4: ("NHWC", "NCHW"), 5: ("NDHWC", "NCDHW")}[self.rank][self.is_first]

    def list(self, spatial, other=1):
        """A list attr, such as strides."""
        return [other, other, *spatial] if self.is_first else [other, *spatial, other]

    def pads(self, spatial):
        flat = [n for pair in spatial for n in pair]
        return [0, 0, 0, 0, *flat] if self.is_first else [0, 0, *flat, 0, 0]

    def to(self, x):
        return first(x) if self.is_first else x

    def back(self, x):
        return last(x) if self.is_first else x


def pooling_cases(cases):
    sizes = (([2, 9, 8, 5], [3, 2], [2, 2]), ([1, 4, 7, 70], [2, 3], [1, 3]))
    volumes = (([2, 5, 4, 6, 3], [2, 3, 2], [2, 1, 2]),)
    for dtype in FLOATS:
        for shape, size, stride in sizes + (volumes if dtype != "float64" else ()):
            suffix, operand = ("3D", "input") if len(shape) == 5 else ("", "value")
            for padding in ("SAME", "VALID"):
                def attrs(form, size=size, stride=stride, padding=padding):
                    return {"ksize": form.list(size), "strides": form.list(stride),
                            "padding": padding, "data_format": form.name}

                def means(x, suffix=suffix, attrs=attrs, operand=operand):
                    form = Format(x)
                    x = form.to(x)
                    y = getattr(RAW, "AvgPool" + suffix)(**{operand: x}, **attrs(form))
                    return form.back(y), form.back(getattr(RAW, f"AvgPool{suffix}Grad")(
                        orig_input_shape=tf.constant(x.shape.as_list()), grad=y, **attrs(form)))

                def maxima(x, suffix=suffix, attrs=attrs):
                    form = Format(x)
                    x = form.to(x)
                    y = getattr(RAW, "MaxPool" + suffix)(input=x, **attrs(form))
                    grad = getattr(RAW, f"MaxPool{suffix}Grad")(
                        orig_input=x, orig_output=y, grad=y, **attrs(form))
                    second = getattr(RAW, f"MaxPool{suffix}GradGrad")(
                        orig_input=x, orig_output=y, grad=grad, **attrs(form))
                    return form.back(y), form.back(grad), form.back(second)

                name = f"{dtype}/{shape}{size}{stride}{padding}"
                x = cases.values(dtype, shape)
                cases.add(f"AvgPool{suffix}Grad/first/{name}", means, x)
                cases.add(f"MaxPool{suffix}Grad/first/{name}", maxima, x)


def explicit_padding_cases(cases):
    def pooled(x):
        form = Format(x)
        return form.back(RAW.MaxPool(
            input=form.to(x), ksize=form.list([3, 4]), strides=form.list([2, 1]),
            padding="EXPLICIT", explicit_paddings=form.pads([(2, 0), (1, 3)]),
            data_format=form.name))

    def by_inputs(x):
        form = Format(x)
        size, stride = form.list([3, 2]), form.list([1, 2])
        x = form.to(x)
        attrs = {"padding": "SAME", "data_format": form.name, "ksize": tf.constant(size),
                 "strides": tf.constant(stride)}
        y = RAW.MaxPoolV2(input=x, **attrs)
        return form.back(y), form.back(RAW.MaxPoolGradV2(orig_input=x, orig_output=y, grad=y,
                                                         **attrs))

    for dtype in FLOATS:
        cases.add(f"MaxPool/explicit/{dtype}", pooled, cases.values(dtype, [2, 7, 9, 4]))
        cases.add(f"MaxPoolV2/first/{dtype}", by_inputs, cases.values(dtype, [2, 7, 9, 4]))


def by_four(x, size, stride, padding, version):
    """MaxPool of qint8, [batch, channels / 4, height, width, 4]; on a CPU of int8, channels
    last."""
    if "GPU" not in x.device:
        shape = x.shape.as_list()
        images = tf.reshape(x, [shape[0] * shape[1], *shape[2:]])
        made = RAW.MaxPool(input=images, ksize=[1, *size, 1], strides=[1, *stride, 1],
                           padding=padding)
        return tf.reshape(made, [*shape[:2], *made.shape.as_list()[1:]])
    lists = {"ksize": [1, 1, *size], "strides": [1, 1, *stride]}
    if version == "V2":
        lists = {name: tf.constant(numbers) for name, numbers in lists.items()}
    return tf.bitcast(getattr(RAW, "MaxPool" + version)(
        input=tf.bitcast(x, tf.qint8), padding=padding, data_format="NCHW_VECT_C", **lists),
                      tf.int8)


def qint8_cases(cases):
    for shape, size, stride in (([2, 3, 7, 9, 4], [3, 2], [2, 2]),
                                ([1, 1, 4, 4, 4], [2, 2], [1, 1]),
                                ([3, 20, 1, 5, 4], [1, 4], [1, 3])):
        for padding, version in itertools.product(("SAME", "VALID"), ("", "V2")):
            cases.add(f"MaxPool{version}/qint8/{shape}{size}{stride}{padding}", functools.partial(
                by_four, size=size, stride=stride, padding=padding, version=version),
                      cases.rng.integers(-128, 128, shape).astype("int8"))


def qint8_failures(target):
    """What MaxPool of qint8 does not take."""
    failures = []
    for shape, form, words in (([1, 4, 4, 4], "NHWC", "only supports the format NCHW_VECT_C"),
                               ([1, 2, 4, 4, 3], "NCHW_VECT_C", "must be 4 in the format"),
                               ([1, 2, 4, 4], "NCHW_VECT_C", "must be 5-dimensional")):
        with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
            place = tf.compat.v1.placeholder(tf.int8)
            x = tf.bitcast(place, tf.qint8)
            if form == "NCHW_VECT_C":
                x.set_shape([None, None, None, None, 4])  # what the client insists on
            made = tf.bitcast(RAW.MaxPool(input=x, ksize=[1] * 4, strides=[1] * 4,
                                          padding="VALID", data_format=form), tf.int8)
            config = tf.compat.v1.ConfigProto(allow_soft_placement=False)
            with tf.compat.v1.Session(target, graph=graph, config=config) as session:
                try:
                    failures.append(f"MaxPool/qint8/{shape}: "
                                    f"{session.run(made, {place: numpy.ones(shape, 'int8')})}")
                except tf.errors.InvalidArgumentError as error:
                    if words not in error.message:
                        failures.append(f"MaxPool/qint8/{shape}: {error.message}")
    return failures


def depthwise_cases(cases):
    """Forward and both gradients; few channels and more than a block reads at once; so many pixels
    that the sums of a filter's gradient are merged."""
    for dtype in FLOATS:
        for shape, window, multiplier, stride in (([2, 9, 8, 5], (3, 2), 1, 1),
                                                  ([1, 7, 6, 3], (2, 4), 3, 2),
                                                  ([3, 60, 50, 2], (3, 3), 1, 1),
                                                  ([2, 12, 13, 40], (3, 3), 2, 2)):
            for padding in ("SAME", "VALID"):
                def all_three(x, f, stride=stride, padding=padding):
                    form = Format(x)
                    x = form.to(x)
                    attrs = {"strides": form.list([stride, stride]), "padding": padding,
                             "data_format": form.name}
                    y = RAW.DepthwiseConv2dNative(input=x, filter=f, **attrs)
                    return form.back(y), form.back(RAW.DepthwiseConv2dNativeBackpropInput(
                        input_sizes=tf.constant(x.shape.as_list()), filter=f, out_backprop=y,
                        **attrs)), RAW.DepthwiseConv2dNativeBackpropFilter(
                            input=x, filter_sizes=tf.constant(f.shape.as_list()), out_backprop=y,
                            **attrs)

                cases.add(f"Depthwise/first/{dtype}/{shape}{window}{multiplier}{stride}{padding}",
                          all_three, cases.values(dtype, shape, 0.5, 1),
                          cases.values(dtype, [*window, shape[-1], multiplier], 0.5, 1))


def with_gaps(f, rate):
    """A filter with zeros between its taps: what a dilated filter stands for."""
    for axis in range(len(rate)):
        shape = f.shape.as_list()
        f = tf.expand_dims(f, axis + 1)
        f = tf.pad(f, [(0, rate[axis] - 1) if i == axis + 1 else (0, 0) for i in range(f.ndim)])
        shape[axis] *= rate[axis]
        f = tf.reshape(f, shape)
        f = tf.split(f, [shape[axis] - rate[axis] + 1, rate[axis] - 1], axis)[0]
    return f


def without_gaps(f, rate):
    return f[tuple(slice(None, None, step) for step in rate)]


def convolve(x, f, stride, padding, rate, n_groups):
    """Forward and both gradients, of integers without the filter's; on a CPU a dilated filter is
    one with gaps, and groups are convolutions of their own."""
    n_made = 2 if x.dtype.is_integer else 3
    form = Format(x)
    suffix = "3D" if form.rank == 5 else "2D"
    version = "V2" if form.rank == 5 else ""
    if not form.is_first:
        parts = []
        for x, g in zip(tf.split(x, n_groups, -1), tf.split(f, n_groups, -1)):
            g = with_gaps(g, rate)
            attrs = {"strides": form.list(stride), "padding": padding}
            y = getattr(RAW, "Conv" + suffix)(input=x, filter=g, **attrs)
            parts.append([
                y, getattr(RAW, f"Conv{suffix}BackpropInput{version}")(
                    input_sizes=tf.constant(x.shape.as_list()), filter=g, out_backprop=y, **attrs)])
            if n_made == 3:
                parts[-1].append(without_gaps(getattr(RAW, f"Conv{suffix}BackpropFilter{version}")(
                    input=x, filter_sizes=tf.constant(g.shape.as_list()), out_backprop=y,
                    **attrs), rate))
        return tuple(tf.concat(part, -1) for part in zip(*parts))
    x = form.to(x)
    attrs = {"strides": form.list(stride), "padding": padding, "dilations": form.list(rate),
             "data_format": form.name}
    y = getattr(RAW, "Conv" + suffix)(input=x, filter=f, **attrs)
    made = [form.back(y), form.back(getattr(RAW, f"Conv{suffix}BackpropInput{version}")(
        input_sizes=tf.constant(x.shape.as_list()), filter=f, out_backprop=y, **attrs))]
    if n_made == 3:
        made.append(getattr(RAW, f"Conv{suffix}BackpropFilter{version}")(
            input=x, filter_sizes=tf.constant(f.shape.as_list()), out_backprop=y, **attrs))
    return tuple(made)


def convolve_any(x, f, stride, padding, rate, is_first):
    """The op Conv. A CPU has no dilations in three dimensions, nor channels first."""
    attrs = {"padding": padding, "strides": [1, *stride, 1], "data_format": "CHANNELS_LAST"}
    if "GPU" not in x.device:
        return RAW.Conv(input=x, filter=with_gaps(f, rate), **attrs)
    attrs["dilations"] = [1, *rate, 1]
    if not is_first:
        return RAW.Conv(input=x, filter=f, **attrs)
    attrs.update(strides=[1, 1, *stride], dilations=[1, 1, *rate], data_format="CHANNELS_FIRST")
    return last(RAW.Conv(input=first(x), filter=f, **attrs))


def numpy_ints(cases, shape):
    """Numbers whose sums of products wrap."""
    return cases.rng.integers(-2**31, 2**31, shape).astype("int32")


def conv_cases(cases):
    """In, window, channels out, stride, rate and groups."""
    sizes = (([2, 9, 8, 5], (3, 2), 4, (1, 1), (1, 1), 1),
             ([1, 7, 6, 3], (2, 4), 6, (2, 1), (1, 1), 1),
             ([2, 11, 9, 4], (3, 3), 3, (1, 2), (2, 1), 1),
             ([2, 6, 7, 4], (3, 3), 6, (1, 1), (1, 2), 2),
             ([1, 4, 5, 6, 3], (2, 3, 2), 2, (1, 2, 1), (1, 1, 1), 1),
             ([1, 5, 6, 5, 4], (2, 2, 2), 4, (1, 1, 1), (2, 1, 2), 2))
    for dtype in FLOATS + ["int32"]:
        for shape, window, n_out, stride, rate, groups in sizes:
            for padding in ("SAME", "VALID"):
                if dtype == "int32":
                    operands = [numpy_ints(cases, shape),
                                numpy_ints(cases, [*window, shape[-1] // groups, n_out])]
                    for is_first in (False, True) if groups == 1 else ():
                        cases.add(f"Conv/any/int32/{shape}{window}{n_out}{stride}{rate}{padding}"
                                  f"{is_first}", functools.partial(
                                      convolve_any, stride=stride, padding=padding, rate=rate,
                                      is_first=is_first), *operands)
                    if len(shape) == 4:
                        cases.add(f"Conv/first/int32/{shape}{window}{n_out}{stride}{rate}{groups}"
                                  f"{padding}", functools.partial(
                                      convolve, stride=stride, padding=padding, rate=rate,
                                      n_groups=groups), *operands)
                    continue
                cases.add(f"Conv/first/{dtype}/{shape}{window}{n_out}{stride}{rate}{groups}"
                          f"{padding}",
                          functools.partial(convolve, stride=stride, padding=padding, rate=rate,
                                            n_groups=groups),
                          cases.values(dtype, shape, 0.5, 1),
                          cases.values(dtype, [*window, shape[-1] // groups, n_out], 0.5, 1))


def norm_cases(cases):
    """Batches of a few rows, and of so many that chunks are merged; few channels, and more than a
    block reads at once. In training and not, with moving averages and without."""
    for dtype in NARROW_AND_FLOAT:
        for shape in ([2, 3, 4, 5], [4, 40, 37, 3], [2, 9, 8, 70], [1, 1, 1, 2], [2, 3, 2, 4, 6]):
            for is_training in (True, False):
                def normed(x, scale, offset, mean, variance, g, is_training=is_training):
                    form = Format(x)
                    x, g = form.to(x), form.to(g)
                    made = RAW.FusedBatchNormV3(
                        x=x, scale=scale, offset=offset, mean=mean, variance=variance,
                        epsilon=1e-3, exponential_avg_factor=0.9, data_format=form.name,
                        is_training=is_training)
                    kept = form.back(made.y), *made[1:5]
                    if not is_training and form.is_first:
                        return kept  # the gradient outside of training: channels last only
                    gradients = RAW.FusedBatchNormGradV3(
                        y_backprop=g, x=x, scale=scale, reserve_space_1=made.reserve_space_1,
                        reserve_space_2=made.reserve_space_2,
                        reserve_space_3=made.reserve_space_3, epsilon=1e-3,
                        data_format=form.name, is_training=is_training)
                    return (*kept, form.back(gradients.x_backprop), *gradients[1:3])

                def last_only(*operands, normed=normed):
                    return normed(*operands)[:5]

                channels = shape[-1:]
                operands = [cases.values(dtype, shape, 1, 7)]
                operands += [cases.values("float32", channels, 0.5, 2) for _ in range(4)]
                operands.append(cases.values(dtype, shape))
                name = f"BatchNorm/first/{dtype}/{shape}{is_training}"
                cases.add(name, normed if is_training else last_only, *operands)


def far_norm_failures(target):
    """A mean that is large beside the deviation costs the variance no precision. (It costs the
    CPU's.)"""
    failures = []
    rng = numpy.random.default_rng(1)
    for shape, form in (([10, 7, 7, 32], "NHWC"), ([3, 40, 37, 5], "NHWC"), ([9, 3, 8, 8], "NCHW")):
        n = shape[3 if form == "NHWC" else 1]
        x = (rng.normal(size=shape) + 30000).astype("float32")
        with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
            place, ones = tf.compat.v1.placeholder(tf.float32, shape), tf.ones([n])
            made = RAW.FusedBatchNormV3(x=place, scale=ones, offset=ones, mean=ones, variance=ones,
                                        data_format=form).batch_variance
            with tf.compat.v1.Session(target, graph=graph) as session:
                found = session.run(made, {place: x})
        axes = (0, 1, 2) if form == "NHWC" else (0, 2, 3)
        true = x.astype("float64").var(axes, ddof=1)
        if not numpy.allclose(found, true, 2e-6, 0):
            failures.append(f"BatchNorm/far/{shape}: {found}, not {true}")
    return failures


def window_cases(cases):
    norm_cases(cases)
    depthwise_cases(cases)
    conv_cases(cases)
    pooling_cases(cases)
    explicit_padding_cases(cases)
    qint8_cases(cases)
