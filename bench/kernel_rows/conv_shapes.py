"""Convolutions and their gradients over the shapes at the edges: few channels in or out, windows of
one element, large windows, strides, a batch of one, channel by channel.

A row's name says batch x height x width x channels in, the window, channels out, and the stride.
"""

import numpy
import tensorflow as tf

from kernels import Row

R = tf.raw_ops
RNG = numpy.random.default_rng(7)

# batch, image, channels in, channels out, window, stride
SHAPES = [
    # the layers of LeNet, and of a residual network on images of 32 x 32
    (64, 28, 1, 32, 5, 1), (64, 14, 32, 64, 5, 1),
    (64, 32, 3, 16, 3, 1), (64, 32, 16, 16, 3, 1), (64, 32, 16, 32, 3, 2), (64, 16, 32, 32, 3, 1),
    (64, 16, 32, 64, 3, 2), (64, 8, 64, 64, 3, 1), (64, 32, 16, 32, 1, 2),
    # few channels in
    (16, 64, 1, 8, 3, 1), (16, 64, 2, 32, 3, 1), (16, 64, 3, 32, 3, 2), (8, 64, 3, 64, 7, 2),
    (8, 64, 4, 64, 3, 1),
    # few channels out
    (16, 64, 32, 1, 3, 1), (16, 64, 32, 2, 3, 1), (16, 64, 32, 3, 3, 1), (8, 64, 64, 4, 3, 1),
    (64, 28, 32, 1, 5, 1), (16, 64, 1, 1, 3, 1), (16, 64, 3, 3, 3, 1), (4, 64, 3, 3, 9, 1),
    # windows of one element
    (16, 28, 64, 64, 1, 1), (8, 14, 256, 512, 1, 1), (16, 28, 64, 128, 1, 2), (16, 28, 64, 1, 1, 1),
    (16, 28, 1, 64, 1, 1), (64, 14, 16, 96, 1, 1),
    # large windows
    (4, 56, 3, 64, 11, 4), (8, 28, 16, 16, 9, 1), (8, 28, 32, 32, 7, 1), (2, 32, 8, 8, 15, 1),
    # a batch of one
    (1, 28, 1, 32, 5, 1), (1, 14, 32, 64, 5, 1), (1, 56, 64, 64, 3, 1), (1, 224, 3, 64, 7, 2),
    (1, 7, 512, 512, 3, 1), (1, 14, 256, 256, 1, 1),
    # odd numbers of channels
    (16, 28, 5, 7, 3, 1), (16, 28, 20, 50, 5, 1), (16, 28, 17, 33, 3, 1), (8, 28, 100, 100, 3, 1),
]
# batch, image, channels, multiplier, window, stride
BY_CHANNEL = [
    (16, 28, 32, 1, 3, 1), (16, 28, 32, 1, 3, 2), (8, 28, 128, 1, 3, 1), (1, 56, 64, 1, 3, 1),
    (8, 28, 64, 1, 5, 1), (8, 56, 3, 8, 3, 1), (16, 28, 20, 1, 3, 1), (4, 28, 16, 4, 7, 1),
]


def data(*shape):
    return tf.constant(RNG.normal(size=shape).astype("float32"))


def three(prefix, n, size, i, o, window, stride):
    """Forward and both gradients. `o` counts the channels of the result, or is a multiplier."""
    by_channel = bool(prefix)
    x, f = (n, size, size, i), (window, window, i, o)
    out = -(-size // stride)
    g = (n, out, out, i * o if by_channel else o)
    label = f"{n}x{size}x{size}x{i} {window}x{window}x{o} /{stride}"
    attrs = {"strides": [1, stride, stride, 1], "padding": "SAME"}
    forward, backprop = (R.DepthwiseConv2dNative, "DepthwiseConv2dNativeBackprop") if (
        by_channel) else (R.Conv2D, "Conv2DBackprop")
    yield Row(f"{prefix}forward {label}",
              lambda: forward(input=data(*x), filter=data(*f), **attrs))
    yield Row(f"{prefix}input gradient {label}", lambda: getattr(R, backprop + "Input")(
        input_sizes=list(x), filter=data(*f), out_backprop=data(*g), **attrs))
    yield Row(f"{prefix}filter gradient {label}", lambda: getattr(R, backprop + "Filter")(
        input=data(*x), filter_sizes=list(f), out_backprop=data(*g), **attrs))


def rows():
    for shape in SHAPES:
        yield from three("", *shape)
    for shape in BY_CHANNEL:
        yield from three("by channel, ", *shape)
