"""Linear algebra on a cluster: least squares four ways, eigenvalues, singular values, power
iteration in a while loop.

The matrix is that of the digits: 1437 images of 64 pixels. Each result is tried against what it
must satisfy; `--check` computes all of them with TensorFlow in this process, too.

    tfctl local --workers 2 -- python examples/linear_algebra.py [grpc://host:port] [--check]
"""
import sys

import numpy as np

from common import Place, arguments, tf, tf1
from digits_async import load_digits

RANK, RIDGE = 16, 1e-3


def least_squares(a, b):
    """X of least |A·X - B|² + ridge·|X|², by four routes that must agree."""
    n = int(a.shape[1])
    padded = tf.concat([a, np.sqrt(RIDGE) * tf.eye(n, dtype=a.dtype)], 0)
    target = tf.concat([b, tf.zeros([n, b.shape[1]], b.dtype)], 0)
    gram = tf.matmul(padded, padded, transpose_a=True)
    moment = tf.matmul(padded, target, transpose_a=True)
    q, r = tf.linalg.qr(padded)
    return {
        "by cholesky": tf.linalg.cholesky_solve(tf.linalg.cholesky(gram), moment),
        "by qr": tf.linalg.triangular_solve(r, tf.matmul(q, target, transpose_a=True), lower=False),
        "by lu": tf.linalg.solve(gram, moment),
        "by lstsq": tf.linalg.lstsq(a, b, l2_regularizer=RIDGE),
    }


def power_iteration(matrix):
    """The largest eigenvalue, and how many multiplications it took until it stood still."""
    def go_on(i, _, value, before):
        return tf.logical_and(i < 1000, tf.abs(value - before) > 1e-13 * tf.abs(value))

    def multiply(i, vector, value, _):
        product = tf.linalg.matvec(matrix, vector)
        return i + 1, product / tf.norm(product), tf.tensordot(vector, product, 1), value

    n = int(matrix.shape[0])
    start = tf.fill([n], tf.constant(n**-0.5, matrix.dtype))
    i, _, value, _ = tf.while_loop(go_on, multiply,
                                   (tf.constant(0), start, tf.constant(1.0, matrix.dtype),
                                    tf.constant(0.0, matrix.dtype)))
    return value, i


def build(place, pixels, digits):
    """Name → tensor. Only what has no free sign is compared."""
    results = {}
    with place.on("worker", 0):
        a = tf.constant(pixels)
        b = tf.one_hot(digits, 10, dtype=a.dtype)
        results.update((f"least squares {how}", x) for how, x in least_squares(a, b).items())
        centred = a - tf.reduce_mean(a, 0)
        covariance = tf.matmul(centred, centred, transpose_a=True) / (len(pixels) - 1)
    with place.on("worker", 1):
        values, vectors = tf.linalg.eigh(covariance)
        results["eigenvalues"] = values
        results["projection"] = tf.matmul(vectors[:, -RANK:], vectors[:, -RANK:], transpose_b=True)
        results["rebuilt"] = tf.matmul(vectors * values, vectors, transpose_b=True)
        results["covariance"] = covariance
        results["largest eigenvalue"], results["multiplications"] = power_iteration(covariance)
        results["log determinant"] = tf.linalg.slogdet(covariance + tf.eye(64, dtype=a.dtype))[1]
        results["inverse"] = tf.linalg.inv(covariance + tf.eye(64, dtype=a.dtype))
    with place.on("worker", 0):
        s, u, v = tf.linalg.svd(centred)
        results["singular values"] = s
        results["rank 16 error"] = tf.norm(centred
                                           - tf.matmul(
                                               u[:, :RANK] * s[:RANK], v[:, :RANK],
                                               transpose_b=True))
    return results


def compute(place, pixels, digits):
    with tf.Graph().as_default():
        results = build(place, pixels, digits)
        with tf1.Session(place.target) as session:
            return session.run(results)


def complaints(r, n_rows):
    """What does not hold."""
    def differs(what, x, y, tolerance=1e-8):
        error = np.max(np.abs(x - y)) / max(1.0, np.max(np.abs(y)))
        return [f"{what}: off by {error:.2g}"] if not error <= tolerance else []

    found = []
    for how in ("qr", "lu", "lstsq"):
        found += differs(f"least squares by {how} and by cholesky", r[f"least squares by {how}"],
                         r["least squares by cholesky"])
    found += differs("V·diag(values)·Vᵀ and the covariance", r["rebuilt"], r["covariance"])
    found += differs("a projection and its square", r["projection"] @ r["projection"],
                     r["projection"])
    found += differs("power iteration and the largest eigenvalue", r["largest eigenvalue"],
                     r["eigenvalues"][-1])
    found += differs("squares of singular values and eigenvalues",
                     np.sort(r["singular values"] ** 2) / (n_rows - 1), r["eigenvalues"])
    found += differs("the rank 16 error and the other singular values", r["rank 16 error"],
                     np.sqrt(np.sum(r["singular values"][RANK:] ** 2)))
    found += differs("log determinant and eigenvalues", r["log determinant"],
                     np.sum(np.log1p(r["eigenvalues"])))
    found += differs("inverse times matrix", r["inverse"] @ (r["covariance"] + np.eye(64)),
                     np.eye(64))
    return found


def main():
    options = arguments(__doc__, 1)
    tf1.disable_eager_execution()
    pixels, digits, _, _ = load_digits()
    pixels = pixels.astype(np.float64)
    r = compute(Place(options.target), pixels, digits)
    guesses = np.argmax(pixels @ r["least squares by cholesky"], 1)
    print(f"least squares tells {np.mean(guesses == digits):.1%} of the digits; the largest "
          f"eigenvalue is {r['eigenvalues'][-1]:.6f}, "
          f"found in {r['multiplications']} multiplications; {RANK} of 64 dimensions hold "
          f"{np.sum(r['eigenvalues'][-RANK:]) / np.sum(r['eigenvalues']):.1%} of the variance")
    found = complaints(r, len(pixels))
    if options.check:
        wanted = compute(Place(""), pixels, digits)
        errors = {name: np.max(np.abs(r[name] - wanted[name]))
                  / max(1.0, np.max(np.abs(wanted[name]))) for name in wanted if name
                  != "multiplications"}
        worst = max(errors, key=errors.get)
        print(f"the results differ from TensorFlow's by at most {errors[worst]:.2g} ({worst})")
        found += [f"{name} differs from TensorFlow's by {error:.2g}" for name,
                  error in errors.items() if not error <= 1e-8]
    if found:
        sys.exit("\n".join(found))
    print("all results hold")


if __name__ == "__main__":
    main()
