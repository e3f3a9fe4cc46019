"""Convolutional and recurrent programs: layers as people stack them, trained a few steps by
tf.gradients."""

import numpy as np
from programs import PS, WORKER1, Run, tf, tf1

RNG = np.random.default_rng(11)
IMAGES = RNG.normal(size=(8, 12, 12, 3)).astype(np.float32)
VOLUMES = RNG.normal(size=(3, 4, 6, 6, 2)).astype(np.float32)
SEQUENCES = RNG.normal(size=(5, 2, 3)).astype(np.float32)
LABELS = RNG.integers(0, 5, 8).astype(np.int32)
TOLERANCE = {"rtol": 2e-4, "atol": 1e-5}


def _weights(name, *shape):
    rng = np.random.default_rng(len(name))
    return tf1.get_variable(name, initializer=(rng.normal(size=shape)
                                               / np.sqrt(np.prod(shape[:-1]))).astype(np.float32))


def _train(loss, feeds, n_steps=3):
    train = tf1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    return [Run(tf1.global_variables_initializer())] + [Run([loss, train], feeds)] * n_steps + [
        Run([tf1.trainable_variables(), loss], feeds)]


def _classify(layers):
    """layers: a function from images to features."""

    def build():
        with tf1.device(tf1.train.replica_device_setter(
            cluster={"ps": ["a:1"], "worker": ["b:1", "c:1"]}, worker_device=WORKER1)):
            images, labels = tf1.placeholder(tf.float32, [None, 12, 12, 3]), tf1.placeholder(
                tf.int32, [None])
            features = tf.reduce_mean(layers(images), [1, 2])
            logits = tf.matmul(features, _weights("logits", int(features.shape[-1]), 5))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels,
                    logits=logits))
        return _train(loss, {images: IMAGES, labels: LABELS})

    return build


def _norm(x, name, training=True):
    n = int(x.shape[-1])
    ones, zeros = tf.ones([n]), tf.zeros([n])
    moving = {} if training else {"mean": zeros, "variance": ones}
    return tf1.nn.fused_batch_norm(x, _weights(name + "_scale", n), _weights(name + "_offset__", n),
                                   is_training=training, **moving)[0]


def _residual(x):
    x = tf.nn.conv2d(x, _weights("first", 3, 3, 3, 16), 1, "SAME")
    y = tf.nn.relu(_norm(tf.nn.conv2d(x, _weights("a", 3, 3, 16, 16), 1, "SAME"), "a"))
    y = _norm(tf.nn.conv2d(y, _weights("bb", 3, 3, 16, 16), 1, "SAME"), "bb")
    return tf.nn.avg_pool2d(tf.nn.relu(x + y), 3, 2, "SAME")


def _separable(x):
    y = tf.nn.separable_conv2d(x, _weights("depth", 3, 3, 3, 4), _weights("point", 1, 1, 12, 8),
                               [1, 2, 2, 1], "SAME")
    return tf.nn.local_response_normalization(tf.nn.relu6(y), depth_radius=2, alpha=0.1)


def _inference_norm(x):
    return _norm(tf.nn.max_pool2d(tf.nn.conv2d(x, _weights("f", 5, 5, 3, 8), 2,
                                               [[0, 0], [2, 1], [1, 2], [0, 0]]), 2, 2, "VALID"),
                 "n", training=False)


def _transposed(x):
    y = tf.nn.conv2d(x, _weights("down", 3, 3, 3, 6), 2, "SAME")
    return tf.nn.conv2d_transpose(y, _weights("up", 3, 3, 4, 6),
                                  tf.stack([tf.shape(x)[0], 12, 12, 4]), 2, "SAME")


def _volumes():
    x = tf1.placeholder(tf.float32, [None, 4, 6, 6, 2])
    y = tf.nn.max_pool3d(tf.nn.conv3d(x, _weights("v", 2, 3, 3, 2, 4), [1] * 5, "SAME"), 2, 2,
                         "VALID")
    y = tf.nn.avg_pool3d(tf.nn.relu(y), 2, 1, "VALID")
    return _train(tf.reduce_sum(tf.square(y - 1)) / 50, {x: VOLUMES})


def _lstm_block():
    x = tf1.placeholder(tf.float32, [5, 2, 3])
    with tf.device(PS):
        w, b = _weights("w", 7, 16), _weights("b_", 16)
    zeros = tf.zeros([2, 4])
    peephole = tf.zeros([4])
    out = tf.raw_ops.BlockLSTM(seq_len_max=tf.constant(5, tf.int64), x=x, cs_prev=zeros,
                               h_prev=zeros, w=w, wci=peephole, wcf=peephole, wco=peephole, b=b)
    return _train(tf.reduce_sum(tf.square(out.h - 0.5)), {x: SEQUENCES})


def cases():
    yield "conv/residual", _classify(_residual), TOLERANCE
    yield "conv/separable", _classify(_separable), TOLERANCE
    yield "conv/inference norm", _classify(_inference_norm), TOLERANCE
    yield "conv/transposed", _classify(_transposed), TOLERANCE
    yield "conv/volumes", _volumes, TOLERANCE
    yield "conv/lstm block", _lstm_block, TOLERANCE
