"""Feeds batches of 300 rows, of which a mask leaves 200, until a page has a text.

    sizes_program.py TARGET URL TEXT
"""
import sys
import urllib.request

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
ROWS, KEPT, COLUMNS = 300, 200, 512


def main(target, page, text):
    tf1.disable_eager_execution()
    x = tf1.placeholder(tf.float32, [None, COLUMNS], name="x")
    first = tf1.placeholder(tf.float32, [ROWS], name="first")
    kept = tf.raw_ops.Where(condition=first, name="kept")
    product = tf.matmul(x, tf.fill([COLUMNS, 64], tf.reduce_max(first)), name="product")
    result = tf.gather_nd(product, kept, name="result")
    mask = (np.arange(ROWS) < KEPT).astype(np.float32)
    value = np.ones((ROWS, COLUMNS), np.float32)
    with tf1.Session(target) as session:
        while text not in urllib.request.urlopen(page).read().decode():
            got = session.run(result, {x: value, first: mask})
            assert got.shape == (KEPT, 64) and np.all(got == COLUMNS), got.shape


main(*sys.argv[1:])
