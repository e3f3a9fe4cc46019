"""Millrace for Python.

Session runs GraphDefs on a Millrace cluster, on TensorFlow's own servers, or inside this process,
without TensorFlow: values are NumPy arrays.

    with millrace.Session("grpc://127.0.0.1:2222", graph_def) as session:
        y = session.run("y", {"x": x})

py_functions lets the steps of a cluster call Python functions of a TensorFlow program:
tf.py_function, tf.numpy_function, tf.compat.v1.py_func and tf.data.Dataset.from_generator.

Importing the package imports neither NumPy nor TensorFlow; what needs them does.
"""
from millrace._errors import Error

__all__ = ["Error", "Run", "Session", "load_saved_model", "py_functions"]

_HOMES = {"Run": "_session", "Session": "_session", "load_saved_model": "_session",
          "py_functions": "_functions"}


def __getattr__(name):
    import importlib
    if name not in _HOMES:
        raise AttributeError(f"module 'millrace' has no attribute '{name}'")
    value = getattr(importlib.import_module("millrace." + _HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
