"""A C program for TensorFlow's C API builds against both libraries with another include, and
prints the same."""
import os
import shutil
import subprocess
import tempfile
import unittest

import tensorflow as tf

from c_library import BUILD, ROOT, SHARED_OBJECT

tf1 = tf.compat.v1
HERE = os.path.dirname(os.path.abspath(__file__))
WHEEL = os.path.dirname(tf.__file__)


def functional_graph():
    """A GraphDef with While, If, a function, and a gradient through them."""
    was_on = tf1.control_flow_v2_enabled()
    tf1.enable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [], name="x")

            def body(i, a):
                return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * a, lambda: a + x)
            _, y = tf.while_loop(lambda i, a: i < 4, body, [0, x])
            f = tf.function(lambda a: tf.sin(a) + 1)
            tf.add(f(y), tf1.gradients(y, x)[0], name="out")
    finally:
        if not was_on:
            tf1.disable_control_flow_v2()
    return graph.as_graph_def().SerializeToString()


@unittest.skipUnless(shutil.which("cc"), "cc is missing")
class TestSameProgram(unittest.TestCase):
    def printed(self, folder, name, header, flags):
        program = os.path.join(folder, name)
        subprocess.run(["cc", "-std=gnu11", "-Wall", "-Werror", f"-DC_API=<{header}>",
                        os.path.join(HERE, "same_program.c"), "-o", program, *flags, "-lpthread"],
                       check=True)
        done = subprocess.run([program, os.path.join(folder, "graph.pb")], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": "",
                                   "TF_CPP_MIN_LOG_LEVEL": "3"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_it_prints_the_same(self):
        ours = [os.path.join(BUILD, "client"), os.path.join(BUILD, "client", "local")]
        theirs = [os.path.join(WHEEL, name)
                  for name in ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "graph.pb"), "wb") as f:
                f.write(functional_graph())
            expected = self.printed(folder, "theirs", "tensorflow/c/c_api.h", [
                "-I", os.path.join(WHEEL, "include"), *theirs, f"-Wl,-rpath,{WHEEL}"])
            self.assertEqual(self.printed(folder, "ours", "client/c_api.h", [
                "-I", ROOT, SHARED_OBJECT, f"-Wl,-rpath,{':'.join(ours)}"]), expected)
        self.assertIn("while, cond, function and gradient = ", expected)
        self.assertIn("thread 7: 0 wrong", expected)


if __name__ == "__main__":
    unittest.main()
