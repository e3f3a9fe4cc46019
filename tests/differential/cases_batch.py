"""Cases of batching across steps, as far as one step goes; sessions_batch.py has the rest."""

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops
DEFAULTS = {"num_batch_threads": 1, "max_batch_size": 4, "batch_timeout_micros": 1000,
            "grad_timeout_micros": 0}


def batch(inputs, **attrs):
    def build():
        out = R.Batch(in_tensors=[oracle.const(x) for x in inputs], **{**DEFAULTS, **attrs})
        at = tf.reshape(out.batch_index, [-1])[1:]  # without the key, which is random
        return [*out.batched_tensors, at]

    return build


def unbatch(rows, index, key, timeout=1000):
    inputs = {"batched_tensor": rows, "batch_index": numpy.array(index, "int64").reshape(-1, 3),
              "id": numpy.array(key, "int64")}
    return lambda: [R.Unbatch(**{k: oracle.const(v) for k, v in inputs.items()},
                              timeout_micros=timeout)]


def back(data, index, gradient, key):
    inputs = {"original_input": data, "batch_index": index, "grad": gradient,
              "id": numpy.array(key, "int64")}
    return lambda: [R.UnbatchGrad(**{k: oracle.const(v) for k, v in inputs.items()})]


def cases():
    rng = numpy.random.default_rng(1)
    i32 = lambda *v: numpy.array(v, "int32")  # noqa: E731
    for dtype in ("bool", "int8", "float16", "float32", "int64", "complex128"):
        yield f"Batch/{dtype}", batch([oracle.sample(rng, dtype, (3, 2))], allowed_batch_sizes=[4])
        yield f"Unbatch/{dtype}", unbatch(oracle.sample(rng, dtype, (3, 2)), [7, 0, 2], 7)
        x = oracle.sample(rng, dtype, (3, 2))
        yield f"UnbatchGrad/{dtype}", back(x, numpy.array([[7, 0, 3]]), x, 7)
    strings = numpy.array(["a", "b" * 40, ""])
    yield "Batch/strings", batch([strings, i32(1, 2, 3)], allowed_batch_sizes=[4])
    yield "Batch/ranks", batch([numpy.zeros((2, 3, 0), "float32"), numpy.ones((2, 1, 1, 1, 1, 2))])
    yield "Batch/nothing", batch([i32()])
    yield "Batch/rows differ", batch([i32(1), i32(1, 2)])
    yield "Batch/scalar", batch([numpy.int32(1)])
    yield "Batch/too large", batch([i32(1, 2, 3, 4, 5)])
    for attrs in (
        {"num_batch_threads": 0}, {"max_batch_size": 0}, {"max_batch_size": -1},
        {"batch_timeout_micros": -1}, {"batch_timeout_micros": 0},
        {"max_enqueued_batches": 0}, {"max_enqueued_batches": -2}, {"allowed_batch_sizes": [2, 1]},
        {"allowed_batch_sizes": [2, 2]},
        {"allowed_batch_sizes": [1, 3]}, {"allowed_batch_sizes": [-2, 4]},
        {"allowed_batch_sizes": [2, 4]}, {"batching_queue": "other"},
    ):  # fmt: skip
        yield f"Batch/{attrs}", batch([i32(1, 2)], **attrs)
    yield "Unbatch/strings", unbatch(strings, [5, 0, 1, 7, 1, 3], 7)
    yield "Unbatch/sizes count", unbatch(i32(1, 2, 3), [5, 7, 8, 7, 1, 2], 7)
    yield "Unbatch/none", unbatch(i32(1, 2, 3), [5, 0, 1, 7, 1, 1], 7)
    yield "Unbatch/too many", unbatch(i32(1, 2, 3), [7, 0, 2, 8, 2, 5], 7)
    yield "Unbatch/too many keys", unbatch(i32(1, 2, 3), [7, 0, 1] * 4, 7)
    yield "UnbatchGrad/strings", back(strings, numpy.array([[7, 0, 3]]), strings, 7)
    yield "UnbatchGrad/no index", back(i32(1, 2), numpy.zeros((0, 3), "int64"), i32(1, 2), 7)
    yield "UnbatchGrad/no rows", back(i32(), numpy.zeros((0, 3), "int64"), i32(1, 2), 7)
    yield "UnbatchGrad/index", back(i32(1, 2), numpy.array([[7, 0]]), i32(1, 2), 7)
    yield "UnbatchGrad/key", back(i32(1, 2), numpy.array([[7, 0, 1]]), i32(1, 2), [7])
    yield "UnbatchGrad/twice", back(i32(1, 2), numpy.array([[7, 0, 1], [7, 1, 2]]), i32(1, 2), 7)
