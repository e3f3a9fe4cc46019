"""A wide and deep model of sparse features: from which part of Shakespeare's works is a speech?

The text is cut into ten parts, of a play or two each. The feeds are speeches as strings; all else
is in the graph. They are split into words, which makes a sparse matrix, and hashed. The wide part
is a linear model of words and of pairs of neighbours, learned by FTRL, the deep one a network over
the mean of the words' vectors, learned by Adagrad. All tables are partitioned over two parameter
servers.

    tfctl local --ps 2 --workers 1 -- python examples/wide_deep.py [grpc://host:port] [--steps N]
    [--check]
"""
import re
import sys

import numpy as np

from common import Training, arguments, load_text, tf, tf1, train_and_check

N_PS, N_PARTS, BATCH = 2, 10, 128
N_PAIR_BUCKETS, N_WORD_BUCKETS, N_DIMENSIONS = 1 << 16, 1 << 13, 32


def load_speeches():
    """(speeches, parts) for training and for the test; and how often the most frequent part is
    right."""
    text = load_text()
    found = [(match.group(1), match.start() * N_PARTS // len(text))
             for match in re.finditer(r"^[A-Z][A-Za-z ]+:\n(.+?)(?:\n\n|\Z)", text, re.M | re.S)]
    order = np.random.RandomState(0).permutation(len(found))
    speeches, parts = np.array([found[i][0] for i in order], object), np.array(
        [found[i][1] for i in order], np.int64)
    n_test = len(found) // 5
    return speeches[n_test:], parts[n_test:], speeches[:n_test], parts[:n_test], float(
        np.mean(parts[:n_test] == np.argmax(np.bincount(parts))))


def table(name, n_rows, n_columns, initializer):
    return tf1.get_variable(name, [n_rows, n_columns], initializer=initializer,
                            partitioner=tf1.fixed_size_partitioner(N_PS))


def dense(x, n_out, name, activation=None):
    with tf1.variable_scope(name):
        w = tf1.get_variable("w", [x.shape[-1], n_out],
                             initializer=tf1.glorot_uniform_initializer())
        b = tf1.get_variable("b", [n_out], initializer=tf1.zeros_initializer())
    y = tf.nn.bias_add(tf.matmul(x, w), b)
    return activation(y) if activation else y


def hashed(words, n_buckets):
    """A ragged matrix of words as a sparse one of bucket numbers."""
    words = words.to_sparse()
    return tf.SparseTensor(words.indices, tf.strings.to_hash_bucket_fast(words.values, n_buckets),
                           words.dense_shape)


def logits_of(texts):
    words = tf.strings.split(tf.strings.regex_replace(tf.strings.lower(texts), r"[^a-z']+", " "))
    pairs = tf.strings.ngrams(words, (1, 2))
    with tf1.variable_scope("wide"):
        weights = table("weights", N_PAIR_BUCKETS, N_PARTS, tf1.zeros_initializer())
        wide = tf1.nn.safe_embedding_lookup_sparse(
            list(weights), hashed(pairs, N_PAIR_BUCKETS), combiner="sqrtn",
            partition_strategy="div")
    with tf1.variable_scope("deep"):
        vectors = table("vectors", N_WORD_BUCKETS, N_DIMENSIONS,
                        tf1.truncated_normal_initializer(stddev=0.3))
        x = tf1.nn.safe_embedding_lookup_sparse(list(vectors), hashed(words, N_WORD_BUCKETS),
                                                combiner="mean", partition_strategy="div")
        x = tf.ensure_shape(x, [None, N_DIMENSIONS])
        deep = dense(dense(x, 64, "hidden", tf.nn.relu), N_PARTS, "logits")
    return wide + deep


def build(place, speeches):
    train_texts, train_parts, test_texts, test_parts, _ = speeches
    with place.replica():
        texts, parts = tf1.placeholder(tf.string, [None]), tf1.placeholder(tf.int64, [None])
        logits = logits_of(texts)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=parts,
                logits=logits))
        wide, deep = (tf1.trainable_variables(scope) for scope in ("wide", "deep"))
        step = tf.group(tf1.train.FtrlOptimizer(1.0, l2_regularization_strength=0.001).minimize(
            loss, var_list=wide),
                        tf1.train.AdagradOptimizer(1.0).minimize(loss, var_list=deep))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), parts), tf.float32))

    def feed(i):
        batch = np.random.RandomState(i).randint(0, len(train_texts), BATCH)
        return {texts: train_texts[batch], parts: train_parts[batch]}

    return Training(loss, step, feed, BATCH, "speeches",
                    lambda session: session.run(accuracy, {texts: test_texts, parts: test_parts}))


def main():
    options = arguments(__doc__, 500)
    tf1.disable_eager_execution()
    speeches = load_speeches()
    print(f"{len(speeches[0])} speeches of {N_PARTS} parts to learn from; {len(speeches[2])} to be "
          "tested with")
    _, accuracy = train_and_check("wide and deep", lambda place: build(place, speeches), options,
                                  N_PS)
    print(f"test accuracy {accuracy:.4f}; always naming the commonest part gives {speeches[4]:.4f}")
    if accuracy < 2 * speeches[4] and options.steps >= 500:
        sys.exit("the model did not learn")


if __name__ == "__main__":
    main()
