"""TensorFlow's client dials each target of argv in turn. A line each: the error's class, then its
message without line ends."""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_eager_execution()

for target in sys.argv[1:]:
    try:
        with tf1.Session(target) as session:
            print("ran", session.run(tf1.constant(1.0) + 1.0), flush=True)
    except tf.errors.OpError as error:
        print(type(error).__name__, " ".join(str(error).split()), flush=True)
