"""Cases of the candidate samplers. The same seeds must give TensorFlow's classes, execution after
execution, and its expected counts."""

import atexit
import os
import shutil
import tempfile

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops
DIR = tempfile.mkdtemp(prefix="candidate-")
atexit.register(shutil.rmtree, DIR, ignore_errors=True)


def classes_of(values):
    return oracle.const(numpy.array(values, "int64"))


def executions(n, make):
    """n executions of one node, in one session."""

    def build():
        out = list(make())
        return [oracle.Step(out) for _ in range(n)]

    return build


def sampler(op, classes, **attrs):
    attrs = {"num_true": 1, "num_sampled": 4, "unique": True, "seed": 3, "seed2": 4, **attrs}
    if op != "AllCandidateSampler":
        attrs.setdefault("range_max", 10)
    return executions(3, lambda: getattr(R, op)(true_classes=classes_of(classes), **attrs))


def file_of(name, text):
    path = os.path.join(DIR, name)
    with open(path, "w", encoding="utf-8", newline="") as out:
        out.write(text)
    return path


def laws():
    ranges = {
        "UniformCandidateSampler": (1, 2, 10, 64, 1000, 2**31, 2**40 + 1, 2**62 + 1, 2**63 - 1),
        "LogUniformCandidateSampler": (1, 2, 10, 64, 1000, 2**31, 2**40 + 1),
        "LearnedUnigramCandidateSampler": (1, 2, 10, 64, 1000, 100003),
        "ThreadUnsafeUnigramCandidateSampler": (1, 2, 10, 64, 1000),
    }
    for op, sizes in ranges.items():
        for range_max in sizes:
            for unique in (True, False):
                for n in (1, 2, 5, 10, 300):
                    name = f"{op}/{range_max}/{n}/{'unique' if unique else 'any'}"
                    last = min(range_max - 1, 7)
                    for classes in ([[0], [last]], [[last, 0, last]]) if n == 5 else ([[last]],):
                        attrs = {"num_true": len(classes[0]), "num_sampled": n, "unique": unique,
                                 "range_max": range_max}
                        yield f"{name}/{len(classes[0])}", sampler(op, classes, **attrs)
        yield f"{op}/all of 300", sampler(op, [[5]], num_sampled=300, range_max=300)
        yield f"{op}/other seeds", sampler(op, [[5]], seed=-7, seed2=2**40 + 1, range_max=50)
        for name, classes, attrs in (
            ("vector", [1, 2], {}), ("scalar", 1, {}), ("cube", [[[1]]], {}), ("below", [[-1]], {}),
            ("beyond", [[1], [10]], {}), ("far", [[2**40]], {}), ("columns", [[1, 2]], {}),
            ("no class", numpy.zeros((0, 1)), {}),
            ("too many", [[1]], {"num_sampled": 11}),
            ("too large a batch", [[1]], {"num_sampled": 2**40, "unique": False}),
        ):  # fmt: skip
            yield f"{op}/{name}", sampler(op, classes, **attrs)
    yield "LearnedUnigramCandidateSampler/skewed", sampler(
        "LearnedUnigramCandidateSampler", [[3]] * 500 + [[8]] * 100, num_sampled=50, unique=False,
        range_max=9
    )


def fixed():
    def case(classes=((1,), (2,)), **attrs):
        return sampler("FixedUnigramCandidateSampler", classes,
                       **{"num_sampled": 3, "range_max": 4, "unigrams": [1.0, 2.0, 3.0, 4.0],
                          **attrs})

    rng = numpy.random.default_rng(1)
    for n in (1, 2, 3, 17, 500):
        unigrams = [float(x) for x in rng.gamma(0.5, size=n)]
        for distortion in (1.0, 0.75, 0.0, -1.0):
            for unique in (True, False):
                yield f"Fixed/{n}/{distortion}/{unique}", case(
                    [[0], [n - 1]], unigrams=unigrams, range_max=n, num_sampled=min(n, 20),
                    distortion=distortion, unique=unique
                )
    yield "Fixed/reserved", case([[0], [5]], range_max=6, num_reserved_ids=2, num_sampled=4)
    yield "Fixed/all reserved", case(range_max=4, num_reserved_ids=4)
    for shard in (0, 1, 2):
        yield f"Fixed/shard {shard}", case(range_max=2, num_shards=3, shard=shard, num_sampled=2,
                                           num_reserved_ids=2)
    yield "Fixed/zeros", case(unigrams=[0.0, 2.0, 0.0, 1.0], num_sampled=2)
    texts = {
        "plain": "a,1\nb,2\nc,3\nd,4\n", "no end": "1\n2\n3\n4",
        "blanks": " 1\n2 \na b, 3e0 \n,0x4\n", "returns": "a,1\r\nb,2\r\nc,3\r\nd,4\r\n",
        "fewer": "a,1\nb,2\n", "more": "1\n2\n3\n4\n5\n", "a word": "a,1\nb\nc,3\nd,4\n",
        "empty line": "a,1\nb,2\n\nc,3\nd,4\n", "empty": "", "rest": "1\n2x\n3\n4\n",
    }  # fmt: skip
    for name, text in texts.items():
        yield f"Fixed/file/{name}", case(unigrams=[], vocab_file=file_of(name, text))
    yield "Fixed/file/reserved", case(unigrams=[], vocab_file=file_of("reserved", "5\n1\n2\n"),
                                      num_reserved_ids=1, distortion=0.5)
    yield "Fixed/file/shard", case(unigrams=[], vocab_file=file_of("shard", "5\n1\n2\n7\n8\n"),
                                   num_shards=2, shard=1, num_reserved_ids=2, num_sampled=2)
    yield "Fixed/file/missing", case(unigrams=[], vocab_file=os.path.join(DIR, "nobody"))
    yield "Fixed/neither", case(unigrams=[])
    yield "Fixed/both", case(vocab_file=file_of("both", "1\n"))
    yield "Fixed/beyond", case([[4]])
    for range_max in (3, 5):
        yield f"Fixed/range {range_max}", case(range_max=range_max)


def others():
    for unique in (True, False):
        yield f"All/{unique}", sampler("AllCandidateSampler", [[1, 0], [2, 3]], num_true=2,
                                       unique=unique)
    yield "All/beyond", sampler("AllCandidateSampler", [[1, 4]], num_true=2)
    yield "All/columns", sampler("AllCandidateSampler", [[1, 2]])

    def hits(classes, sampled, num_true):
        return executions(1,
                          lambda: R.ComputeAccidentalHits(
                              true_classes=classes_of(classes),
                              sampled_candidates=classes_of(sampled), num_true=num_true))

    rng = numpy.random.default_rng(2)
    for name, classes, sampled, num_true in (
        ("some", [[1, 2], [3, 1]], [3, 1, 9], 2), ("doubled", [[1, 1], [3, 1]], [3, 1, 1, 9], 2),
        ("none", [[7, 7]], [3, 1], 2),
        ("extremes", [[2**63 - 1, -(2**63)]], [-(2**63), 0, 2**63 - 1], 2),
        ("many", rng.integers(0, 500, (200, 3)), rng.permutation(500)[:300], 3),
        ("no rows", numpy.zeros((0, 2)), [1], 2), ("nothing sampled", [[1, 2]], [], 2),
        ("vector", [1], [1], 1), ("columns", [[1]], [1], 2),
        ("sampled matrix", [[1]], [[1]], 1), ("sampled scalar", [[1]], 1, 1),
    ):  # fmt: skip
        yield f"ComputeAccidentalHits/{name}", hits(classes, sampled, num_true)


def cases():
    yield from laws()
    yield from fixed()
    yield from others()
