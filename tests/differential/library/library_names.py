"""Names that libraries of TensorFlow 1's years use and that have gone since: TensorFlow 1's API as
`tensorflow`, NumPy's and Python's. Both sides get the same names, so they can hide no difference.

Stubs stand for modules that a library imports for parts that its tests do not use. Only a stub
that the caller names exists, and a test that reads or calls one is no evidence.
"""

import collections
import collections.abc
import contextlib
import importlib
import importlib.machinery
import inspect
import sys
import types
from unittest import mock

import numpy as np
import tensorflow as tf

# ---- stubs ----


class Stub(mock.MagicMock):
    """A module, or a part of one, that does not exist. Counts how often any stub is used."""

    n_uses = 0

    def __getattribute__(self, name):
        if not name.startswith("_") and name not in ("method_calls", "side_effect"):
            Stub.n_uses += 1
        return super().__getattribute__(name)

    def __call__(self, *args, **kwargs):
        Stub.n_uses += 1
        return super().__call__(*args, **kwargs)


class _StubFinder:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if not any(name == stub or name.startswith(stub + ".") for stub in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = Stub(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


def add_stubs(names):
    """Each name is a module's, or that of an attribute which TensorFlow has lost."""
    sys.meta_path.insert(0, _StubFinder(names))
    for path in names:
        module, _, name = path.rpartition(".")
        if module == "tensorflow":
            homes = [tf, tf.compat.v1, tf.compat.v2]
        elif module.startswith("tensorflow."):
            homes = [importlib.import_module(module)]
        else:
            continue
        for home in homes:
            if not hasattr(home, name):
                setattr(home, name, Stub(name=name))


# ---- names that exist again ----


class _OldTensorFlow(types.ModuleType):
    """`tensorflow` as TensorFlow 1 had it: tf.compat.v1 first, then today's names."""

    def __getattr__(self, name):
        for module in (tf.compat.v1, tf):
            with contextlib.suppress(AttributeError):
                return getattr(module, name)
        raise AttributeError("module 'tensorflow' has no attribute %r" % name)


def restore_names_of_tensorflow():
    old = _OldTensorFlow("tensorflow")
    old.__path__, old.__file__, old.__version__ = tf.__path__, tf.__file__, tf.__version__
    old.__spec__ = tf.__spec__
    sys.modules["tensorflow"] = old


_ArgSpec = collections.namedtuple("ArgSpec", ["args", "varargs", "keywords", "defaults"])


def restore_names_of_numpy_and_python():
    for name, plain in {"float": float, "int": int, "bool": bool, "object": object, "str": str,
                        "float_": np.float64, "product": np.prod, "in1d": np.isin,
                        "NaN": np.nan, "Inf": np.inf, "infty": np.inf}.items():
        if name not in np.__dict__:
            setattr(np, name, plain)
    for name in collections.abc.__all__:
        if name not in collections.__dict__:
            setattr(collections, name, getattr(collections.abc, name))
    if not hasattr(inspect, "getargspec"):
        inspect.getargspec = lambda function: _ArgSpec(*inspect.getfullargspec(function)[:4])
