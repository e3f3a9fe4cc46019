"""Cases of the summary family. What is compared is the serialized proto, byte by byte."""

import itertools

import numpy
import oracle
import tensorflow as tf
import tf_kernels

R = tf.raw_ops


def strings(values):
    out = numpy.empty(len(values), object)
    out[:] = values
    return out


def scalar(text):
    return numpy.array(text, object)


def case(op, inputs, **attrs):
    return lambda: [getattr(R, op)(**{k: [oracle.const(x) for x in v] if isinstance(v, list)
                                      else oracle.const(v) for k, v in inputs.items()}, **attrs)]


def numbers():
    rng = numpy.random.default_rng(1)
    for dtype in tf_kernels.cpu_dtypes("ScalarSummary"):
        for shape in ((), (1,), (3,), (2, 2), (0,)):
            values = oracle.sample(rng, dtype, shape)
            tags = strings([f"tag{i}".encode() for i in range(values.size)]).reshape(shape)
            yield f"ScalarSummary/{dtype}/{shape}", case(
                "ScalarSummary", {"tags": tags, "values": values})
            yield f"HistogramSummary/{dtype}/{shape}", case(
                "HistogramSummary", {"tag": scalar(b"h"), "values": values})
    one = numpy.float32(1)
    # fmt: skip
    for tags, values in ((strings([b"a", b"b"]), numpy.ones(3, "float32")),
                         (scalar(b"a"), numpy.ones(1, "float32")), (strings([b"a"]), one),
                         (strings([b"a"]), numpy.ones((1, 1), "float32")),
                         (strings([b"a", b"a"]), numpy.ones(2, "float32")), (scalar(b""), one),
                         (strings([b"a", b"b"]).reshape(2, 1), numpy.ones(2, "float32"))):
        yield f"ScalarSummary/{tags.shape}/{numpy.shape(values)}", case(
            "ScalarSummary", {"tags": tags, "values": values})
    for special in (0.0, -0.0, numpy.nan, numpy.inf, -numpy.inf, 1e-45):
        yield f"ScalarSummary/{special}", case("ScalarSummary",
                                               {"tags": scalar(b"a"),
                                                "values": numpy.float32(special)})
    for label, values in (
        ("zeros", numpy.zeros(5)),
        ("wide", numpy.array([1e-13, 1e-12, 1.1e-12, 1, 1e19, 1e20, 1e21, -1e-13, -1e-12, -1,
                              -1e30])), ("nan", numpy.array([1, numpy.nan])),
                          ("inf", numpy.array([1, numpy.inf])), ("-inf", numpy.array([-numpy.inf])),
                          ("normal", rng.normal(size=1000)),
        ("limits", 1e-12 * 1.1 ** numpy.arange(0, 700, 7)), ("minus", -numpy.arange(100.0)),
        ("-0", numpy.array([-0.0])),
    ):  # fmt: skip
        yield f"HistogramSummary/{label}", case("HistogramSummary",
                                                {"tag": scalar(b"h"), "values": values})
    yield "HistogramSummary/vector tag", case("HistogramSummary",
                                              {"tag": strings([b"h"]), "values": numpy.zeros(2)})
    yield "HistogramSummary/empty tag", case("HistogramSummary",
                                             {"tag": scalar(b""), "values": numpy.zeros(2)})


def tensors():
    rng = numpy.random.default_rng(2)
    metadata = tf.compat.v1.SummaryMetadata(display_name="d",
                                            plugin_data={
                                                "plugin_name": "p",
                                                "content": b"c"}).SerializeToString()
    for dtype in tf_kernels.cpu_dtypes("TensorSummary"):
        if dtype in ("resource", "variant"):
            continue
        for shape in ((), (3,), (2, 0), (2, 3)):
            values = oracle.sample(rng, dtype, shape)
            yield f"TensorSummary/{dtype}/{shape}", case("TensorSummary", {"tensor": values})
            yield f"TensorSummaryV2/{dtype}/{shape}", case(
                "TensorSummaryV2", {"tag": scalar(b"t"), "tensor": values,
                                    "serialized_summary_metadata": scalar(metadata)})
    plain = numpy.zeros(2, "float32")
    for label, tag, data in (("empty", b"", b""), ("vector tag", [b"t"], b""),
                             ("vector metadata", b"t", [b""])):
        inputs = {"tag": strings(tag) if isinstance(tag, list) else scalar(tag), "tensor": plain,
                  "serialized_summary_metadata": strings(data) if isinstance(data, list)
                  else scalar(data)}
        yield f"TensorSummaryV2/{label}", case("TensorSummaryV2", inputs)


def merges():
    def summary(*pairs):
        return tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag=t, simple_value=v) for t,
                                           v in pairs]).SerializeToString()

    a, b, both = summary(("a", 1.0)), summary(("b", 2.0)), summary(("c", 3.0), ("d", 4.0))
    for label, inputs in (
        ("two", [scalar(a), scalar(b)]), ("one", [scalar(a)]),
        ("vector", [strings([a, both]), scalar(b)]), ("matrix", [strings([a, b]).reshape(2, 1)]),
        ("duplicate", [scalar(a), scalar(a)]),
        ("duplicate inside", [scalar(summary(("x", 1.0), ("x", 2.0)))]),
        ("garbage", [scalar(b"\xff\xff")]),
        ("empty", [scalar(b"")]), ("none", [strings([])]),
        ("no tags", [scalar(summary(("", 1.0), ("", 2.0)))]), ("cut", [scalar(a[:-2])]),
    ):  # fmt: skip
        yield f"MergeSummary/{label}", case("MergeSummary", {"inputs": inputs})


def audio():  # AudioSummary itself cannot be built any more
    rng = numpy.random.default_rng(3)
    shapes = ((2, 5), (1, 3, 2), (4, 7, 1), (0, 3), (2, 0), (2, 3, 0), (3,), (2, 3, 2, 1), ())
    for shape, rate, n in itertools.product(shapes,
                                            (44100.0, 8000.5, 0.0, -1.0, 0.2, 5e9, numpy.nan),
                                            (1, 3)):
        values = numpy.asarray(rng.normal(size=shape), "float32")
        yield f"AudioSummaryV2/{shape}/{rate}/{n}", case(
            "AudioSummaryV2", {"tag": scalar(b"s"), "tensor": values,
                               "sample_rate": numpy.float32(rate)}, max_outputs=n)
    edges = numpy.array([[0.5, -0.5, 1, -1, 2, -2, 1 / 65536, 3 / 65536, -1 / 65536, numpy.inf,
                          -numpy.inf, 0.99999]], "float32")
    yield "AudioSummaryV2/edges", case("AudioSummaryV2",
                                       {"tag": scalar(b"s"), "tensor": edges,
                                        "sample_rate": numpy.float32(100)})
    yield "AudioSummaryV2/vector tag", case("AudioSummaryV2",
                                            {"tag": strings([b"s"]), "tensor": edges,
                                             "sample_rate": numpy.float32(100)})
    yield "AudioSummaryV2/vector rate", case("AudioSummaryV2",
                                             {"tag": scalar(b"s"), "tensor": edges,
                                              "sample_rate": numpy.ones(1, "float32")})


def images():
    rng = numpy.random.default_rng(9)
    tag = scalar(b"pictures")
    for dtype in tf_kernels.cpu_dtypes("ImageSummary"):
        for shape in ((1, 3, 4, 1), (2, 5, 3, 3), (4, 2, 2, 4), (0, 3, 3, 1)):
            for name, values in {"any": oracle.sample(rng, dtype, shape),
                                 "positive": abs(oracle.sample(rng, dtype, shape)),
                                 "zeros": numpy.zeros(
                                     shape, tf.as_dtype(dtype).as_numpy_dtype)}.items():
                yield f"ImageSummary/{dtype}/{shape}/{name}", case(
                    "ImageSummary", {"tag": tag, "tensor": values})
        yield f"ImageSummary/{dtype}/one", case("ImageSummary",
                                                {"tag": tag, "tensor": oracle.sample(rng, dtype,
                                                        (3, 2, 2, 3))}, max_images=1)
        if dtype != "uint8":
            values = oracle.sample(rng, dtype, (2, 4, 3, 3))
            values[0, 0, 0, 0], values[0, 1, 2, 1], values[
                1, 3, 0, 2] = numpy.nan, numpy.inf, -numpy.inf
            yield f"ImageSummary/{dtype}/bad", case("ImageSummary", {"tag": tag, "tensor": values})
            yield f"ImageSummary/{dtype}/bad color", case(
                "ImageSummary", {"tag": tag, "tensor": values},
                bad_color=tf.make_tensor_proto([1, 2, 3], "uint8"))
            yield f"ImageSummary/{dtype}/nothing else", case(
                "ImageSummary", {"tag": tag, "tensor": values * numpy.nan})
    for shape in ((3, 3, 1), (1, 3, 3, 2), (1, 3, 3, 5), (1, 0, 3, 1), (2, 1, 3, 3, 1)):
        yield f"ImageSummary/wrong {shape}", case(
            "ImageSummary", {"tag": tag, "tensor": numpy.zeros(shape, "float32")})
    yield "ImageSummary/tags", case("ImageSummary",
                                    {"tag": strings([b"a", b"b"]),
                                     "tensor": numpy.zeros((1, 2, 2, 1), "uint8")})
    for color in ([1, 2], [[1, 2, 3]], 4):
        yield f"ImageSummary/color {color}", case(
            "ImageSummary", {"tag": tag, "tensor": numpy.zeros((1, 2, 2, 3), "float32")},
            bad_color=tf.make_tensor_proto(color, "uint8"))
    yield "ImageSummary/color type", case("ImageSummary",
                                          {"tag": tag, "tensor": numpy.zeros((1, 2, 2, 3),
                                                  "float32")}, bad_color=tf.make_tensor_proto(
                                                      [1, 2, 3], "int32"))


def cases():
    yield from images()
    yield from numbers()
    yield from tensors()
    yield from merges()
    yield from audio()
