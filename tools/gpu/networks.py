"""Training steps of published networks, as graphs that TensorFlow's client makes: those of Table 1
of the OSDI paper (convnet-benchmarks' AlexNet, Overfeat, OxfordNet A and GoogLeNet), ResNet-50,
Inception v3, BERT, an LSTM with attention, and DCGAN.

A function of NETWORKS takes a Size and returns (loss, update): what to fetch, and what to run with
it. Weights are made by the graph, by uniform numbers that have the same bits on every device.
"""
import collections
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1

# share: a layer has this part of its channels; blocks: at most this many of a kind in a row, 0 for
# all; image: the side of an image, or the words of a text
Size = collections.namedtuple("Size", "share blocks image batch classes")


def width(size, n):
    return max(4, int(n * size.share))


def weights(name, shape, n_inputs):
    values = tf.random.stateless_uniform(shape, [len(name), n_inputs]) * 2 - 1
    return tf1.get_variable(name, initializer=values * (6 / n_inputs)**0.5, use_resource=True)


def filled(name, shape, value=0.0, trainable=True):
    return tf1.get_variable(name, initializer=np.full(shape, value, np.float32),
                            use_resource=True, trainable=trainable)


def pictures(size, channels=3):
    """Images of a variable, which the graph makes once, as it does weights; and labels."""
    shape = [size.batch, size.image, size.image, channels]
    values = (tf.random.stateless_uniform(shape, [3, channels]) * 2 - 1) * 3**0.5  # deviation 1
    images = tf1.get_variable("images", initializer=values, use_resource=True, trainable=False)
    labels = np.random.RandomState(3).randint(0, size.classes, size.batch)
    return images.read_value(), tf.constant(labels)


def conv(name, x, n, side, stride=1, padding="SAME", has_bias=True):
    height, across = side if isinstance(side, tuple) else (side, side)
    n_in = int(x.shape[-1])
    x = tf.nn.conv2d(x, weights(f"{name}/w", [height, across, n_in, n], height * across * n_in),
                     stride, padding)
    return tf.nn.bias_add(x, filled(f"{name}/b", [n])) if has_bias else x


def conv_relu(name, x, n, side, stride=1, padding="SAME"):
    return tf.nn.relu(conv(name, x, n, side, stride, padding))


def pool(x, side=3, stride=2, padding="SAME"):
    return tf.nn.max_pool2d(x, side, stride, padding)


def dense(name, x, n):
    n_in = int(x.shape[-1])
    return tf.nn.bias_add(tf.matmul(x, weights(f"{name}/w", [n_in, n], n_in)),
                          filled(f"{name}/b", [n]))


def flatten(x):
    return tf.reshape(x, [int(x.shape[0]), int(np.prod(x.shape[1:]))])


def cross_entropy(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits))


def classifier(size, x, labels, hidden):
    """Fully connected layers with dropout, as AlexNet, Overfeat and OxfordNet end."""
    x = flatten(x)
    for i, n in enumerate(hidden):
        x = tf1.nn.dropout(tf.nn.relu(dense(f"full{i}", x, width(size, n))), rate=0.1, seed=i + 1)
    return cross_entropy(dense("logits", x, size.classes), labels)


def by_momentum(loss, rate=0.001):
    return loss, tf1.train.MomentumOptimizer(rate, 0.9).minimize(loss)


# ---- Table 1 of the OSDI paper ----

def alexnet(size):
    x, labels = pictures(size)
    x = pool(conv_relu("conv1", x, width(size, 64), 11, 4))
    x = pool(conv_relu("conv2", x, width(size, 192), 5))
    for i, n in enumerate((384, 256, 256)):
        x = conv_relu(f"conv{i + 3}", x, width(size, n), 3)
    return by_momentum(classifier(size, pool(x), labels, (4096, 4096)))


def overfeat(size):
    x, labels = pictures(size)
    x = pool(conv_relu("conv1", x, width(size, 96), 11, 4, "VALID"), 2)
    x = pool(conv_relu("conv2", x, width(size, 256), 5, 1, "VALID"), 2)
    for i, n in enumerate((512, 1024, 1024)):
        x = conv_relu(f"conv{i + 3}", x, width(size, n), 3)
    return by_momentum(classifier(size, pool(x, 2), labels, (3072, 4096)))


def oxfordnet(size):
    x, labels = pictures(size)
    for i, layer in enumerate(((64,), (128,), (256, 256), (512, 512), (512, 512))):
        for k, n in enumerate(layer):
            x = conv_relu(f"conv{i}_{k}", x, width(size, n), 3)
        x = pool(x, 2)
    return by_momentum(classifier(size, x, labels, (4096, 4096)))


# The convolutions of each module: 1 x 1; 3 x 3 with its reduction; 5 x 5 with its; after the pool.
GOOGLENET = (((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
             ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
              (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)),
             ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)))


def inception(name, x, widths):
    one, reduced3, three, reduced5, five, pooled = widths
    return tf.concat([
        conv_relu(f"{name}/1", x, one, 1),
        conv_relu(f"{name}/3", conv_relu(f"{name}/3r", x, reduced3, 1), three, 3),
        conv_relu(f"{name}/5", conv_relu(f"{name}/5r", x, reduced5, 1), five, 5),
        conv_relu(f"{name}/p", pool(x, 3, 1), pooled, 1)], 3)


def some(size, rows):
    return rows[:size.blocks] if size.blocks else rows


def googlenet(size, has_lrn=True):
    """Without LRN it is as convnet-benchmarks has it."""
    def normal(x):
        return tf.nn.lrn(x, 2, 1.0, 2e-5, 0.75) if has_lrn else x

    x, labels = pictures(size)
    x = normal(pool(conv_relu("conv1", x, width(size, 64), 7, 2)))
    x = conv_relu("conv2", conv_relu("conv2r", x, width(size, 64), 1), width(size, 192), 3)
    x = pool(normal(x))
    for i, modules in enumerate(GOOGLENET):
        x = pool(x) if i else x
        for k, widths in enumerate(some(size, modules)):
            x = inception(f"module{i}{k}", x, [width(size, n) for n in widths])
    side = int(x.shape[1])
    x = tf1.nn.dropout(flatten(tf.nn.avg_pool2d(x, side, 1, "VALID")), rate=0.1, seed=1)
    return by_momentum(cross_entropy(dense("logits", x, size.classes), labels))


# ---- residual networks, Inception v3 ----

def normalized(name, x, scale=1.0):
    """Batch normalisation with its moving averages."""
    n = int(x.shape[-1])
    x, mean, variance = tf1.nn.fused_batch_norm(x, filled(f"{name}/scale", [n], scale),
                                                filled(f"{name}/offset", [n]), epsilon=1e-3)
    for part, found in (("mean", mean), ("variance", variance)):
        kept = filled(f"{name}/{part}", [n], trainable=False)
        tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS,
                              kept.assign_sub((kept - found) * 0.1, read_value=False))
    return x


def conv_norm(name, x, n, side, stride=1, padding="SAME", scale=1.0):
    return normalized(name, conv(name, x, n, side, stride, padding, has_bias=False), scale)


def updates_and_momentum(loss, rate=0.001):
    kernels = [v for v in tf1.trainable_variables() if v.shape.rank > 1]
    loss += 1e-4 * tf.add_n([tf.nn.l2_loss(v) for v in kernels])
    with tf1.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        return by_momentum(loss, rate)


def bottleneck(name, x, n, n_out, stride):
    shortcut = x if int(x.shape[-1]) == n_out and stride == 1 else conv_norm(
        f"{name}/short", x, n_out, 1, stride)
    x = tf.nn.relu(conv_norm(f"{name}/1", x, n, 1))
    x = tf.nn.relu(conv_norm(f"{name}/2", x, n, 3, stride))
    # A block begins as its shortcut: else a training step of this depth has no stable value.
    return tf.nn.relu(conv_norm(f"{name}/3", x, n_out, 1, scale=0.0) + shortcut)


def resnet50(size):
    x, labels = pictures(size)
    x = pool(tf.nn.relu(conv_norm("first", x, width(size, 64), 7, 2)))
    for i, n_blocks in enumerate((3, 4, 6, 3)):
        n = width(size, 64 << i)
        for k in range(min(n_blocks, size.blocks or n_blocks)):
            x = bottleneck(f"block{i}_{k}", x, n, 4 * n, 2 if i and not k else 1)
    x = tf.reduce_mean(x, [1, 2])
    return updates_and_momentum(cross_entropy(dense("logits", x, size.classes), labels))


def inception_v3(size):
    """The published layers without the auxiliary classifier."""
    counter = iter(range(1000))

    def c(x, n, side, stride=1, padding="SAME"):
        return tf.nn.relu(conv_norm(f"conv{next(counter)}", x, width(size, n), side, stride,
                                    padding))

    def average(x):
        return tf.nn.avg_pool2d(x, 3, 1, "SAME")

    x, labels = pictures(size)
    x = c(c(c(x, 32, 3, 2, "VALID"), 32, 3, 1, "VALID"), 64, 3)
    x = pool(c(c(pool(x, 3, 2, "VALID"), 80, 1, 1, "VALID"), 192, 3, 1, "VALID"), 3, 2, "VALID")
    for n in some(size, (32, 64, 64)):
        x = tf.concat([c(x, 64, 1), c(c(x, 48, 1), 64, 5), c(c(c(x, 64, 1), 96, 3), 96, 3),
                       c(average(x), n, 1)], 3)
    x = tf.concat([c(x, 384, 3, 2, "VALID"), c(c(c(x, 64, 1), 96, 3), 96, 3, 2, "VALID"),
                   pool(x, 3, 2, "VALID")], 3)
    for n in some(size, (128, 160, 160, 192)):
        twice = c(c(c(c(c(x, n, 1), n, (7, 1)), n, (1, 7)), n, (7, 1)), 192, (1, 7))
        x = tf.concat([c(x, 192, 1), c(c(c(x, n, 1), n, (1, 7)), 192, (7, 1)), twice,
                       c(average(x), 192, 1)], 3)
    x = tf.concat([c(c(x, 192, 1), 320, 3, 2, "VALID"),
                   c(c(c(c(x, 192, 1), 192, (1, 7)), 192, (7, 1)), 192, 3, 2, "VALID"),
                   pool(x, 3, 2, "VALID")], 3)
    for _ in some(size, range(2)):
        three, double = c(x, 384, 1), c(c(x, 448, 1), 384, 3)
        split = [c(y, 384, side) for y in (three, double) for side in ((1, 3), (3, 1))]
        x = tf.concat([c(x, 320, 1), *split, c(average(x), 192, 1)], 3)
    x = tf1.nn.dropout(tf.reduce_mean(x, [1, 2]), rate=0.2, seed=1)
    return updates_and_momentum(cross_entropy(dense("logits", x, size.classes), labels), 1e-5)


# ---- texts ----

def clipped(loss, optimizer):
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    return loss, optimizer.apply_gradients(zip(gradients, variables))


def layer_norm(name, x):
    n = int(x.shape[-1])
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, filled(f"{name}/offset", [n]),
                                     filled(f"{name}/scale", [n], 1.0), 1e-6)


BERT_HEAD, BERT_HEADS, BERT_LAYERS, BERT_WORDS, BERT_PREDICTED = 64, 12, 12, 30522, 4


def bert(size):
    """BERT's base: the masked words and the next sentence, by Adam with clipped gradients."""
    heads = max(2, int(BERT_HEADS * size.share))
    n, n_words = heads * BERT_HEAD, max(100, int(BERT_WORDS * size.share))
    batch, time, rng = size.batch, size.image, np.random.RandomState(5)
    words = tf.constant(rng.randint(0, n_words, (batch, time)), tf.int32)
    kinds = tf.constant(rng.randint(0, 2, (batch, time)), tf.int32)
    lengths = tf.constant(rng.randint(time // 2, time + 1, batch), tf.int32)
    places = tf.constant(rng.randint(0, time // 2, (batch, BERT_PREDICTED)), tf.int32)
    wanted = tf.constant(rng.randint(0, n_words, batch * BERT_PREDICTED), tf.int32)
    seeds = iter(range(1, 1000))

    def dropped(x):
        return tf1.nn.dropout(x, rate=0.1, seed=next(seeds))

    table = weights("words", [n_words, n], 6 * n)
    x = tf.nn.embedding_lookup(table, words) + weights("places", [time, n], 6 * n)
    x += tf.reshape(tf.matmul(tf.one_hot(tf.reshape(kinds, [-1]), 2),
                              weights("kinds", [2, n], 6 * n)), [batch, time, n])
    x = tf.reshape(dropped(layer_norm("first", x)), [batch * time, n])
    mask = (1.0 - tf.cast(tf.sequence_mask(lengths, time), tf.float32)) * -10000.0

    def split(y):
        return tf.transpose(tf.reshape(y, [batch, time, heads, BERT_HEAD]), [0, 2, 1, 3])

    for i in range(min(BERT_LAYERS, size.blocks or BERT_LAYERS)):
        query, key, value = (split(dense(f"layer{i}/{part}", x, n)) for part in "qkv")
        scores = tf.matmul(query, key, transpose_b=True) * BERT_HEAD**-0.5
        scores = dropped(tf.nn.softmax(scores + mask[:, None, None, :]))
        y = tf.reshape(tf.transpose(tf.matmul(scores, value), [0, 2, 1, 3]), [batch * time, n])
        x = layer_norm(f"layer{i}/attended", x + dropped(dense(f"layer{i}/out", y, n)))
        y = tf.nn.gelu(dense(f"layer{i}/wide", x, 4 * n))
        x = layer_norm(f"layer{i}/made", x + dropped(dense(f"layer{i}/narrow", y, n)))
    flat = tf.reshape(places + tf.range(batch)[:, None] * time, [-1])
    y = layer_norm("predicted", tf.nn.gelu(dense("transformed", tf.gather(x, flat), n)))
    logits = tf.nn.bias_add(tf.matmul(y, table, transpose_b=True), filled("word_bias", [n_words]))
    loss = cross_entropy(logits, wanted)
    first = tf.squeeze(tf.reshape(x, [batch, time, n])[:, 0:1, :], 1)
    next_logits = dense("next", tf.tanh(dense("pooler", first, n)), 2)
    loss += cross_entropy(next_logits, tf.constant(rng.randint(0, 2, batch), tf.int32))
    return clipped(loss, tf1.train.AdamOptimizer(1e-4))


def lstm_cell(name, x, h, c):
    i, j, f, o = tf.split(dense(name, tf.concat([x, h], 1), 4 * int(h.shape[-1])), 4, 1)
    c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
    return tf.tanh(c) * tf.sigmoid(o), c


def lstm_attention(size):
    """A translator: an LSTM reads a text, another writes one and attends to what was read
    (Bahdanau), both in loops."""
    n, n_words, batch, time = width(size, 256), width(size, 8000), size.batch, size.image
    rng = np.random.RandomState(5)
    source, target = (tf.constant(rng.randint(1, n_words, (batch, time))) for _ in range(2))
    lengths = tf.constant(rng.randint(time // 2, time + 1, batch))
    mask = tf.sequence_mask(lengths, time)
    read = tf.transpose(tf.nn.embedding_lookup(weights("source", [n_words, n], n), source),
                        [1, 0, 2])
    written = tf.transpose(tf.nn.embedding_lookup(weights("target", [n_words, n], n), target),
                           [1, 0, 2])
    zero = tf.zeros([batch, n])

    def array(values=None):
        made = tf.TensorArray(tf.float32, time, element_shape=[batch, n])
        return made if values is None else made.unstack(values)

    inputs, outputs = array(read), array(written)
    with tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
        lstm_cell("encoder", zero, zero, zero)  # makes the variables outside of the loop
        lstm_cell("decoder", tf.zeros([batch, 2 * n]), zero, zero)
        attended, query = weights("attended", [n, n], n), weights("query", [n, n], n)
        score = weights("score", [n], n)

        def encode(t, h, c, states):
            new_h, new_c = lstm_cell("encoder", inputs.read(t), h, c)
            is_on = t < tf.cast(lengths, tf.int32)
            new_h, new_c = (tf1.where(is_on, new, old) for new, old in ((new_h, h), (new_c, c)))
            return t + 1, new_h, new_c, states.write(t, new_h)

        _, h, c, states = tf1.while_loop(lambda t, *_: t < time, encode, [0, zero, zero, array()])
        memory = tf.transpose(states.stack(), [1, 0, 2])
        keys = tf.reshape(tf.matmul(tf.reshape(memory, [batch * time, n]), attended),
                          [batch, time, n])

        def decode(t, h, c, made):
            found = tf.reduce_sum(tf.tanh(keys + tf.expand_dims(tf.matmul(h, query), 1)) * score, 2)
            share = tf.nn.softmax(tf.where(mask, found, tf.fill([batch, time], -1e9)))
            context = tf.reduce_sum(memory * tf.expand_dims(share, 2), 1)
            h, c = lstm_cell("decoder", tf.concat([outputs.read(t), context], 1), h, c)
            return t + 1, h, c, made.write(t, h)

        made = tf1.while_loop(lambda t, *_: t < time - 1, decode, [0, h, c, array()])[3]
        states = tf.reshape(made.gather(tf.range(time - 1)), [(time - 1) * batch, n])
    errors = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(tf.transpose(target[:, 1:]), [-1]),
        logits=dense("logits", states, n_words))
    return clipped(tf.reduce_mean(errors), tf1.train.AdamOptimizer(1e-3))


# ---- pictures that are made ----

def dcgan(size):
    """A generator and a discriminator, trained in one step; their losses are added."""
    rng, side = np.random.RandomState(3), size.image // 16
    n, batch = width(size, 64), size.batch
    real = tf.constant(np.tanh(rng.randn(batch, 16 * side, 16 * side, 3)).astype(np.float32))
    noise = tf1.random_uniform([batch, 100], -1, 1, seed=7)

    def upwards(name, x, n_out):
        height, n_in = int(x.shape[1]), int(x.shape[-1])
        x = tf.nn.conv2d_transpose(x, weights(f"{name}/w", [5, 5, n_out, n_in], 6 * n_in),
                                   [batch, 2 * height, 2 * height, n_out], 2, "SAME")
        return tf.nn.bias_add(x, filled(f"{name}/b", [n_out]))

    def generate(x):
        x = tf.reshape(dense("made", x, side * side * 8 * n), [batch, side, side, 8 * n])
        x = tf.nn.relu(normalized("first", x))
        for i, n_out in enumerate((4 * n, 2 * n, n)):
            x = tf.nn.relu(normalized(f"up{i}", upwards(f"up{i}", x, n_out)))
        return tf.tanh(upwards("picture", x, 3))

    def judge(x):
        for i, n_out in enumerate((n, 2 * n, 4 * n, 8 * n)):
            x = conv(f"down{i}", x, n_out, 5, 2)
            x = tf.nn.leaky_relu(normalized(f"down{i}", x) if i else x)
        return dense("judged", flatten(x), 1)

    def entropy(logits, label):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.fill([batch, 1], label), logits=logits))

    with tf1.variable_scope("generator"):
        fake = generate(noise)
    with tf1.variable_scope("discriminator", reuse=tf1.AUTO_REUSE):
        judged_real, judged_fake = judge(real), judge(fake)
    losses = (entropy(judged_fake, 1.0), entropy(judged_real, 0.9) + entropy(judged_fake, 0.0))
    steps = [tf1.train.AdamOptimizer(2e-4, 0.5).minimize(
        loss, var_list=tf1.trainable_variables(scope))
             for loss, scope in zip(losses, ("generator", "discriminator"))]
    return losses[0] + losses[1], tf1.group(*steps, *tf1.get_collection(tf1.GraphKeys.UPDATE_OPS))


# The network, its size on a GPU, and a small one for tests.
NETWORKS = {
    "alexnet": (alexnet, Size(1, 0, 224, 128, 1000), Size(1 / 16, 0, 64, 2, 10)),
    "overfeat": (overfeat, Size(1, 0, 231, 128, 1000), Size(1 / 32, 0, 71, 2, 10)),
    "oxfordnet": (oxfordnet, Size(1, 0, 224, 64, 1000), Size(1 / 16, 0, 32, 2, 10)),
    "googlenet": (googlenet, Size(1, 0, 224, 128, 1000), Size(1 / 16, 1, 64, 2, 10)),
    "resnet50": (resnet50, Size(1, 0, 224, 64, 1000), Size(1 / 16, 1, 32, 4, 10)),
    "inception_v3": (inception_v3, Size(1, 0, 299, 64, 1000), Size(1 / 16, 1, 107, 8, 10)),
    "bert": (bert, Size(1, 0, 128, 32, 0), Size(1 / 6, 2, 8, 2, 0)),
    "lstm_attention": (lstm_attention, Size(1, 0, 32, 64, 0), Size(1 / 16, 0, 6, 3, 0)),
    "dcgan": (dcgan, Size(1, 0, 64, 64, 0), Size(1 / 8, 0, 32, 4, 0)),
}


def build(name, size, **options):
    """A graph with the nodes "init", "step" and "loss" (graphs.py). The options are the
    network's."""
    tf1.set_random_seed(1)
    loss, update = NETWORKS[name][0](size, **options)
    tf.identity(loss, name="loss")
    tf1.group(update, name="step")
    tf1.group(tf1.global_variables_initializer(), name="init")
