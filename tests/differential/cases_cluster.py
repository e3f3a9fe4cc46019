"""Cases of the clustering family."""

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops
F = numpy.float32


def case(op, inputs):
    def build():
        out = getattr(R, op)(**{name: oracle.const(value) for name, value in inputs.items()})
        return list(out) if isinstance(out, tuple) else [out]

    return build


def nearest():
    rng = numpy.random.default_rng(1)
    for n, m, d, k in ((5, 3, 2, 1), (5, 3, 2, 3), (5, 3, 2, 7), (0, 3, 2, 1), (4, 1, 1, 1),
                       (40, 300, 7, 10), (3, 2, 0, 1), (3, 0, 2, 1)):
        inputs = {"points": rng.normal(size=(n, d)).astype(F),
                  "centers": rng.normal(size=(m, d)).astype(F), "k": numpy.int64(k)}
        yield f"NearestNeighbors/{n},{m},{d},{k}", case("NearestNeighbors", inputs), {"rtol": 2e-5}
    points, centers = numpy.zeros((3, 2), F), numpy.ones((4, 2), F)
    for k in (0, [1]):  # TensorFlow ends on a negative one
        yield f"NearestNeighbors/k {k}", case("NearestNeighbors",
                                              {"points": points, "centers": centers,
                                               "k": numpy.array(k, "int64")})
    for a, b in ((points[0], centers), (points, centers[0]), (points, centers[:, :1])):
        yield f"NearestNeighbors/wrong {a.shape},{b.shape}", case(
            "NearestNeighbors", {"points": a, "centers": b, "k": numpy.int64(1)})


def starts():
    rng = numpy.random.default_rng(2)
    for n, d, k, retries in ((10, 2, 3, 0), (10, 2, 10, 2), (50, 3, 7, 5), (1, 1, 1, 1),
                             (64, 2, 4, 3), (10, 2, 3, -1)):
        points = (rng.integers(0, 40, (n, d)) * 0.5).astype(F)
        for seed in (0, 7, 123456789):
            inputs = {"points": points, "num_to_sample": numpy.int64(k), "seed": numpy.int64(seed),
                      "num_retries_per_sample": numpy.int64(retries)}
            yield f"KmeansPlusPlusInitialization/{n},{d},{k},{retries}/{seed}", case(
                "KmeansPlusPlusInitialization", inputs)
    points = rng.normal(size=(4, 2)).astype(F)
    for shape, k, seed in ((points, 0, 1), (points, 5, 1), (points, -1, 1), (points[0], 1, 1),
                           (points, [1], 1), (points, 1, [1])):
        inputs = {"points": shape, "num_to_sample": numpy.array(k, "int64"),
                  "seed": numpy.array(seed, "int64"), "num_retries_per_sample": numpy.int64(1)}
        yield f"KmeansPlusPlusInitialization/wrong {shape.shape},{k},{seed}", case(
            "KmeansPlusPlusInitialization", inputs)
    for n in (1, 2, 5, 100):
        for seed in (0, 1, 2, 99):
            yield f"KMC2ChainInitialization/{n}/{seed}", case(
                "KMC2ChainInitialization", {"distances": abs(rng.normal(size=n)).astype(F),
                                            "seed": numpy.int64(seed)})
    yield "KMC2ChainInitialization/zeros", case("KMC2ChainInitialization",
                                                {"distances": numpy.zeros(4, F),
                                                        "seed": numpy.int64(1)})
    yield "KMC2ChainInitialization/first zero", case(
        "KMC2ChainInitialization", {"distances": numpy.array([0, 1, 0], F), "seed": numpy.int64(1)})
    for distances, seed in ((numpy.zeros(0, F), 1), (numpy.zeros((2, 2), F), 1),
                            (numpy.zeros(2, F), [1])):
        yield f"KMC2ChainInitialization/wrong {distances.shape},{seed}", case(
            "KMC2ChainInitialization", {"distances": distances, "seed": numpy.array(seed, "int64")})


def cases():
    yield from nearest()
    yield from starts()
