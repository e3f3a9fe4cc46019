"""Tables: making, initializing, looking up, inserting, removing, importing, exporting, and their
refusals."""

import numpy as np
import oracle
import tensorflow as tf



class Ops:
    """tf.raw_ops; within first(), the ops' first versions where there are some."""

    is_first = False

    def __getattr__(self, name):
        old = name.removesuffix("V2")
        has_old = "Table" in name and hasattr(tf.raw_ops, old)
        return getattr(tf.raw_ops, old if self.is_first and has_old else name)


R = Ops()


def first(build):
    """The same with the ops' first versions, whose handles are references to strings."""

    def build_first():
        R.is_first = True
        try:
            return build()
        except TypeError as error:  # an op that has no first version
            raise ValueError(str(error)) from error
        finally:
            R.is_first = False

    return build_first


Step = oracle.Step
HASH = (
    "int32:float32 int32:float64 int32:int32 int32:string int64:float32 int64:float64 int64:int32 "
    "int64:int64 int64:string "
    "string:bool string:float32 string:float64 string:int32 string:int64 string:string"
).split()
MUTABLE = (
    "int32:float32 int32:float64 int32:int32 int64:float32 int64:float64 int64:int32 int64:int64 "
    "int64:string "
    "string:bool string:float32 string:float64 string:int32 string:int64"
).split()
K = [3, 1, 2, 7]


def array(value, dtype):
    """Numbers as numbers, or as their texts."""
    dtype = tf.as_dtype(dtype)
    if dtype == tf.string:
        flat = [x if isinstance(x, bytes) else str(x).encode()
                for x in np.asarray(value, object).reshape(-1)]
        out = np.empty(len(flat), object)
        out[:] = flat
        return out.reshape(np.shape(np.asarray(value, object)))
    return np.asarray(value).astype(dtype.as_numpy_dtype)


def const(value, dtype):
    return oracle.const(array(value, dtype), dtype)


class Table:
    def __init__(self, handle, key, value):
        self.handle, self.key, self.value = handle, key, value

    def keys(self, keys):
        return const(keys, self.key)

    def values(self, values):
        return const(values, self.value)

    def init(self, keys, values):
        return R.InitializeTableV2(table_handle=self.handle, keys=self.keys(keys),
                                   values=self.values(values))

    def insert(self, keys, values):
        return R.LookupTableInsertV2(table_handle=self.handle, keys=self.keys(keys),
                                     values=self.values(values))

    def imports(self, keys, values):
        return R.LookupTableImportV2(table_handle=self.handle, keys=self.keys(keys),
                                     values=self.values(values))

    def remove(self, keys):
        return R.LookupTableRemoveV2(table_handle=self.handle, keys=self.keys(keys))

    def find(self, keys, default=9):
        return R.LookupTableFindV2(table_handle=self.handle, keys=self.keys(keys),
                                   default_value=self.values(default))

    def size(self):
        return R.LookupTableSizeV2(table_handle=self.handle)

    def export(self):
        """In the order of the keys: no table promises one."""
        keys, values = R.LookupTableExportV2(table_handle=self.handle, Tkeys=tf.as_dtype(self.key),
                                             Tvalues=tf.as_dtype(self.value))
        numbers = tf.cast(keys, tf.int64) if self.key != "string" else \
            R.StringToHashBucketFast(input=keys, num_buckets=1 << 40)
        order = R.TopKV2(input=-numbers, k=tf.size(keys)).indices
        return [tf.gather(keys, order), tf.gather(values, order)]


def hash_table(key="string", value="int64", name="t", **attrs):
    return Table(R.HashTableV2(key_dtype=tf.as_dtype(key), value_dtype=tf.as_dtype(value),
                               shared_name=name, **attrs), key, value)


def mutable(key="string", value="int64", name="t", **attrs):
    return Table(R.MutableHashTableV2(key_dtype=tf.as_dtype(key), value_dtype=tf.as_dtype(value),
                                      shared_name=name, **attrs), key, value)


def tensors(key="string", value="int64", shape=(2,), name="t"):
    handle = R.MutableHashTableOfTensorsV2(key_dtype=tf.as_dtype(key),
                                           value_dtype=tf.as_dtype(value), value_shape=shape,
                                           shared_name=name)
    return Table(handle, key, value)


def anonymous(make=R.AnonymousMutableHashTable, **attrs):
    return Table(make(key_dtype=tf.string, value_dtype=tf.int64, **attrs), "string", "int64")


def do(*targets):
    return Step(targets=list(targets))


def get(*fetches):
    return Step(list(fetches))


def values_of(dtype, n):
    return [i % 2 == 0 for i in range(n)] if dtype == "bool" else [10 * i + 1 for i in range(n)]


def _hash(key, value):
    def build():
        t = hash_table(key, value)
        return [do(t.init(K, values_of(value, 4))),
                get(t.size(), t.find([1, 2, 5, 3]), t.find([[7], [8]]), t.find(1), t.find([])),
                get(*t.export())]

    return build


def _mutable(key, value):
    def build():
        t, v = mutable(key, value), values_of(value, 4)
        return [
            get(t.size(), t.find([1, 2])),
            do(t.insert(K, v)),
            get(t.size(), t.find([1, 2, 5, 3]), t.find([[7], [8]]), t.find(1)),
            get(*t.export()),
            do(t.insert([1, 9], v[:2])),
            do(t.remove([2, 99])),
            get(t.size(), t.find([1, 2, 9])),
            do(t.imports([5, 6], v[2:])),
            get(t.size(), t.find([5, 6, 1])),
        ]

    return build


def _tensors(key, value):
    def build():
        t, v, d = tensors(key, value), np.asarray(values_of(value, 8)).reshape(4, 2), values_of(
            value, 2)
        return [
            get(t.find([1, 2], d)),
            do(t.insert(K, v)),
            get(t.size(), t.find([1, 2, 5, 3], d), t.find([[7], [8]], d), t.find(1, d)),
            get(*t.export()),
            do(t.insert([1, 9], v[2:])),
            do(t.remove([2])),
            get(t.size(), t.find([1, 2, 9], d)),
        ]

    return build


def _many(make, n=3000):
    def build():
        t = make()
        keys = np.random.default_rng(1).permutation(n * 4)[:n]
        asked = np.arange(0, n * 4, 3)
        return [
            do(t.insert(keys, keys * 2)),
            get(t.size(), t.find(asked)),
            do(t.remove(keys[: n // 2])),
            get(t.size(), t.find(asked)),
            do(t.insert(keys[: n // 4], keys[: n // 4] * 3)),
            get(t.size(), t.find(asked)),
            get(*t.export()),
        ]

    return build


def _then(table, *steps):
    """Steps on one table: each is a function of it."""
    return lambda: (lambda t: [step(t) for step in steps])(table())


def _init(keys, values):
    return lambda t: do(t.init(keys, values))


def _insert(keys, values):
    return lambda t: do(t.insert(keys, values))


def _import(keys, values):
    return lambda t: do(t.imports(keys, values))


def _remove(keys):
    return lambda t: do(t.remove(keys))


def _find(keys, *default):
    return lambda t: get(t.find(keys, *default))


def _size(t):
    return get(t.size())


def _other(make):
    """The size of another table."""
    return lambda t: get(make().size())


def _wrong(op, keys, key_dtype, name=None, value=None, dtype=None):
    def step(t):
        arguments = {"keys": const(keys, key_dtype)}
        if name:
            arguments[name] = const(value, dtype)
        out = op(table_handle=t.handle, **arguments)
        return do(out) if isinstance(out, tf.Operation) else get(out)

    return step


def _export(keys=tf.string, values=tf.int64):
    return lambda t: get(*R.LookupTableExportV2(table_handle=t.handle, Tkeys=keys, Tvalues=values))


def _after_insert():
    t = anonymous()
    with tf.control_dependencies([t.insert(["a"], [1])]):
        return get(t.size())


# Left out: an export by wrong types from a HashTable, where TensorFlow aborts and we refuse.
PROGRAMS = {
    # tables that are filled once
    "hash uninitialized find": _then(hash_table, _find(["a"])),
    "hash uninitialized size": _then(hash_table, _size),
    "hash uninitialized export": _then(hash_table, _export()),
    "hash insert": _then(hash_table, _insert(["a"], [1])),
    "hash remove": _then(hash_table, _remove(["a"])),
    "hash init twice": _then(hash_table, _init(["a"], [1]), _init(["b"], [1]), _size,
                             _find(["a", "b"])),
    "hash init doubled same": _then(hash_table, _init(["a", "a"], [1, 1]), _size),
    "hash init doubled": _then(hash_table, _init(["b", "a", "a"], [3, 1, 2])),
    "hash init doubled number": _then(lambda: hash_table("int64", "float32"),
                                      _init([5, 5], [1.5, 2.5])),
    "hash init doubled int": _then(lambda: hash_table("int32", "string"),
                                   _init([-5, -5], ["x", "y"])),
    "hash init sizes": _then(hash_table, _init(["a", "b"], [1])),
    "hash init matrix": _then(hash_table, _init([["a"]], [[1]])),
    "hash init scalar": _then(hash_table, _init("a", 1)),
    "hash init none": _then(hash_table, _init([], []), _find(["a"]), _export()),
    "hash init dtypes": _then(hash_table,
                              _wrong(R.InitializeTableV2, [1], "int64", "values", [1], "int64")),
    "hash import": _then(hash_table, _import(["a"], [1]), _size, _find(["a", "b"])),
    "hash import twice": _then(hash_table, _import(["a"], [1]), _import(["b"], [2]), _size,
                               _find(["a", "b"])),
    "hash import after init": _then(hash_table, _init(["a"], [1]), _import(["b"], [2]), _size),
    "hash find dtype": _then(hash_table, _init(["a"], [1]),
                             _wrong(R.LookupTableFindV2, [1], "int64", "default_value", 1,
                                    "int64")),
    "hash find value dtype": _then(hash_table, _init(["a"], [1]),
                                   _wrong(R.LookupTableFindV2, ["a"], "string", "default_value",
                                          1.0, "float32")),
    "hash find default vector": _then(hash_table, _init(["a"], [1]), _find(["a", "b"], [1, 2])),
    "hash find default one": _then(hash_table, _init(["a"], [1]), _find(["a", "b"], [1])),
    "hash other": _then(hash_table, _init(["a"], [1]), _other(hash_table)),
    "hash other name": _then(hash_table, _init(["a"], [1]), _other(lambda: hash_table(name="u"))),
    "hash other container": _then(hash_table, _init(["a"], [1]),
                                  _other(lambda: hash_table(container="c"))),
    "hash no name": _then(lambda: hash_table(name=""), _init(["a"], [1]), _size,
                          _other(lambda: hash_table(name=""))),
    "hash node name": _then(lambda: hash_table(name="", use_node_name_sharing=True),
                            _init(["a"], [1]), _size),
    "hash other dtypes": _then(hash_table, _init(["a"], [1]),
                               _other(lambda: hash_table(value="float32"))),
    "hash as mutable": _then(hash_table, _init(["a"], [1]), _other(mutable)),
    "mutable as hash": _then(mutable, _insert(["a"], [1]), _other(hash_table)),
    # tables that change
    "mutable init": _then(mutable, _init(["a"], [1])),
    "mutable insert doubled": _then(mutable, _insert(["a", "b", "a"], [1, 2, 3]), _size,
                                    _find(["a"])),
    "mutable insert matrix": _then(mutable, _insert([["a"], ["b"]], [[1], [2]]), _size,
                                   _find([["a", "b"]])),
    "mutable insert scalar": _then(mutable, _insert("a", 1), _size, _find("a")),
    "mutable insert none": _then(mutable, _insert([], []), _size),
    "mutable insert sizes": _then(mutable, _insert(["a", "b"], [1])),
    "mutable insert dtypes": _then(mutable,
                                   _wrong(R.LookupTableInsertV2, [1], "int64", "values", [1],
                                          "int64")),
    "mutable insert value dtypes": _then(mutable,
                                         _wrong(R.LookupTableInsertV2, ["a"], "string", "values",
                                                [1], "float32")),
    "mutable remove none": _then(mutable, _insert(["a"], [1]), _remove([]), _size),
    "mutable remove dtype": _then(mutable, _wrong(R.LookupTableRemoveV2, [1], "int64")),
    "mutable remove matrix": _then(mutable, _insert(["a", "b"], [1, 2]), _remove([["a"]]), _size),
    "mutable remove twice": _then(mutable, _insert(["a", "b"], [1, 2]), _remove(["a", "a"]),
                                  _remove(["a"]), _size),
    "mutable import replaces": _then(mutable, _insert(["a"], [1]), _import(["b"], [2]), _export()),
    "mutable import none": _then(mutable, _insert(["a"], [1]), _import([], []), _size),
    "mutable import sizes": _then(mutable, _import(["a", "b"], [1])),
    "mutable import doubled": _then(mutable, _import(["a", "a"], [1, 2]), _size, _find(["a"])),
    "mutable find full default": _then(mutable, _insert(["a"], [1]),
                                       _find(["a", "b", "c"], [7, 8, 9])),
    "mutable find full default shape": _then(mutable, _insert(["a"], [1]),
                                             _find([["a", "b"]], [[7, 8]])),
    "mutable find wrong default": _then(mutable, _find(["a", "b", "c"], [7, 8])),
    "mutable find empty key": _then(mutable, _insert(["", "a"], [1, 2]), _find(["", "b"]),
                                    _remove([""]), _find([""])),
    "mutable find negative": _then(lambda: mutable("int32", "int32"),
                                   _insert([-1, 2147483647, -2147483648, 0], [1, 2, 3, 4]),
                                   _find([0, -1, -2147483648, 5])),
    "mutable export empty": _then(mutable, _export()),
    "mutable export dtype": _then(mutable, _export(values=tf.int32)),
    "mutable other dtypes": _then(mutable, _insert(["a"], [1]),
                                  _other(lambda: mutable(value="float32"))),
    "mutable as tensors": _then(mutable, _insert(["a"], [1]), _other(tensors)),
    "mutable no name": _then(lambda: mutable(name=""), _insert(["a"], [1]), _size,
                             _other(lambda: mutable(name=""))),
    "anonymous": _after_insert,
    "anonymous again": _then(anonymous, _insert(["a"], [1]), _size),
    "anonymous hash": _then(lambda: anonymous(R.AnonymousHashTable), _size, _find(["a"])),
    "anonymous tensors": _then(lambda: anonymous(R.AnonymousMutableHashTableOfTensors,
            value_shape=[2]), _size, _find(["a"], [1, 2])),
    # values that are vectors
    "tensors scalar": _then(lambda: tensors(shape=()), _size),
    "tensors matrix": _then(lambda: tensors(shape=(2, 2)), _size),
    "tensors unknown": _then(lambda: tensors(shape=(None,)), _size),
    "tensors none": _then(lambda: tensors(shape=(0,)), _insert(["a"], np.zeros((1, 0))), _size,
                          _find(["a", "b"], []), _export()),
    "tensors insert shape": _then(tensors, _insert(["a"], [[1, 2, 3]])),
    "tensors insert rank": _then(tensors, _insert(["a"], [1])),
    "tensors insert matrix": _then(tensors, _insert([["a"], ["b"]], [[[1, 2]], [[3, 4]]]),
                                   _find([["a", "b"]], [0, 0])),
    "tensors find shape": _then(tensors, _find(["a"], 1)),
    "tensors find long": _then(tensors, _find(["a"], [1, 2, 3])),
    "tensors find full default": _then(tensors, _find(["a", "b"], [[1, 2], [3, 4]])),
    "tensors find full default shape": _then(tensors, _find(["a", "b"], [[1, 2, 3], [3, 4, 5]])),
    "tensors export empty": _then(tensors, _export()),
    # no tables
    "size of a stack": lambda: get(R.LookupTableSizeV2(table_handle=R.StackV2(max_size=3,
            elem_type=tf.float32))),
    "size of a variable": lambda: get(R.LookupTableSizeV2(table_handle=R.VarHandleOp(
        dtype=tf.float32, shape=[], shared_name="v"))),
}


# ---- dense tables: an export shows the buckets, which lie as TensorFlow's ----

DENSE = (
    "int32:float32 int32:float64 int32:int32 int64:bool int64:float32 int64:float64 int64:int32 "
    "int64:int64 "
    "string:bool string:float32 string:float64 string:int32 string:int64"
).split()


def dense(key, value, empty=-1, deleted=-2, buckets=8, **attrs):
    return Table(
        R.MutableDenseHashTableV2(
            empty_key=const(empty, key), deleted_key=const(deleted, key),
            value_dtype=tf.as_dtype(value), initial_num_buckets=buckets, shared_name="t", **attrs
        ),
        key, value,
    )  # fmt: skip


def buckets_of(table):
    return list(R.LookupTableExportV2(table_handle=table.handle, Tkeys=tf.as_dtype(table.key),
                                      Tvalues=tf.as_dtype(table.value)))


def _dense(key, value, keys=(3, 1, 11, 7), rest=(19, 4, 27, 35, 2), values=lambda n: list(range(n)),
           default=9, **attrs):
    def build():
        table, keys_, rest_ = dense(key, value, **attrs), list(keys), list(rest)
        steps = [Step([table.size()]), Step(buckets_of(table)),
                 Step(targets=[table.insert(keys_, values(len(keys_)))])]
        steps += [Step([table.size()]), Step([table.find(keys_[:1] + rest_[:2], default)]),
                  Step(buckets_of(table))]
        steps += [Step(targets=[table.remove(keys_[1:2] + rest_[:1])]), Step([table.size()]),
                  Step(buckets_of(table))]
        steps += [Step(targets=[table.insert(rest_, values(len(rest_)))]), Step([table.size()]),
                  Step(buckets_of(table)), Step([table.find(keys_ + rest_, default)])]
        return steps

    return build


def _dense_import():
    table, other = dense("int64", "int64"), R.MutableDenseHashTableV2(
        empty_key=const(-1, "int64"), deleted_key=const(-2, "int64"), value_dtype=tf.int64,
        initial_num_buckets=16, shared_name="other"
    )
    other = Table(other, "int64", "int64")
    keys, values = buckets_of(table)
    copy = R.LookupTableImportV2(table_handle=other.handle, keys=keys, values=values)
    steps = [Step(targets=[table.insert([5, 13, 21, 2], [1, 2, 3, 4])]),
             Step(targets=[table.remove([13])]), Step(targets=[other.insert([77], [7])])]
    return steps + [Step(targets=[copy]), Step([other.size(), other.find([5, 13, 21, 2, 77])]),
                    Step(targets=[other.insert([6], [8])]), Step([other.find([6])])]


def _dense_wrong():
    """What needs a table that is there, and what no table can be made of."""

    def on_table(make):
        return lambda: [Step(targets=[dense("int64", "int64").insert([1], [2])]),
                        Step(targets=[make(dense("int64", "int64"))])]

    for name, make in {
        "insert empty": lambda t: t.insert([5, -1], [1, 2]),
        "insert deleted": lambda t: t.insert([-2], [1]), "remove empty": lambda t: t.remove([-1]),
        "remove deleted": lambda t: t.remove([-2]), "find empty": lambda t: t.find([-1]).op,
        "find deleted": lambda t: t.find([1, -2]).op,
        "default": lambda t: t.find([1, 2, 3], [1, 2]).op,
        "values": lambda t: t.insert([1, 2], [1]),
        "value matrix": lambda t: t.insert([1, 2], [[1], [2]]),
        "types": lambda t: Table(t.handle, "int32", "int64").insert([1], [1]),
    }.items():  # fmt: skip
        yield f"dense/wrong/{name}", on_table(make)
    for name, attrs in {
        "same": {"deleted": -1}, "shapes": {"empty": [1, 2]},
        "matrix": {"empty": [[1]], "deleted": [[2]]}, "buckets 0": {"buckets": 0},
        "buckets 2": {"buckets": 2}, "buckets 12": {"buckets": 12}, "buckets -8": {"buckets": -8},
        "load 0": {"max_load_factor": 0.0}, "load 1": {"max_load_factor": 1.0},
        "load -1": {"max_load_factor": -1.0}, "value shape": {"value_shape": [2, 2]},
    }.items():  # fmt: skip
        yield f"dense/wrong/{name}", lambda attrs=attrs: [
            Step([dense("int64", "int64", **attrs).size()])]


def dense_cases():
    for pair in DENSE:
        key, value = pair.split(":")
        yield f"dense/{pair}", _dense(key, value, values=(lambda n: [i % 2 == 0 for i in range(n)])
                                      if value == "bool" else (lambda n: list(range(n))),
                                      default=value == "bool" or 9)
        yield f"dense/vectors/{pair}", _dense(
            key, value, keys=([1, 2], [3, 4], [5, 6]), rest=([7, 8], [2, 1]), empty=[0, 0],
            deleted=[0, -1], value_shape=[3],
            values=lambda n, value=value: [[(i + k) % 2 if value == "bool" else i + k
                                            for k in range(3)] for i in range(n)],
                                              default=[1, 0, 1],
        )  # fmt: skip
    for load in (0.1, 0.5, 0.99):
        yield f"dense/load {load}", _dense("int64", "int64", max_load_factor=load)
    yield "dense/negative", _dense("int64", "int64", keys=(-9, 2**40 + 3, -(2**63)),
                                   rest=(2**63 - 1, 11))
    yield "dense/four buckets", _dense("int64", "int64", buckets=4)
    yield "dense/import", _dense_import
    yield from _dense_wrong()


def _anonymous_dense(key, value):
    """A table of one step: made, filled and read in it."""

    def build():
        handle = R.AnonymousMutableDenseHashTable(
            empty_key=const(-1 if key != "string" else "e", key),
            deleted_key=const(-2 if key != "string" else "d", key), value_dtype=tf.as_dtype(value),
            initial_num_buckets=8
        )
        table = Table(handle, key, value)
        with tf.control_dependencies([table.insert([3, 11, 5], [0, 1, 2])]):
            with tf.control_dependencies([table.remove([11])]):
                return [Step([table.size(), table.find([3, 11, 5, 7], 9)]),
                        Step([table.size(), table.find([3, 11], 9)])]

    return build


def _first_mutable():
    t = mutable()
    return [do(t.insert(["a", "b"], [1, 2])), get(t.size(), t.find(["a", "c"])), get(*t.export()),
            do(t.imports(["c"], [3])), get(t.size(), t.find(["a", "c"]))]


def cases():
    for pair in DENSE:
        yield f"AnonymousMutableDenseHashTable/{pair}", _anonymous_dense(*pair.split(":"))
    yield from dense_cases()
    for pair in HASH:
        yield f"hash/{pair}", _hash(*pair.split(":"))
        yield f"first version/hash/{pair}", first(_hash(*pair.split(":")))
    for pair in MUTABLE:
        yield f"mutable/{pair}", _mutable(*pair.split(":"))
        yield f"tensors/{pair}", _tensors(*pair.split(":"))
    yield "many/numbers", _many(lambda: mutable("int64", "int64"))
    yield "many/texts", _many(lambda: mutable("string", "int64"), 500)
    for name, build in PROGRAMS.items():
        yield f"program/{name}", build
        # TensorFlow aborts where a table is exported by wrong types
        if not name.startswith(("anonymous", "dense")) and "export dtype" not in name:
            yield f"first version/{name}", first(build)
    yield "first version/insert", first(_first_mutable)
