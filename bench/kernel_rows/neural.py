"""Softmax and losses, biases, random numbers, images, texts: three sizes each."""

import numpy
import tensorflow as tf

from kernels import Row

R = tf.raw_ops
RNG = numpy.random.default_rng(5)
SUMS = "summed in doubles, as good as exact in any order; TensorFlow sums floats"
SIZES = {"small": (32, 10), "middle": (128, 1000), "large": (64, 20000)}


def data(*shape, dtype="float32"):
    return tf.constant(RNG.normal(size=shape), dtype=dtype)


def losses():
    for label, (m, n) in SIZES.items():
        yield Row(f"Softmax {label}", lambda m=m, n=n: R.Softmax(logits=data(m, n)))
        yield Row(f"LogSoftmax {label}", lambda m=m, n=n: R.LogSoftmax(logits=data(m, n)))
        yield Row(f"SoftmaxCrossEntropyWithLogits {label}", lambda m=m,
                  n=n: R.SoftmaxCrossEntropyWithLogits(
                      features=data(m, n), labels=tf.nn.softmax(data(m, n)))[0])
        yield Row(
            f"SparseSoftmaxCrossEntropyWithLogits {label}",
            lambda m=m, n=n: R.SparseSoftmaxCrossEntropyWithLogits(features=data(m, n),
                    labels=tf.constant(RNG.integers(0, n, m), tf.int32))[0],
        )
        yield Row(f"BiasAdd {label}", lambda m=m, n=n: R.BiasAdd(value=data(m, n), bias=data(n)))
        yield Row(f"BiasAddGrad {label}", lambda m=m, n=n: R.BiasAddGrad(out_backprop=data(m, n)),
                  SUMS)
        yield Row(f"InTopKV2 {label}", lambda m=m,
                  n=n: R.InTopKV2(predictions=data(m, n),
                                  targets=tf.constant(RNG.integers(0, n, m), tf.int32), k=5))
    for label, (m, n) in {"small": (16, 10), "middle": (256, 64), "large": (1024, 512)}.items():
        yield Row(f"BiasAddGrad of an image {label}", lambda m=m,
                  n=n: R.BiasAddGrad(out_backprop=data(4, m // 4, 4, n)), SUMS)


def random_numbers():
    for label, n in {"1k": 1000, "64k": 64000, "1M": 1000000}.items():
        yield Row(f"RandomUniform {label}",
                  lambda n=n: R.RandomUniform(shape=[n], dtype=tf.float32, seed=1, seed2=2))
        yield Row(f"RandomStandardNormal {label}",
                  lambda n=n: R.RandomStandardNormal(shape=[n], dtype=tf.float32, seed=1, seed2=2))
        yield Row(f"TruncatedNormal {label}",
                  lambda n=n: R.TruncatedNormal(shape=[n], dtype=tf.float32, seed=1, seed2=2))
        yield Row(f"RandomUniformInt {label}",
                  lambda n=n: R.RandomUniformInt(shape=[n], minval=0, maxval=100, seed=1, seed2=2))
        yield Row(f"RandomGamma {label}",
                  lambda n=n: R.RandomGamma(shape=[n // 10], alpha=[1.5, 2.5], seed=1, seed2=2))
        yield Row(f"Multinomial {label}",
                  lambda n=n: R.Multinomial(logits=data(10, 100), num_samples=n // 100, seed=1,
                                            seed2=2))
        yield Row(f"RandomShuffle {label}",
                  lambda n=n: R.RandomShuffle(value=data(n // 10, 10), seed=1, seed2=2))


def images():
    for label, (n, size, c) in {"small": (1, 32, 3), "middle": (4, 128, 3),
                                "large": (8, 224, 3)}.items():
        out = [size * 3 // 2, size * 3 // 2]
        yield Row(f"ResizeBilinear {label}", lambda n=n, s=size, c=c,
                  out=out: R.ResizeBilinear(images=data(n, s, s, c), size=out))
        yield Row(f"ResizeNearestNeighbor {label}", lambda n=n, s=size, c=c,
                  out=out: R.ResizeNearestNeighbor(images=data(n, s, s, c), size=out))
        yield Row(f"ResizeBicubic {label}", lambda n=n, s=size, c=c,
                  out=out: R.ResizeBicubic(images=data(n, s, s, c), size=out))
        yield Row(f"ExtractImagePatches {label}", lambda n=n, s=size,
                  c=c: R.ExtractImagePatches(images=data(n, s, s, c), ksizes=[1, 3, 3, 1],
                                             strides=[1, 2, 2, 1], rates=[1, 1, 1, 1],
                                             padding="SAME"))
        yield Row(f"RGBToHSV {label}", lambda n=n, s=size,
                  c=c: R.RGBToHSV(images=tf.constant(RNG.random((n, s, s, c)), tf.float32)))

        boxes = tf.float32, numpy.tile(numpy.array([[0.1, 0.1, 0.8, 0.9]], "float32"), (n * 4, 1))
        yield Row(
            f"CropAndResize {label}",
            lambda n=n, s=size, c=c,
            boxes=boxes: R.CropAndResize(image=data(n, s, s, c), boxes=tf.constant(boxes[1]),
                                         box_ind=tf.constant(numpy.arange(n * 4) % n, tf.int32),
                                         crop_size=[24, 24]),
        )


def texts():
    for label, n in {"100": 100, "10k": 10000, "100k": 100000}.items():
        words = numpy.array([b"word %d of a text" % (k * 7919 % 10007) for k in range(n)],
                            dtype=object)
        yield Row(f"StringToHashBucketFast {label}",
                  lambda w=words: R.StringToHashBucketFast(input=tf.constant(w), num_buckets=1000))
        yield Row(f"StringSplitV2 {label}",
                  lambda w=words: R.StringSplitV2(input=tf.constant(w), sep=" ")[1])
        yield Row(f"StringJoin {label}",
                  lambda w=words: R.StringJoin(inputs=[tf.constant(w), tf.constant(w)],
                                               separator="-"))
        yield Row(f"RegexReplace {label}",
                  lambda w=words: R.RegexReplace(
                      input=tf.constant(w), pattern="[0-9]+", rewrite="n"))
        yield Row(f"StringToNumber {label}",
                  lambda n=n: R.StringToNumber(string_tensor=tf.constant(
                      [b"%d.5" % k for k in range(n)]), out_type=tf.float32))
        yield Row(f"AsString {label}", lambda n=n: R.AsString(input=tf.range(n)))


def rows():
    yield from losses()
    yield from random_numbers()
    yield from images()
    yield from texts()
