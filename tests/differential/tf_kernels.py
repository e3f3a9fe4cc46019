"""Which CPU kernels TensorFlow registers for an op, and the dtypes each accepts.

Differential tests ask here what is worth comparing: a dtype that an op's signature allows but for
which TensorFlow has no CPU kernel has no oracle. Facts come from the installed wheel at run time;
nothing is stored.

    >>> cpu_dtypes("Cumsum", "Tidx")
    ('int32', 'int64')
    >>> [kernel.types for kernel in cpu_kernels("BitwiseAnd")][:1]
    [{'T': ('int16',)}]

    python tests/differential/tf_kernels.py MatMul Cast     prints the kernels of these ops
"""

import functools
import itertools
import os
import sys
from dataclasses import dataclass

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@dataclass(frozen=True)
class Kernel:
    """One registration. An attr that no constraint names is free: the kernel takes whatever the
    op's signature allows."""

    op: str
    types: dict  # type attr -> the dtype names that it may take, in the order of dtype numbers
    values: dict  # other attr -> the values it may take (bytes, int or bool)
    host_memory: tuple  # arguments that lie in host memory (of no effect on a CPU)
    priority: int

    def accepts(self, **attrs):
        """Whether the kernel takes these attrs (dtype names for type attrs); attrs that are not
        given match."""
        bounds = {**self.types, **self.values}
        return all(value in bounds[name] for name, value in attrs.items() if name in bounds)


def _kernel(row):
    from tensorflow.python.framework import dtypes

    types, values = {}, {}
    for constraint in row.constraint:
        allowed = constraint.allowed_values.list
        if allowed.type:
            types[constraint.name] = tuple(dtypes.as_dtype(number).name
                                           for number in sorted(set(allowed.type)))
        elif allowed.s or allowed.i or allowed.b:
            values[constraint.name] = tuple(itertools.chain(allowed.s, allowed.i, allowed.b))
        else:  # an empty list allows nothing
            types[constraint.name] = ()
    return Kernel(row.op, types, values, tuple(row.host_memory_arg), row.priority)


@functools.lru_cache(maxsize=None)
def cpu_kernels(op):
    """The kernels with which TensorFlow runs `op` on a CPU when nobody asks for a special one, as a
    tuple.

    Those registered for every device ("DEFAULT") are included: TensorFlow falls back to them. Those
    under a label (oneDNN's rewrites, tests) are not: only a `_kernel` attr reaches them. Empty when
    there is no kernel or no such op.
    """
    from tensorflow.python.framework import kernels
    import tensorflow  # noqa: F401  (loads every library that registers kernels)

    rows = [row for row in kernels.get_registered_kernels_for_op(op).kernel if not row.label]
    found = [_kernel(row) for device in ("CPU", "DEFAULT") for row in rows if row.device_type
             == device]
    return tuple(sorted(found,
                        key=lambda kernel: repr((sorted(kernel.types.items()),
                                sorted(kernel.values.items())))))


def cpu_dtypes(op, attr="T"):
    """The dtype names that some CPU kernel of `op` accepts for a type attr, in the order of dtype
    numbers.

    A kernel that leaves the attr free accepts what the signature allows. Empty when there is no
    kernel, and for an attr that the op does not have.
    """
    from tensorflow.python.framework import dtypes, op_def_registry

    kernels_of_op = cpu_kernels(op)
    op_def = op_def_registry.get(op)
    declared = [a for a in op_def.attr if a.name == attr
                and a.type in ("type", "list(type)")] if op_def else []
    if not kernels_of_op or not declared:
        return ()
    allowed = {dtypes.as_dtype(number).name for number in declared[0].allowed_values.list.type
               or _base_dtypes()}
    names = set()
    for kernel in kernels_of_op:
        names.update(allowed.intersection(kernel.types[attr]) if attr in kernel.types else allowed)
    return tuple(sorted(names, key=lambda name: dtypes.as_dtype(name).as_datatype_enum))


def _base_dtypes():
    """The numbers of all dtypes but the invalid one and the references."""
    from tensorflow.core.framework import types_pb2

    return [number for number in types_pb2.DataType.values() if 0 < number < 100]


def cpu_combinations(op):
    """Every combination of dtypes that a CPU kernel of `op` accepts: sorted, distinct tuples of
    (type attr, dtype name).

    Type attrs that a kernel leaves free do not appear in its combinations.
    """
    found = set()
    for kernel in cpu_kernels(op):
        names = sorted(kernel.types)
        found.update(tuple(zip(names, combination))
                     for combination in itertools.product(*(kernel.types[n] for n in names)))
    return sorted(found)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {len(cpu_kernels(name))} CPU kernels")
        for kernel in cpu_kernels(name):
            bounds = {**kernel.types, **kernel.values}
            print("   ", "  ".join(f"{attr}={','.join(map(str, bound))}" for attr,
                                   bound in sorted(bounds.items())) or "(any)")
