"""Models as people write them, whose nodes a GPU shares with the host: decoders, mixed precision,
text, sparse tables, second derivatives, replay memories, image augmentation."""

import contextlib

import numpy as np
from programs import PS, WORKER0, WORKER1, Run, tf, tf1

RNG = np.random.default_rng(11)
TOKENS = RNG.integers(1, 12, (4, 7)).astype(np.int32)
LENGTHS = np.array([7, 3, 5, 1], np.int32)
FRAMES = RNG.normal(size=(4, 7, 5)).astype(np.float32)
IMAGES = RNG.uniform(size=(3, 8, 8, 3)).astype(np.float32)
LINES = np.array([b"the cat sat", b"a dog", b"the dog sat on the cat", b"nothing known"])
WORDS = [b"the", b"cat", b"dog", b"sat", b"on", b"a"]


def _weights(name, *shape, scale=0.4, dtype=np.float32, **keywords):
    """A variable of numbers that depend on its name alone."""
    rng = np.random.default_rng(sum(name.encode()))
    value = (rng.normal(size=shape) * scale).astype(dtype)
    return tf1.get_variable(name, initializer=value, **{"use_resource": True, **keywords})


def _train(loss, optimizer, n_steps=4, feeds=None, more=()):
    pairs = optimizer.compute_gradients(loss)
    clipped, norm = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 2.0)
    train = optimizer.apply_gradients(zip(clipped, [variable for _, variable in pairs]))
    starts = [tf1.global_variables_initializer(), tf1.tables_initializer(),
              tf1.local_variables_initializer()]
    return ([Run(starts)] + [Run([loss, norm, train, *more], feeds or {})] * n_steps
            + [Run([loss, tf1.trainable_variables()], feeds or {})])


# ---- recurrent networks ----


def _cell(name, n_in, n):
    """One step of an LSTM: a function of an input and of its state."""
    w, b = _weights(name + "_w", n_in + n, 4 * n), _weights(name + "_b", 4 * n)

    def step(x, h, c):
        i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), w) + b, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        return tf.tanh(c) * tf.sigmoid(o), c

    return step


def _unrolled(step, x, lengths, n, swap_memory, is_backward=False):
    """What dynamic_rnn builds: a loop over time that stops at the longest sequence, and keeps the
    state of those that have ended."""
    batch = tf.shape(x)[0]
    by_time = tf.transpose(tf.reverse_sequence(x, lengths, 1) if is_backward else x, [1, 0, 2])
    n_steps = tf.shape(by_time)[0]
    xs = tf.TensorArray(tf.float32, n_steps, clear_after_read=False).unstack(by_time)
    ys = tf.TensorArray(tf.float32, n_steps, element_shape=[None, n])
    zero = tf.zeros([batch, n])
    longest = tf.reduce_max(lengths)

    def body(t, h, c, ys):
        new_h, new_c = step(xs.read(t), h, c)
        ended = t >= lengths
        y = tf1.where(ended, tf.zeros_like(new_h), new_h)
        return t + 1, tf1.where(ended, h, new_h), tf1.where(ended, c, new_c), ys.write(t, y)

    _, h, c, ys = tf1.while_loop(lambda t, *_: t < longest, body, (0, zero, zero, ys),
                                 swap_memory=swap_memory, parallel_iterations=4)
    y = tf.transpose(ys.stack(), [1, 0, 2])
    return tf.reverse_sequence(y, lengths, 1) if is_backward else y, h, c


@contextlib.contextmanager
def _functional_control_flow():
    tf1.enable_control_flow_v2()
    try:
        yield
    finally:
        tf1.disable_control_flow_v2()


def _tagger(swap_memory, v2):
    def build():
        with _functional_control_flow() if v2 else contextlib.nullcontext():
            x = tf1.placeholder(tf.float32, [None, None, 5])
            lengths = tf1.placeholder(tf.int32, [None])
            tags = tf.constant(TOKENS % 3)
            ahead, h, _ = _unrolled(_cell("ahead", 5, 6), x, lengths, 6, swap_memory)
            back, _, _ = _unrolled(_cell("back", 5, 6), x, lengths, 6, swap_memory, True)
            logits = tf.tensordot(tf.concat([ahead, back], 2), _weights("out", 12, 3), 1)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tags, logits=logits)
            mask = tf.sequence_mask(lengths, tf.shape(x)[1])
            loss = tf.reduce_mean(tf.boolean_mask(losses, mask)) + 0.01 * tf.nn.l2_loss(h)
            return _train(loss, tf1.train.AdamOptimizer(0.05), feeds={x: FRAMES, lengths: LENGTHS})

    return build


def _beam_search():
    """Sequences, scores and states of a decoder; beams are reordered by what the GPU computed."""
    n_beams, n_words, n, end = 3, 9, 6, 0
    table, step = _weights("table", n_words, n, scale=1.0), _cell("decoder", n, n)
    out = _weights("out", n, n_words, scale=2.0)
    batch = 2
    h0 = tf1.placeholder(tf.float32, [batch, n])
    h = tf.reshape(tf.tile(h0[:, None], [1, n_beams, 1]), [-1, n])
    scores = tf.tile(tf.constant([[0.0] + [-1e9] * (n_beams - 1)]), [batch, 1])
    ids = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[batch, n_beams])
    parents = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[batch, n_beams])
    rows = tf.tile(tf.range(batch)[:, None], [1, n_beams])

    def going(t, last, scores, ended, *_):
        return tf.logical_and(t < 8, tf.logical_not(tf.reduce_all(ended)))

    def body(t, last, scores, ended, h, c, ids, parents):
        h, c = step(tf.gather(table, tf.reshape(last, [-1])), h, c)
        log = tf.nn.log_softmax(tf.matmul(h, out))
        log = tf.reshape(log, [batch, n_beams, n_words])
        stay = tf.one_hot(tf.fill([batch, n_beams], end), n_words, 0.0, -1e9)
        log = tf1.where(tf.tile(ended[:, :, None], [1, 1, n_words]), stay, log)
        total = tf.reshape(scores[:, :, None] + log, [batch, -1])
        scores, best = tf.nn.top_k(total, n_beams)
        parent, word = best // n_words, best % n_words
        at = tf.stack([rows, parent], 2)
        ended = tf.logical_or(tf.gather_nd(ended, at), tf.equal(word, end))
        h, c = (tf.reshape(tf.gather_nd(tf.reshape(z, [batch, n_beams, n]), at), [-1, n])
                for z in (h, c))
        return t + 1, word, scores, ended, h, c, ids.write(t, word), parents.write(t, parent)

    t, _, scores, ended, h, _, ids, parents = tf1.while_loop(
        going, body, (0, tf.ones([batch, n_beams], tf.int32), scores,
                      tf.zeros([batch, n_beams], tf.bool), h, tf.zeros_like(h), ids, parents))
    words, froms = ids.stack(), parents.stack()

    def backwards(i, beam, found):
        at = tf.stack([rows, beam], 2)
        return i - 1, tf.gather_nd(froms[i], at), found.write(i, tf.gather_nd(words[i], at))

    _, _, found = tf1.while_loop(
        lambda i, *_: i >= 0, backwards,
        (t - 1, tf.tile(tf.range(n_beams)[None], [batch, 1]), tf.TensorArray(tf.int32, t)))
    text = tf.strings.reduce_join(tf.as_string(tf.transpose(found.stack(), [1, 2, 0])), 2,
                                  separator=" ")
    feeds = {h0: FRAMES.reshape(-1)[:batch * n].reshape(batch, n)}
    return [Run(tf1.global_variables_initializer()), Run([text, scores, t, ended, h], feeds)]


def _tree():
    """A recursive network over trees: what a step reads, earlier steps wrote."""
    left, right = (tf1.placeholder(tf.int32, [None], name) for name in ("left", "right"))
    words = tf1.placeholder(tf.int32, [None])
    table, w = _weights("table", 12, 4), _weights("w", 8, 4)
    n = tf.size(words)
    nodes = tf.TensorArray(tf.float32, n, clear_after_read=False, infer_shape=False,
                           element_shape=[4])

    def body(i, nodes):
        def leaf():
            return tf.gather(table, words[i])

        def inner():
            both = tf.concat([nodes.read(left[i]), nodes.read(right[i])], 0)
            return tf.tanh(tf.linalg.matvec(w, both, transpose_a=True))

        node = tf.cond(left[i] < 0, leaf, inner)
        node.set_shape([4])
        return i + 1, nodes.write(i, node)

    _, nodes = tf1.while_loop(lambda i, _: i < n, body, (0, nodes), parallel_iterations=1)
    top = nodes.read(n - 1)
    loss = tf.reduce_sum(tf.square(top - 0.3))
    feeds = {words: [3, 5, -1, 7, -1], left: [-1, -1, 0, -1, 2], right: [-1, -1, 1, -1, 3]}
    return _train(loss, tf1.train.GradientDescentOptimizer(0.2), feeds=feeds)


def _attention():
    """Two layers of masked self-attention with dropout off, layer norms, and tied embeddings."""
    tokens = tf1.placeholder(tf.int32, [None, None])
    n, n_heads = 8, 2
    table, places = _weights("table", 12, n), _weights("places", 16, n)
    length = tf.shape(tokens)[1]
    x = tf.gather(table, tokens) * n ** 0.5 + places[:length]
    unseen = 1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0)

    def heads(z):
        shape = tf.shape(z)
        return tf.transpose(tf.reshape(z, [shape[0], shape[1], n_heads, n // n_heads]),
                            [0, 2, 1, 3])

    def norm(z, name):
        mean, variance = tf1.nn.moments(z, [-1], keepdims=True)
        return ((z - mean) * tf1.rsqrt(variance + 1e-6) * (1 + _weights(name + "_g", n))
                + _weights(name + "_b", n))

    for layer in ("one", "two"):
        normed = norm(x, layer)
        q, k, v = (heads(tf.tensordot(normed, _weights(layer + name, n, n), 1)) for name in "qkv")
        scores = tf.matmul(q, k, transpose_b=True) / (n // n_heads) ** 0.5 - 1e9 * unseen
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
        x += tf.tensordot(tf.reshape(mixed, tf.shape(x)), _weights(layer + "o", n, n), 1)
        hidden = tf.nn.gelu(tf.einsum("bti,ij->btj", norm(x, layer + "f"),
                                      _weights(layer + "in", n, 16)))
        x += tf.einsum("bti,ij->btj", hidden, _weights(layer + "out", 16, n))
    logits = tf.einsum("bti,vi->btv", x, table)
    losses = tf.nn.softmax_cross_entropy_with_logits(
        labels=tf.stop_gradient(tf.one_hot(tf.roll(tokens, -1, 1), 12) * 0.9 + 0.1 / 12),
        logits=logits)
    loss = tf.reduce_sum(losses[:, :-1]) / tf.cast(tf.size(tokens) - tf.shape(tokens)[0],
                                                   tf.float32)
    return _train(loss, tf1.train.AdamOptimizer(0.02), feeds={tokens: TOKENS},
                  more=[tf.exp(loss), tf.argmax(logits, 2)])


# ---- predicates that a GPU computes ----


def _loss_scale(value):
    """Mixed precision: halves on the way, a scale that halves where a gradient is not finite."""
    def build():
        x = tf1.placeholder(tf.float32, [None, 5])
        w, v = _weights("w", 5, 6), _weights("v", 6, 1)
        scale = tf1.get_variable("scale", initializer=value, trainable=False, use_resource=True)
        good = tf1.get_variable("good", initializer=0, trainable=False, use_resource=True)
        half = tf.nn.relu(tf.matmul(tf.cast(x, tf.half), tf.cast(w, tf.half)))
        y = tf.matmul(half, tf.cast(v, tf.half))
        loss = tf.reduce_mean(tf.square(tf.cast(y, tf.float32) - 2.0))
        gradients = [g / scale for g in tf1.gradients(loss * scale, [w, v])]
        is_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])

        def apply():
            update = tf1.train.MomentumOptimizer(0.05, 0.9).apply_gradients(
                zip(gradients, [w, v]))
            with tf1.control_dependencies([update, good.assign_add(1)]):
                return tf.cond(good >= 2, lambda: scale.assign(scale * 2).read_value(),
                               lambda: tf.identity(scale))

        def skip():
            with tf1.control_dependencies([good.assign(0)]):
                return scale.assign(tf.maximum(scale / 2, 1.0)).read_value()

        new = tf.cond(is_finite, apply, skip)
        feeds = {x: FRAMES[:, 0]}
        return ([Run(tf1.global_variables_initializer())]
                + [Run([loss, new, is_finite], feeds)] * 5 + [Run([w, v, good])])

    return build


def _line_search():
    """A loop that ends when numbers of the GPU say so, with a loop of the same kind inside."""
    x = _weights("x", 6, scale=2.0)

    def f(z):
        return tf.reduce_sum(tf.square(z[1:] - tf.square(z[:-1])) + 0.1 * tf.square(1 - z[:-1]))

    def body(i, z, _):
        gradient, = tf.gradients(f(z), [z])
        square = tf.reduce_sum(tf.square(gradient))

        def shorter(step):
            return f(z - step * gradient) > f(z) - 0.3 * step * square

        step = tf1.while_loop(shorter, lambda step: step * 0.5, [tf.constant(1.0)])
        return i + 1, z - step * gradient, tf.sqrt(square)

    i, z, norm = tf1.while_loop(lambda i, z, norm: tf.logical_and(i < 25, norm > 0.05), body,
                                (0, tf.identity(x), tf.constant(1e3)))
    return [Run(tf1.global_variables_initializer()), Run([i, z, norm, x.assign(z), f(z)])] * 2


def _switched():
    """A case for each row, by an argmax; branches with variables and lists, and their gradients."""
    x = tf1.placeholder(tf.float32, [None, 3])
    w = _weights("w", 3, 3)

    def row(z):
        y = tf.linalg.matvec(w, z)
        return tf.switch_case(tf.argmax(y, output_type=tf.int32), [
            lambda: tf.reduce_sum(y * y),
            lambda: tf.reduce_prod(tf.concat([y, z], 0)),
            lambda: tf.foldl(lambda a, b: tf.where(b > a, a * b, a - b), tf.concat([y, z], 0))])

    values = tf.map_fn(row, x, fn_output_signature=tf.float32)
    loss = tf.reduce_sum(values)
    return _train(loss, tf1.train.GradientDescentOptimizer(0.01), feeds={x: FRAMES[0, :, :3]},
                  more=[values])


# ---- text, tables, sparse and ragged values ----


def _words(resource, n_shards, combiner):
    """Lines of text: split, looked up, embedded as a sparse and as a ragged value."""
    def build():
        with tf1.device(tf1.train.replica_device_setter(
                cluster={"ps": ["a:1"], "worker": ["b:1", "c:1"]}, worker_device=WORKER0)):
            lines = tf1.placeholder(tf.string, [None])
            ids = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(
                WORDS, np.arange(len(WORDS), dtype=np.int64)), 3)
            words = tf.strings.split(lines)
            found = tf.ragged.map_flat_values(ids.lookup, words)
            table = tf1.get_variable(
                "table", [9, 4], initializer=tf1.random_uniform_initializer(-1, 1, seed=4),
                partitioner=tf1.fixed_size_partitioner(n_shards) if n_shards > 1 else None,
                use_resource=resource)
            shards = list(table) if n_shards > 1 else table
            sparse = found.to_sparse()
            share = tf.sparse.map_values(lambda v: 1.0 / (1.0 + tf.cast(v, tf.float32)), sparse)
            bags = tf1.nn.embedding_lookup_sparse(shards, sparse, share, combiner=combiner)
            rows = found.with_values(tf1.nn.embedding_lookup(shards, found.values))
            means = tf.reduce_max(rows, axis=1)
            counts = tf.cast(found.row_lengths(), tf.float32)[:, None]
            wide = tf1.sparse_tensor_dense_matmul(
                tf.SparseTensor(sparse.indices, share.values, [sparse.dense_shape[0], 9]),
                _weights("wide", 9, 2, use_resource=resource))
            y = tf.concat([bags, means, counts, wide], 1)
            loss = tf.reduce_mean(tf.square(tf.matmul(y, _weights("out", 11, 1,
                                                                 use_resource=resource)) - 1.0))
            told = tf.strings.join([lines, tf.strings.reduce_join(
                tf.as_string(bags, precision=2), 1, separator=",")], ": ")
            return _train(loss, tf1.train.AdagradOptimizer(0.3), feeds={lines: LINES},
                          more=[told, words.to_tensor(b"-"), found.to_tensor(-1)])

    return build


def _ctc():
    """A loss over frames, and both decoders, whose distance to the labels is counted."""
    x = tf1.placeholder(tf.float32, [4, 7, 5])
    logits = tf.transpose(tf.tensordot(x, _weights("w", 5, 6, scale=1.0), 1), [1, 0, 2])
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [3, 0]],
                             tf.constant([1, 2, 0, 3, 3, 4], tf.int32), [4, 2])
    lengths = tf.constant([7, 3, 5, 2])
    loss = tf.reduce_mean(tf1.nn.ctc_loss(labels, logits, lengths))
    (greedy,), score = tf.nn.ctc_greedy_decoder(logits, lengths)
    (beam,), log = tf1.nn.ctc_beam_search_decoder(logits, lengths, beam_width=4)
    errors = tf.edit_distance(tf.cast(greedy, tf.int32), labels)
    return _train(loss, tf1.train.RMSPropOptimizer(0.05), feeds={x: FRAMES},
                  more=[errors, score, log, tf.sparse.to_dense(beam, default_value=-1)])


def _metrics():
    """Streaming metrics beside a training step, with a summary of strings and numbers."""
    x, labels = tf1.placeholder(tf.float32, [None, 5]), tf1.placeholder(tf.int64, [None])
    logits = tf.matmul(x, _weights("w", 5, 3))
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    guess = tf.argmax(logits, 1)
    metrics = dict(
        accuracy=tf1.metrics.accuracy(labels, guess),
        recall=tf1.metrics.recall_at_k(labels, logits, 2),
        auc=tf1.metrics.auc(tf.equal(labels, 1), tf.nn.softmax(logits)[:, 1], num_thresholds=20),
        by_class=tf1.metrics.mean_per_class_accuracy(labels, guess, 3),
        iou=tf1.metrics.mean_iou(labels, guess, 3),
        sorted=tf1.metrics.mean(tf.sort(tf.nn.softmax(logits))[:, -1]),
        close=tf1.metrics.percentage_below(tf.reduce_max(logits, 1), 0.4))
    values, updates = zip(*metrics.values())
    tf1.summary.scalar("loss", loss)
    tf1.summary.histogram("logits", logits)
    tf1.summary.text("guess", tf.as_string(guess))
    length = tf.strings.length(tf1.summary.merge_all())
    told = tf.strings.format("guess {} of {}", (guess, tf.shape(x)), summarize=-1)
    feeds = {x: FRAMES.reshape(-1, 5), labels: TOKENS.reshape(-1) % 3}
    return _train(loss, tf1.train.FtrlOptimizer(0.5), feeds=feeds,
                  more=[updates, told, length > 20]) + [Run(values)]


# ---- convolutions, second derivatives ----


def _gan():
    """Two players, batch norms whose averages are updated, a penalty on a gradient's norm."""
    real = tf1.placeholder(tf.float32, [None, 8, 8, 3])
    noise = tf1.placeholder(tf.float32, [None, 4])

    def normed(y, name):
        scale, offset = _weights(name + "_s", y.shape[-1]), _weights(name + "_o", y.shape[-1])
        y, mean, variance = tf1.nn.fused_batch_norm(y, 1 + scale, offset)
        average = tf1.get_variable(name + "_average", initializer=tf.zeros([y.shape[-1]]),
                                   trainable=False, use_resource=True)
        tf1.add_to_collection("updates", average.assign_sub(0.1 * (average - mean)))
        return y

    y = tf.reshape(tf.matmul(noise, _weights("g_in", 4, 64)), [-1, 4, 4, 4])
    y = tf.nn.relu(normed(y, "g_norm"))
    fake = tf.sigmoid(tf1.nn.conv2d_transpose(
        y, _weights("g_up", 3, 3, 3, 4), tf.stack([tf.shape(y)[0], 8, 8, 3]), [1, 2, 2, 1]))
    f, v = _weights("d_f", 3, 3, 3, 6), _weights("d_v", 96, 1)

    def judged(z):
        z = tf.nn.leaky_relu(tf1.nn.conv2d(z, f, [1, 2, 2, 1], "SAME"))
        return tf.matmul(tf.reshape(z, [-1, 96]), v)

    mixed = 0.3 * real + 0.7 * fake
    slope, = tf.gradients(judged(mixed), [mixed])
    penalty = tf.reduce_mean(tf.square(tf.norm(tf.reshape(slope, [-1, 192]), axis=1) - 1.0))
    d_loss = tf.reduce_mean(judged(fake)) - tf.reduce_mean(judged(real)) + 10 * penalty
    g_loss = -tf.reduce_mean(judged(fake))
    of = {name: [w for w in tf1.trainable_variables() if w.name.startswith(name)] for name in "gd"}
    d_step = tf1.train.AdamOptimizer(0.01, 0.0).minimize(d_loss, var_list=of["d"])
    with tf1.control_dependencies(tf1.get_collection("updates")):
        g_step = tf1.train.AdamOptimizer(0.01, 0.0).minimize(g_loss, var_list=of["g"])
    feeds = {real: IMAGES, noise: FRAMES[:3, 0, :4]}
    return ([Run(tf1.global_variables_initializer())]
            + [Run([d_loss, d_step], feeds), Run([g_loss, g_step], feeds)] * 2
            + [Run([fake, penalty, tf1.global_variables()], feeds)])


def _augmented():
    """Boxes and images: what preprocessing asks of a GPU and of the host."""
    images = tf1.placeholder(tf.float32, [None, 8, 8, 3])
    boxes = tf.constant([[0.1, 0.1, 0.7, 0.8], [0.0, 0.2, 0.6, 0.9], [0.5, 0.0, 1.0, 0.5],
                         [0.1, 0.15, 0.7, 0.85]])
    kept = tf.image.non_max_suppression(boxes, tf.reduce_mean(images, [0, 1])[:, 0][:4], 3, 0.5)
    crops = tf.image.crop_and_resize(images, tf.gather(boxes, kept),
                                     tf.range(tf.size(kept)) % tf.shape(images)[0], [5, 6])
    large = tf1.image.resize_bilinear(crops, [9, 7], align_corners=True)
    flipped = tf.reverse(large, [2])
    hue = tf.image.adjust_hue(tf.image.adjust_saturation(flipped, 0.7), 0.2)
    plain = tf.map_fn(tf.image.per_image_standardization, hue)
    patches = tf.image.extract_patches(plain, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
    w = _weights("w", 27, 2)
    loss = tf.reduce_mean(tf.square(tf.tensordot(patches, w, 1)))
    slope, = tf.gradients(tf.reduce_sum(large ** 2), [images])
    bytes_ = tf.cast(tf.clip_by_value(hue, 0, 1) * 255, tf.uint8)
    png = tf.map_fn(tf.io.encode_png, bytes_, fn_output_signature=tf.string)
    back = tf.map_fn(lambda s: tf.io.decode_png(s, 3), png, fn_output_signature=tf.uint8)
    same = tf.reduce_all(tf.equal(back, bytes_))
    return _train(loss, tf1.train.AdagradOptimizer(0.1), feeds={images: IMAGES},
                  more=[slope, same, kept])


def _curvature():
    """Hessians, through a scan, and a product with one; a function whose gradient is its own."""
    x = _weights("x", 4)

    @tf.custom_gradient
    def clipped(z):
        return tf.math.expm1(z), lambda dy: tf.clip_by_value(dy * tf.exp(z), -0.5, 0.5)

    with _functional_control_flow():
        y = tf.scan(lambda a, b: tf.sin(a) * b + 0.1, x, initializer=tf.constant(0.5))
    loss = tf.reduce_sum(tf.square(y)) + tf.reduce_prod(x)
    with _functional_control_flow():
        hessian = tf.hessians(loss, x)[0]
    gradient, = tf.gradients(loss, [x])
    product, = tf.gradients(tf.reduce_sum(gradient * tf.stop_gradient(clipped(x))), [x])
    damped = tf.matmul(hessian, hessian, transpose_b=True) + tf.eye(4)
    step = tf.linalg.cholesky_solve(tf.linalg.cholesky(damped), gradient[:, None])[:, 0]
    return [Run(tf1.global_variables_initializer()),
            Run([loss, hessian, product, tf.gradients(clipped(x), [x]), tf.linalg.det(damped)]),
            Run(x.assign_sub(step)), Run([x, loss])]


# ---- state ----


def _replay(resource):
    """Q-learning: a ring of experience in variables, a target network that is copied now and then,
    actions by a draw that always has the same result."""
    def build():
        size = 6
        state = tf1.placeholder(tf.float32, [None, 5])
        ring = tf1.get_variable("ring", [size, 5], initializer=tf1.zeros_initializer(),
                                trainable=False, use_resource=resource)
        actions = tf1.get_variable("actions", [size], tf.int32, tf1.zeros_initializer(),
                                   trainable=False, use_resource=resource)
        count = tf1.get_variable("count", initializer=np.int64(0), trainable=False,
                                 use_resource=resource)
        w, target = _weights("w", 5, 3, use_resource=resource), _weights(
            "target", 5, 3, trainable=False, use_resource=resource)
        q = tf.matmul(state, w)
        peaked = tf1.where(tf.equal(q, tf.reduce_max(q, 1, keepdims=True)), q * 0, q * 0 - 1e9)
        action = tf.cast(tf.random.categorical(peaked, 1, seed=5)[:, 0], tf.int32)
        at = tf.cast((count + tf.range(tf.shape(state, out_type=tf.int64)[0])) % size, tf.int32)
        with tf1.control_dependencies([action, at]):
            kept = [tf1.scatter_update(ring, at, state), tf1.scatter_update(actions, at, action)]
        with tf1.control_dependencies(kept):
            n = tf1.assign_add(count, tf.shape(state, out_type=tf.int64)[0])
        with tf1.control_dependencies([n]):
            drawn = tf.constant([0, 2, 1])
            s, a = tf.gather(ring, drawn), tf.gather(actions, drawn)
        aim = tf.stop_gradient(0.5 + 0.9 * tf.reduce_max(tf.matmul(s, target), 1))
        taken = tf.gather_nd(tf.matmul(s, w), tf.stack([tf.range(3), a], 1))
        loss = tf1.losses.huber_loss(aim, taken, delta=0.3)
        step = tf1.train.RMSPropOptimizer(0.05).minimize(loss)
        with tf1.control_dependencies([step]):
            copied = tf.cond(tf.equal(n % 4, 0), lambda: tf.identity(tf1.assign(target, w)),
                             lambda: tf.identity(target))
        return ([Run(tf1.global_variables_initializer())]
                + [Run([loss, action, n, copied], {state: FRAMES[i, :2]}) for i in range(4)]
                + [Run([ring, actions, count, w, target])])

    return build


def _fed_by_queues():
    """tf.data fills a queue on the parameter server, a staging area holds the next batch."""
    data = tf.data.Dataset.from_tensor_slices((FRAMES.reshape(-1, 5), TOKENS.reshape(-1) % 3))
    iterator = tf1.data.make_initializable_iterator(data.repeat().batch(4))
    with tf.device(PS):
        queue = tf.queue.FIFOQueue(10, [tf.float32, tf.int32], [[4, 5], [4]])
        fill = queue.enqueue([tf.ensure_shape(part, shape) for part, shape in zip(
            iterator.get_next(), ([4, 5], [4]))])
    with tf.device(WORKER0):
        taken = queue.dequeue()
        stage = tf.raw_ops.Stage(values=taken, container="", shared_name="stage")
        x, labels = tf.raw_ops.Unstage(dtypes=[tf.float32, tf.int32], shared_name="stage")
        x, labels = tf.reshape(x, [4, 5]), tf.reshape(labels, [4])
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, tf.matmul(x, _weights("w", 5, 3)))
        train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return ([Run([tf1.global_variables_initializer(), iterator.initializer]), Run(fill), Run(fill),
             Run(stage)] + [Run([loss, train, stage, fill])] * 4
            + [Run([loss, queue.size(), tf1.trainable_variables()])])


def _accumulated():
    """Gradients of two workers, dense and sparse, in accumulators on the parameter server."""
    with tf.device(PS):
        w, table = _weights("w", 5, 2, use_resource=False), _weights("t", 9, 5, use_resource=False)
        dense = tf1.ConditionalAccumulator(tf.float32, [5, 2], shared_name="dense")
        sparse = tf1.SparseConditionalAccumulator(tf.float32, [9, 5], shared_name="sparse")
        step = tf1.get_variable("step", initializer=np.int64(0), use_resource=False)
    applied, losses = [], []
    for i, worker in enumerate((WORKER0, WORKER1)):
        rows = tf1.nn.embedding_lookup(table, tf.constant(TOKENS[i] % 9))
        with tf.device(worker):
            x = rows + FRAMES[i]
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
            dw, dt = tf.gradients(loss, [w, table])
            applied += [dense.apply_grad(dw, step), sparse.apply_indexed_slices_grad(dt, step)]
            losses.append(loss)
    with tf.device(PS):
        dw, dt = dense.take_grad(2), sparse.take_indexed_slices_grad(2)
        train = tf1.train.AdagradOptimizer(0.2).apply_gradients([(dw, w), (dt, table)], step)
        with tf1.control_dependencies([train]):
            told = [dense.set_global_step(step), sparse.set_global_step(step)]
    return ([Run(tf1.global_variables_initializer())] + [Run(losses + applied), Run([train, told])]
            * 3 + [Run([w, table, step, losses])])


def _functions():
    """tf.function in a graph: variables that it captures, a loop and a condition of AutoGraph's
    kind, a gradient through it, and one that recomputes."""
    w = _weights("w", 5, 5)

    @tf.function
    def layer(z, n):
        def body(i, y):
            y = tf.tanh(tf.matmul(y, w))
            return i + 1, tf.cond(tf.reduce_mean(y) > 0, lambda: y * 0.9, lambda: y + 0.1)

        return tf.while_loop(lambda i, _: i < n, body, (0, z))[1]

    again = tf.recompute_grad(lambda z: tf.nn.softplus(tf.matmul(z, tf.transpose(w))))
    x = tf1.placeholder(tf.float32, [None, 5])
    n = tf1.placeholder(tf.int32, [])
    y = layer(again(layer(x, n)), 2)
    parts = tf.vectorized_map(lambda r: tf.reduce_sum(tf.sort(r)[:2] * tf.cumsum(r)[3:]), y)
    loss = tf.reduce_sum(parts) + tf.reduce_mean(tf.square(y))
    return _train(loss, tf1.train.AdamOptimizer(0.02), feeds={x: FRAMES[1], n: 3}, more=[parts])


def _clusters():
    """k-means: distances, the nearest, means by segment, empty clusters that are seeded again."""
    points = tf1.placeholder(tf.float32, [None, 5])
    centres = _weights("centres", 4, 5, trainable=False)

    def body(i, c, _):
        far = (tf.reduce_sum(tf.square(points), 1)[:, None]
               - 2 * tf.matmul(points, c, transpose_b=True) + tf.reduce_sum(tf.square(c), 1))
        nearest = tf.argmin(far, 1, output_type=tf.int32)
        sums = tf.math.unsorted_segment_sum(points, nearest, 4)
        n = tf.math.bincount(nearest, minlength=4, maxlength=4, dtype=tf.float32)[:, None]
        new = tf1.where(tf.tile(n > 0, [1, 5]), sums / tf.maximum(n, 1.0), c)
        moved = tf.reduce_max(tf.abs(new - c))
        return i + 1, new, moved

    i, c, moved = tf1.while_loop(lambda i, c, moved: tf.logical_and(moved > 1e-3, i < 20), body,
                                 (0, tf.identity(centres), tf.constant(1.0)))
    far = tf.norm(points[:, None] - c[None], axis=2)
    nearest = tf.argmin(far, 1, output_type=tf.int32)
    parts = tf.dynamic_partition(tf.range(tf.shape(points)[0]), nearest, 4)
    ids, _, counts = tf.unique_with_counts(nearest)
    together = tf.dynamic_stitch(parts, [tf.gather(far, part) for part in parts])
    return [Run(tf1.global_variables_initializer()),
            Run([i, c, moved, parts, ids, counts, together, tf.where(far < 2.0)],
                {points: FRAMES.reshape(-1, 5)})]


def cases():
    loose = {"rtol": 1e-4, "atol": 1e-4}
    for swap_memory in (False, True):
        for v2 in (False, True):
            yield (f"model/tagger swap={swap_memory} v2={v2}", _tagger(swap_memory, v2), loose)
    yield "model/beam_search", _beam_search, loose
    yield "model/tree", _tree, loose
    yield "model/attention", _attention, loose
    for value in (1024.0, 1e7):
        yield f"model/loss_scale {value:g}", _loss_scale(value), {"rtol": 2e-2, "atol": 2e-2}
    yield "model/line_search", _line_search, loose
    yield "model/switched", _switched, loose
    for resource in (False, True):
        for n_shards, combiner in ((1, "mean"), (3, "sqrtn")):
            yield (f"model/words resource={resource} {n_shards} {combiner}",
                   _words(resource, n_shards, combiner), loose)
        yield f"model/replay resource={resource}", _replay(resource), loose
    yield "model/ctc", _ctc, loose
    yield "model/metrics", _metrics, loose
    yield "model/gan", _gan, {"rtol": 1e-3, "atol": 1e-3}
    yield "model/augmented", _augmented, loose
    yield "model/curvature", _curvature, {"rtol": 1e-3, "atol": 1e-3}
    yield "model/fed_by_queues", _fed_by_queues, loose
    yield "model/accumulated", _accumulated, loose
    yield "model/functions", _functions, loose
    yield "model/clusters", _clusters, loose
