"""A language model of words, with three softmaxes: full, sharded over two parameter servers, and
sampled.

With ten thousand words the softmax is most of the work. The sampled one [OSDI 4.2, 6.4] multiplies
by the rows of the true word and of 512 others, drawn for each batch in proportion to how frequent
words are, and gathers them from two parameter servers. Its loss is another number than the full
one's, so compare the words per second, not the losses.

    tfctl local --ps 2 --workers 1 -- python examples/word_lm.py [grpc://host:port] [--softmax
    NAME|all] [--steps N] [--check]
"""
import collections
import re

import numpy as np

from char_lstm import N_PS, full_softmax, language_model, sharded_softmax
from common import arguments, load_text, tf, tf1, train_and_check

N_WORDS, N_EMBEDDED, N_HIDDEN, N_SAMPLED = 10000, 128, 256, 512


def words_of(text, n_words):
    """The words, the most frequent first, and the text as their numbers; rare words are all number
    0."""
    tokens = re.findall(r"[a-z']+|[.,;:!?]", text.lower())
    words = ["<rare>"] + [word for word, _ in collections.Counter(tokens).most_common(n_words - 1)]
    number = {word: i for i, word in enumerate(words)}
    return words, np.array([number.get(token, 0) for token in tokens], np.int32)


def sampled_softmax(place, hidden, labels, n_symbols):
    partitioner = tf1.fixed_size_partitioner(N_PS)
    w = tf1.get_variable("softmax_w", [n_symbols, hidden.shape[-1]],
                         initializer=tf1.random_uniform_initializer(-0.08, 0.08),
                         partitioner=partitioner)
    b = tf1.get_variable("softmax_b", [n_symbols], initializer=tf1.zeros_initializer(),
                         partitioner=partitioner)
    labels = tf.reshape(tf.cast(labels, tf.int64), [-1, 1])
    return tf.reduce_mean(tf1.nn.sampled_softmax_loss(w, b, labels, hidden, N_SAMPLED, n_symbols,
            partition_strategy="div", seed=7))


SOFTMAXES = {"full": full_softmax, "sharded": sharded_softmax, "sampled": sampled_softmax}


def main():
    options = arguments(__doc__, 100,
                        lambda parser: parser.add_argument(
                            "--softmax", choices=[*SOFTMAXES, "all"], default="all"))
    tf1.disable_v2_behavior()
    words, tokens = words_of(load_text(), N_WORDS)
    print(f"{len(tokens)} words, {len(words)} different ones; a guess that knows nothing has a "
          f"loss of {np.log(len(words)):.4f}")
    for name in SOFTMAXES if options.softmax == "all" else [options.softmax]:

        def build(place, softmax=SOFTMAXES[name]):
            return language_model(place, tokens, len(words), softmax, "words",
                                  n_embedded=N_EMBEDDED, n_hidden=N_HIDDEN)

        train_and_check(f"{name} softmax", build, options, N_PS)


if __name__ == "__main__":
    main()
