"""A language model of characters: an LSTM over Shakespeare, unrolled by a while loop, its tables
and softmax on two parameter servers.

The embedding is partitioned over both parameter servers. The softmax comes in two forms [OSDI 4.2]:
`full` multiplies by one matrix that the worker reads from its parameter server in each step;
`sharded` leaves half of the matrix on either, which multiplies, sums its own exponentials and keeps
its own gradient, so that only hidden states and a few numbers for each character cross.

    tfctl local --ps 2 --workers 1 -- python examples/char_lstm.py [grpc://host:port] [--softmax
    full|sharded|all] [--steps N] [--check]
"""
import numpy as np

from common import Training, arguments, load_text, seeded, tf, tf1, train_and_check

N_PS, BATCH, LENGTH, N_EMBEDDED, N_HIDDEN = 2, 32, 20, 64, 256


def lstm(ids, n_symbols, n_embedded=N_EMBEDDED, n_hidden=N_HIDDEN):
    """ids int32 [batch, time] → hidden states float [batch · time, n_hidden]."""
    table = tf1.get_variable("embedding", [n_symbols, n_embedded],
                             initializer=seeded(tf1.random_uniform_initializer, -0.08, 0.08,
                                                seed=2),
                             partitioner=tf1.fixed_size_partitioner(N_PS))
    w = tf1.get_variable("lstm_w", [n_embedded + n_hidden, 4 * n_hidden],
                         initializer=tf1.random_uniform_initializer(-0.08, 0.08, seed=4))
    b = tf1.get_variable("lstm_b", [4 * n_hidden], initializer=tf1.zeros_initializer())
    embedded = tf1.nn.embedding_lookup(table, ids, partition_strategy="div")
    n_batch, n_steps = tf.unstack(tf.shape(ids))
    inputs = tf.TensorArray(tf.float32, n_steps).unstack(tf.transpose(embedded, [1, 0, 2]))

    def step(t, cell, hidden, outputs):
        in_gate, new, forget_gate, out_gate = tf.split(
            tf.matmul(tf.concat([inputs.read(t), hidden], 1), w) + b, 4, 1)
        cell = cell * tf.sigmoid(forget_gate + 1) + tf.sigmoid(in_gate) * tf.tanh(new)
        hidden = tf.sigmoid(out_gate) * tf.tanh(cell)
        return t + 1, cell, hidden, outputs.write(t, hidden)

    zero = tf.zeros([n_batch, n_hidden])
    shapes = (tf.TensorShape([]), tf.TensorShape([None, n_hidden]),
              tf.TensorShape([None, n_hidden]), tf.TensorShape(None))
    _, _, _, outputs = tf.while_loop(lambda t, *_: t < n_steps, step,
                                     (tf.constant(0), zero, zero,
                                      tf.TensorArray(tf.float32, n_steps)), shapes)
    return tf.reshape(tf.transpose(outputs.stack(), [1, 0, 2]), [-1, n_hidden])


def full_softmax(place, hidden, labels, n_symbols):
    w = tf1.get_variable("softmax_w", [n_symbols, hidden.shape[-1]],
                         initializer=tf1.random_uniform_initializer(-0.08, 0.08, seed=5))
    b = tf1.get_variable("softmax_b", [n_symbols], initializer=tf1.zeros_initializer())
    logits = tf.matmul(hidden, w, transpose_b=True) + b
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels,
            logits=logits))


def sharded_softmax(place, hidden, labels, n_symbols):
    """-log of the labels' probabilities; shard i holds the symbols [begin, end)."""
    log_sums, chosen = [], []
    for i in range(N_PS):
        begin, end = i * n_symbols // N_PS, (i + 1) * n_symbols // N_PS
        with place.on("ps", i):
            w = tf1.get_variable(f"softmax_w{i}", [end - begin, hidden.shape[-1]],
                                 initializer=tf1.random_uniform_initializer(-0.08, 0.08))
            b = tf1.get_variable(f"softmax_b{i}", [end - begin],
                                 initializer=tf1.zeros_initializer())
            logits = tf.matmul(hidden, w, transpose_b=True) + b
            log_sums.append(tf.reduce_logsumexp(logits, 1))
            is_here = tf.logical_and(labels >= begin, labels < end)
            logit = tf.gather(logits, tf.clip_by_value(labels - begin, 0, end - begin - 1),
                              batch_dims=1)
            chosen.append(tf.where(is_here, logit, tf.zeros_like(logit)))
    return tf.reduce_mean(tf.reduce_logsumexp(tf.stack(log_sums), 0) - tf.add_n(chosen))


def minimize(loss, learning_rate):
    """Adam with clipped gradients; each gradient op beside its forward op, so that a shard's stays
    with the shard."""
    optimizer = tf1.train.AdamOptimizer(learning_rate)
    gradients, variables = zip(*optimizer.compute_gradients(loss, colocate_gradients_with_ops=True))
    clipped, _ = tf.clip_by_global_norm(gradients, 5.0)
    return optimizer.apply_gradients(zip(clipped, variables))


def language_model(place, tokens, n_symbols, softmax, items, **sizes):
    """Predicts each token of a stream from those before it, BATCH streams at once."""
    with place.replica():
        ids = tf1.placeholder(tf.int32, [BATCH, LENGTH])
        labels = tf1.placeholder(tf.int32, [BATCH, LENGTH])
        loss = softmax(place, lstm(ids, n_symbols, **sizes), tf.reshape(labels, [-1]), n_symbols)
        step = minimize(loss, 2e-3)
    streams = tokens[: len(tokens) // BATCH * BATCH].reshape(BATCH, -1)
    n_batches = (streams.shape[1] - 1) // LENGTH

    def feed(i):
        at = i % n_batches * LENGTH
        return {ids: streams[:, at : at + LENGTH], labels: streams[:, at + 1 : at + 1 + LENGTH]}

    return Training(loss, step, feed, BATCH * LENGTH, items)


SOFTMAXES = {"full": full_softmax, "sharded": sharded_softmax}


def main():
    options = arguments(__doc__, 200,
                        lambda parser: parser.add_argument(
                            "--softmax", choices=[*SOFTMAXES, "all"], default="all"))
    tf1.disable_v2_behavior()
    symbols, tokens = np.unique(list(load_text()), return_inverse=True)
    tokens = tokens.astype(np.int32)
    print(f"{len(tokens)} characters, {len(symbols)} different ones; a guess that knows nothing "
          f"has a loss of {np.log(len(symbols)):.4f}")
    for name in SOFTMAXES if options.softmax == "all" else [options.softmax]:
        train_and_check(f"{name} softmax", lambda place,
                        s=SOFTMAXES[name]: language_model(place, tokens, len(symbols), s, "chars"),
                        options, N_PS)


if __name__ == "__main__":
    main()
