"""word2vec: vectors for words by noise-contrastive estimation, from Shakespeare.

A word is to tell its neighbours from words drawn at random. Both tables are partitioned over two
parameter servers; a step reads and changes a few hundred rows of them.

    tfctl local --ps 2 --workers 1 -- python examples/word2vec.py [grpc://host:port] [--steps N]
    [--check]
"""
import numpy as np

from common import Training, arguments, load_text, seeded, tf, tf1, train_and_check
from word_lm import words_of

N_PS, N_WORDS, N_DIMENSIONS, N_NOISE, BATCH, WINDOW = 2, 5000, 64, 64, 512, 3
SHOWN = ("king", "love", "she", "sword", "brother", "night")


def build(place, words, tokens):
    with place.replica():
        partitioner = tf1.fixed_size_partitioner(N_PS)
        vectors = tf1.get_variable("vectors", [len(words), N_DIMENSIONS],
                                   initializer=seeded(tf1.random_uniform_initializer,
                                                      -0.5 / N_DIMENSIONS, 0.5 / N_DIMENSIONS,
                                                      seed=2),
                                   partitioner=partitioner)
        nce_w = tf1.get_variable("nce_w", [len(words), N_DIMENSIONS],
                                 initializer=seeded(tf1.truncated_normal_initializer, 0,
                                                    N_DIMENSIONS**-0.5, seed=4),
                                 partitioner=partitioner)
        nce_b = tf1.get_variable("nce_b", [len(words)], initializer=tf1.zeros_initializer(),
                                 partitioner=partitioner)
        centres, neighbours = tf1.placeholder(tf.int64, [None]), tf1.placeholder(
            tf.int64, [None, 1])
        embedded = tf1.nn.embedding_lookup(vectors, centres, partition_strategy="div")
        noise = tf.random.log_uniform_candidate_sampler(neighbours, 1, N_NOISE, True, len(words),
                                                        seed=6)
        loss = tf.reduce_mean(tf1.nn.nce_loss(nce_w, nce_b, neighbours, embedded, N_NOISE,
                                              len(words), sampled_values=noise,
                                              partition_strategy="div"))
        step = tf1.train.AdagradOptimizer(1.0).minimize(loss)
        unit = tf.nn.l2_normalize(tf.concat(list(vectors), 0), 1)
        shown = tf.constant([words.index(word) for word in SHOWN], tf.int64)
        _, nearest = tf.nn.top_k(tf.matmul(tf.gather(unit, shown), unit, transpose_b=True), 6)

    def feed(i):
        random = np.random.RandomState(i)
        at = random.randint(WINDOW, len(tokens) - WINDOW, BATCH)
        away = random.randint(1, WINDOW + 1, BATCH) * random.choice([-1, 1], BATCH)
        return {centres: tokens[at], neighbours: tokens[at + away][:, None]}

    def finish(session):
        for word, row in zip(SHOWN, session.run(nearest)):
            print(f"  {word:8} {' '.join(words[i] for i in row if words[i] != word)}")

    return Training(loss, step, feed, BATCH, "pairs", finish)


def main():
    options = arguments(__doc__, 5000)
    tf1.disable_v2_behavior()
    words, tokens = words_of(load_text(), N_WORDS)
    train_and_check("word2vec", lambda place: build(place, words, tokens), options, N_PS)


if __name__ == "__main__":
    main()
