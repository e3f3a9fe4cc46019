"""Helpers for TensorFlow programs that run on a Millrace cluster.

py_functions lets the steps of a cluster call Python functions of this process: tf.py_function,
tf.numpy_function, tf.compat.v1.py_func and tf.data.Dataset.from_generator.
"""
from millrace._functions import py_functions

__all__ = ["py_functions"]
