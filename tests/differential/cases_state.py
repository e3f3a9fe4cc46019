"""Variables of both kinds, scattered updates, gathers, counters, stacks, Assert: scripts that
initialize, update and read back."""

import numpy as np
import oracle
import tensorflow as tf
from oracle import const
from tf_kernels import cpu_dtypes

R = tf.raw_ops
Step = oracle.Step
NUMBERS = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
           "uint16", "uint32", "uint64", "complex64", "complex128")
REALS = NUMBERS[:12]
ALL = NUMBERS + ("bool", "string")


def _type(dtype):
    return tf.as_dtype(dtype)


def _values(seed, dtype, shape, positive=False):
    x = oracle.sample(np.random.default_rng(seed), dtype, shape)
    if positive and dtype not in ("bool", "string"):
        x = (np.abs(x) + np.asarray(1, x.dtype)).astype(x.dtype)
    return x


def _ref(x, name="v", shape=None):
    v = R.VariableV2(shape=list(np.shape(x)) if shape is None else shape,
                     dtype=tf.as_dtype(x.dtype), name=name)
    return v, R.Assign(ref=v, value=tf.constant(x, dtype=tf.as_dtype(x.dtype)), validate_shape=shape
                       is None)


def _res(x, name="v", shape=None):
    dtype = tf.string if x.dtype == object else tf.as_dtype(x.dtype)
    h = R.VarHandleOp(dtype=dtype, shape=shape, shared_name=name, name=name)
    return h, R.AssignVariableOp(resource=h,
                                 value=tf.constant(x, dtype=dtype)), lambda: R.ReadVariableOp(
                                     resource=h, dtype=dtype)


def _array(x, dtype):
    return x if dtype == "string" else np.asarray(x).astype(_type(dtype).as_numpy_dtype)


# ---- assignment ----


def _ref_assign(dtype, shape):
    def build():
        x, y = _values(1, dtype, shape), _values(2, dtype, shape)
        v = R.VariableV2(shape=list(shape), dtype=_type(dtype), name="v")
        steps = [Step([R.IsVariableInitialized(ref=v)]),
                 Step([R.Assign(ref=v, value=oracle.const(x, _type(dtype)))]),
                 Step([v, R.IsVariableInitialized(ref=v)])]
        steps.append(Step([R.Assign(ref=v, value=oracle.const(y, _type(dtype)),
                                    use_locking=False)]))
        steps.append(Step([tf.identity(v)]))
        if dtype in NUMBERS:
            for op in (R.AssignAdd, R.AssignSub):
                steps += [Step([op(ref=v, value=oracle.const(x, _type(dtype)))]), Step([v])]
            steps += [Step([R.AssignAdd(ref=v, value=v)]), Step([v])]
        return steps

    return build


def _resource_assign(dtype, shape):
    def build():
        x, y = _values(1, dtype, shape), _values(2, dtype, shape)
        h, init, read = _res(x)
        steps = [Step([R.VarIsInitializedOp(resource=h)]), Step([], targets=[init]),
                 Step([read(), R.VarIsInitializedOp(resource=h)])]
        steps += [Step([R.VariableShape(input=h), R.VariableShape(input=h, out_type=tf.int64)])]
        steps += [Step([], targets=[R.AssignVariableOp(resource=h, value=oracle.const(
            y, _type(dtype)))]), Step([read()])]
        if dtype in NUMBERS:
            for op in (R.AssignAddVariableOp, R.AssignSubVariableOp):
                steps += [Step([], targets=[op(resource=h, value=oracle.const(x, _type(dtype)))]),
                          Step([read()])]
            steps += [Step([], targets=[R.AssignAddVariableOp(resource=h, value=read())]),
                      Step([read()])]
        steps += [Step([], targets=[R.DisableCopyOnRead(resource=h)]),
                  Step([], targets=[R.DestroyResourceOp(resource=h)])]
        steps += [Step([R.VarIsInitializedOp(resource=h)]), Step([read()])]
        return steps

    return build


# ---- scattered updates: a refused one writes nothing here and a part of it in TensorFlow, so
# nothing is read after it ----

SCATTERS = {
    "Update": ALL,
    "Add": NUMBERS,
    "Sub": NUMBERS,
    "Mul": NUMBERS,
    "Div": NUMBERS,
    "Min": REALS,
    "Max": REALS,
}


def _scatter(kind, is_ref, dtype, params, indices, updates, index_dtype="int32", n_steps=3):
    def build():
        x = _values(3, dtype, params)
        u = _values(4, dtype, updates, positive=kind == "Div")
        i, u = oracle.const(np.asarray(indices, index_dtype)), oracle.const(u, _type(dtype))
        if is_ref:
            v, init = _ref(x if dtype != "string" else x)
            return [Step([init]), Step([getattr(R, "Scatter" + kind)(ref=v, indices=i, updates=u)]),
                    Step([v])][:n_steps]
        h, init, read = _res(x)
        return [Step([], targets=[init]),
                Step([], targets=[getattr(R, "ResourceScatter" + kind)(resource=h, indices=i,
                        updates=u)]), Step([read()])][:n_steps]

    return build


def _scatter_nd(kind, is_ref, dtype, params, indices, updates, index_dtype="int32", n_steps=3,
                **attrs):
    def build():
        x, u = _values(3, dtype, params), _values(4, dtype, updates)
        i, u = oracle.const(np.asarray(indices, index_dtype)), oracle.const(u, _type(dtype))
        if is_ref:
            v, init = _ref(x)
            return [Step([init]),
                    Step([getattr(R, "ScatterNd" + kind)(ref=v, indices=i, updates=u, **attrs)]),
                    Step([v])][:n_steps]
        h, init, read = _res(x)
        return [Step([], targets=[init]),
                Step([], targets=[getattr(R, "ResourceScatterNd"
                                          + kind)(ref=h, indices=i, updates=u, **attrs)]),
                Step([read()])][:n_steps]

    return build


SCATTER_SHAPES = [
    ("rows", (5, 3), [0, 4, 2], (3, 3)),
    ("twice", (5, 3), [1, 1, 2], (3, 3)),
    ("matrix", (4, 2, 3), [[0, 3], [1, 2]], (2, 2, 2, 3)),
    ("vector", (6,), [5, 0, 0], (3,)),
    ("scalar", (5, 3), [0, 4], ()),
    ("one", (5, 3), 3, (3,)),
    ("none", (5, 3), np.zeros((0,)), (0, 3)),
    ("wide", (3, 200), [2, 0, 2], (3, 200)),
]
SCATTER_ERRORS = [
    ("outside", (5, 3), [0, 5], (2, 3)),
    ("outside2", (5, 3), [[0, 1], [2, 7]], (2, 2, 3)),
    ("negative", (5, 3), [-1], (1, 3)),
    ("updates", (5, 3), [0, 1], (3, 3)),
    ("rank", (5, 3), [0, 1], (2,)),
    ("scalar params", (), [0], (1,)),
    ("empty params", (0, 3), [0], (1, 3)),
]
ND_SHAPES = [
    ("rows", (5, 3), [[0], [4]], (2, 3)),
    ("elements", (5, 3), [[0, 1], [4, 2], [0, 1]], (3,)),
    ("batch", (4, 2, 3), [[[0, 1], [3, 0]]], (1, 2, 3)),
    # A vector of indices is not here: TensorFlow takes its first element only.
    ("none", (5, 3), np.zeros((0, 1)), (0, 3)),
]
ND_ERRORS = [
    ("outside", (5, 3), [[0, 1], [4, 3]], (2,)),
    ("negative", (5, 3), [[-1]], (1, 3)),
    ("deep", (5, 3), [[0, 1, 2]], (1,)),
    ("inner", (5, 3), [[0], [1]], (2, 2)),
    ("outer", (5, 3), [[0], [1]], (1, 3)),
    ("no depth", (5, 3), np.zeros((2, 0)), (2, 5, 3)),
    ("empty params", (0, 3), [[0]], (1, 3)),
    ("scalar params", (), np.zeros((1, 0)), (1,)),
    ("scalar indices", (5, 3), 1, (3,)),
    ("few updates", (5, 3), [0, 1], ()),
]


def _non_aliasing(dtype, params, indices, updates, index_dtype="int32"):
    def build():
        x, u = _values(3, dtype, params), _values(4, dtype, updates)
        return [R.ScatterNdNonAliasingAdd(input=oracle.const(x),
                                          indices=oracle.const(np.asarray(indices, index_dtype)),
                                          updates=oracle.const(u))]

    return build


# ---- gathers ----


def _gather(dtype, params, indices, index_dtype="int32", **attrs):
    def build():
        h, init, _ = _res(_values(5, dtype, params))
        i = oracle.const(np.asarray(indices, index_dtype))
        return [Step([], targets=[init]),
                Step([R.ResourceGather(resource=h, indices=i, dtype=_type(dtype), **attrs)])]

    return build


def _gather_nd(dtype, params, indices, index_dtype="int32"):
    def build():
        h, init, _ = _res(_values(5, dtype, params))
        i = oracle.const(np.asarray(indices, index_dtype))
        return [Step([], targets=[init]),
                Step([R.ResourceGatherNd(resource=h, indices=i, dtype=_type(dtype))])]

    return build


GATHERS = [
    ("rows", (5, 3), [0, 4, 4], {}),
    ("matrix", (5, 2, 2), [[0, 4], [1, 1]], {}),
    ("scalar", (5, 3), 2, {}),
    ("vector", (7,), [6, 0], {}),
    ("none", (5, 3), np.zeros(0), {}),
    ("many", (5, 3), [i % 5 for i in range(50)], {}),
    ("few", (100, 3), [99, 7], {}),
    ("batch", (2, 3, 2), [[0, 2], [1, 1]], {"batch_dims": 1}),
    ("batch2", (2, 2, 3, 2), [[[0], [2]], [[1], [1]]], {"batch_dims": 2}),
    ("empty rows", (3, 0), [1, 2], {}),
    ("outside", (5, 3), [5], {}),
    ("outside2", (5, 3), [[0, 1], [-1, 2]], {}),
    ("unchecked", (5, 3), [5], {"validate_indices": False}),
    ("empty", (0, 3), [0], {}),
    ("scalar params", (), [0], {}),
]
GATHER_NDS = [
    ("elements", (5, 3), [[0, 1], [4, 2]]),
    ("rows", (5, 3), [[[0], [4]]]),
    ("all", (5, 3), np.zeros((2, 0))),
    ("none", (5, 3), np.zeros((0, 2))),
    ("vector", (5, 3), [1, 2]),
    ("outside", (5, 3), [[0, 3]]),
    ("deep", (5, 3), [[0, 1, 2]]),
    ("scalar indices", (5, 3), 1),
    ("scalar params", (), [[0]]),
    ("empty", (0, 3), [[0]]),
]


# ---- one of a kind ----


def _two_refs(shared, dtypes, shapes):
    def build():
        a = R.VariableV2(shape=shapes[0], dtype=dtypes[0], shared_name=shared, name="a")
        b = R.VariableV2(shape=shapes[1], dtype=dtypes[1], shared_name=shared, name="b")
        init = R.Assign(ref=a, value=tf.cast(tf.fill(shapes[0], 3), dtypes[0]))
        return [Step([init]), Step([b]), Step([], targets=[R.AssignAdd(ref=a, value=a)]), Step([b])]

    return build


def _ref_errors(which):
    def build():
        x = np.array([1.0, 2.0], np.float32)
        v, init = _ref(x)
        three = oracle.const(np.array([1.0, 2.0, 3.0], np.float32))
        return {
            "uninitialized": lambda: [Step([tf.identity(v)])],
            "uninitialized add": lambda: [Step([R.AssignAdd(ref=v, value=oracle.const(x))])],
            "uninitialized scatter": lambda: [Step(
                [R.ScatterAdd(ref=v, indices=[0], updates=[1.0])])],
            "uninitialized nd": lambda: [Step([R.ScatterNdAdd(ref=v, indices=[[0]],
                    updates=[1.0])])],
            "first shape": lambda: [Step([R.Assign(ref=v, value=three)])],
            "shape": lambda: [Step([init]), Step([R.Assign(ref=v, value=three)]), Step([v])],
            "unchecked": lambda: [Step([init]),
                                  Step([R.Assign(ref=v, value=three, validate_shape=False)]),
                                  Step([v])],
            "add": lambda: [Step([init]), Step([R.AssignAdd(ref=v, value=three)]), Step([v])],
            "sub": lambda: [Step([init]), Step([R.AssignSub(ref=v, value=three)]), Step([v])],
        }[which]()

    return build


def _unknown_shape(value, validate):
    def build():
        v = R.VariableV2(shape=None, dtype=tf.float32, name="v")
        return [Step([R.Assign(ref=v, value=oracle.const(np.asarray(value, np.float32)),
                               validate_shape=validate)]), Step([v])]

    return build


def _partial_shape():
    v = R.VariableV2(shape=[None], dtype=tf.float32, name="v")
    return [Step([R.Assign(ref=v, value=tf.constant([1.0]))])]


def _resource_errors(which):
    def build():
        x = np.array([1.0, 2.0], np.float32)
        h, init, read = _res(x)
        other = R.VarHandleOp(dtype=tf.int32, shape=None, shared_name="v", name="other")
        three = oracle.const(np.array([1.0, 2.0, 3.0], np.float32))
        stack = R.StackV2(max_size=3, elem_type=tf.float32)
        start = Step([], targets=[init])
        return {
            "read": lambda: [Step([read()])],
            "add": lambda: [Step([], targets=[R.AssignAddVariableOp(resource=h, value=three)])],
            "shape of": lambda: [Step([R.VariableShape(input=h)])],
            "gather": lambda: [Step([R.ResourceGather(resource=h, indices=[0], dtype=tf.float32)])],
            "gather nd": lambda: [Step([R.ResourceGatherNd(resource=h, indices=[[0]],
                    dtype=tf.float32)])],
            "scatter": lambda: [Step([],
                                     targets=[R.ResourceScatterAdd(resource=h, indices=[0],
                                             updates=[1.0])])],
            "scatter nd": lambda: [Step([],
                                        targets=[
                                            R.ResourceScatterNdAdd(
                                                ref=h, indices=[[0]], updates=[1.0])])],
            "count": lambda: [Step([R.ResourceCountUpTo(resource=other, limit=3, T=tf.int32)])],
            "disable": lambda: [Step([], targets=[R.DisableCopyOnRead(resource=h)])],
            "destroy": lambda: [Step([],
                                     targets=[R.DestroyResourceOp(resource=h,
                                             ignore_lookup_error=False)])],
            "destroy ignored": lambda: [Step([],
                                             targets=[
                                                 R.DestroyResourceOp(
                                                     resource=h, ignore_lookup_error=True)])],
            "wrong shape": lambda: [start,
                                    Step([], targets=[R.AssignVariableOp(resource=h, value=three,
                                            validate_shape=True)]), Step([read()])],
            "other shape": lambda: [start,
                                    Step([], targets=[R.AssignVariableOp(resource=h, value=three)]),
                                    Step([read()])],
            "add shape": lambda: [start,
                                  Step([], targets=[R.AssignAddVariableOp(resource=h,
                                          value=three)]), Step([read()])],
            "read dtype": lambda: [start, Step([R.ReadVariableOp(resource=other, dtype=tf.int32)])],
            "assign dtype": lambda: [start,
                                     Step([], targets=[R.AssignVariableOp(resource=other,
                                             value=[1, 2])])],
            "add dtype": lambda: [start,
                                  Step([], targets=[R.AssignAddVariableOp(resource=other,
                                          value=[1, 2])])],
            "stack read": lambda: [Step([R.ReadVariableOp(resource=stack, dtype=tf.float32)])],
            "stack assign": lambda: [Step([],
                                          targets=[R.AssignVariableOp(resource=stack, value=1.0)])],
            "stack is": lambda: [Step([R.VarIsInitializedOp(resource=stack)])],
            "pop variable": lambda: [start, Step([R.StackPopV2(handle=h, elem_type=tf.float32)])],
        }[which]()

    return build


RESOURCE_ERRORS = (
    "read,add,shape of,gather,gather nd,scatter,scatter nd,count,disable,destroy,destroy "
    "ignored,wrong shape,other shape,add shape,read dtype,assign dtype,"
    "add dtype,stack read,stack assign,stack is,pop variable"
).split(",")
REF_ERRORS = ("uninitialized,uninitialized add,uninitialized scatter,uninitialized nd,first "
              "shape,shape,unchecked,add,sub".split(","))


def _count(dtype, is_ref, start, limit, n):
    def build():
        x = np.array(start, dtype)
        if is_ref:
            v, init = _ref(x)
            return [Step([init])] + [Step([R.CountUpTo(ref=v, limit=limit)]) for _ in range(n)] + [
                Step([v])]
        h, init, read = _res(x)
        return [Step([], targets=[init])] + [Step(
            [R.ResourceCountUpTo(resource=h, limit=limit, T=_type(dtype))]) for _ in range(n)] + [
                Step([read()])]

    return build


def _count_vector():
    v = R.VariableV2(shape=None, dtype=tf.int32, name="v")
    return [Step([R.Assign(ref=v, value=oracle.const(np.array([1], np.int32)),
                           validate_shape=False)]), Step([R.CountUpTo(ref=v, limit=3)])]


def _temporary(which):
    def build():
        v = R.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="tmp" if which != "unnamed"
                                else "", name="t")
        if which == "initialized":
            return [R.IsVariableInitialized(ref=v)]
        a = R.AssignAdd(ref=R.Assign(ref=v, value=oracle.const(np.array([1.0, 2.0], np.float32))),
                        value=[1.0, 1.0])
        name = {"bad": "bad", "unnamed": "t"}.get(which, "tmp")
        end = R.DestroyTemporaryVariable(ref=a, var_name=name)
        return [Step([end]), Step([end])]

    return build


# ---- stacks ----


def _stack(which, dtype="float32"):
    def build():
        size = {"full": 1, "zero": 0, "unbounded": -1}.get(which, 3)
        h = R.StackV2(max_size=oracle.const(np.int32(size)), elem_type=_type(dtype), stack_name="s")
        values = [_values(i, dtype, s) for i, s in enumerate(((), (2, 3), (4,)))]

        def after(what, then):
            with tf.control_dependencies([what]):
                return then()

        push = lambda i: R.StackPushV2(handle=h, elem=oracle.const(values[i], _type(dtype)))
        pop = lambda: R.StackPopV2(handle=h, elem_type=_type(dtype))
        close = lambda: R.StackCloseV2(handle=h)
        if which == "empty":
            return [pop()]
        if which == "wrong":
            return [R.StackPushV2(handle=h, elem=oracle.const(np.array([1], np.uint16)))]
        if which == "wrong pop":
            return [after(push(0), lambda: R.StackPopV2(handle=h, elem_type=tf.uint16))]
        if which == "vector":
            return [Step([], targets=[R.StackV2(max_size=oracle.const(np.array([1], np.int32)),
                                                elem_type=tf.float32).op])]
        a = push(0)
        if which == "closed":
            return [after(after(a, close), pop)]
        if which == "closed push":
            return [after(after(a, close), lambda: push(1))]
        if which == "closed twice":
            return [Step([], targets=[after(after(a, close), close)])]
        b = after(a, lambda: push(1))
        c = after(b, lambda: push(2))
        p = after(c, pop)
        q = after(p, pop)
        r = after(q, pop)
        return [a, b, c, p, q, r]

    return build


def _stack_v1():
    h = R.Stack(elem_type=tf.float32, stack_name="s")
    a = R.StackPush(handle=h, elem=oracle.const(np.array([1.0, 2.0], np.float32)))
    with tf.control_dependencies([a]):
        b = R.StackPush(handle=h, elem=oracle.const(np.float32(3)))
    with tf.control_dependencies([b]):
        p = R.StackPop(handle=h, elem_type=tf.float32)
    with tf.control_dependencies([p]):
        close = R.StackClose(handle=h)
    return [Step([a, b, p], targets=[close])]


# ---- logging ----

ASSERT_DATA = {
    "mixed": ([lambda: "x=", lambda: np.array([1, 2, 3, 4], np.float32), lambda: np.int32(1),
               lambda: np.bool_(True)], 3),
    "matrix": ([lambda: np.arange(12).reshape(3, 4), lambda: np.zeros((0,), np.float32)], 5),
    "all": ([lambda: np.arange(24).reshape(2, 3, 4)], -1),
    "none": ([lambda: np.arange(12).reshape(3, 4)], 0),
    "text": ([lambda: np.array([b"a b", b"c\n\x01", b"d'\""], object)], 100),
}


def _assert(condition, which):
    data, summarize = ASSERT_DATA[which]
    return lambda: [Step([], targets=[R.Assert(condition=oracle.const(np.asarray(condition)),
                                               data=[oracle.const(d()) for d in data],
                                               summarize=summarize)])]


def _print():
    x = R.Print(input=oracle.const(np.array([1.0, 2.0], np.float32)),
                data=[oracle.const(np.arange(4))], message="m: ", first_n=0)
    return [x]


def _reference(dtype, of, resource=False):
    """`of` a variable's reference, before and after it is given a value."""

    def build():
        v = R.VariableV2(shape=[2, 2], dtype=tf.as_dtype(dtype), shared_name="v")
        once = R.Assign(ref=v, value=const(oracle.sample(np.random.default_rng(1), dtype, (2, 2)),
                                           dtype))
        seen = tf.identity(of(v))
        return [oracle.Step([seen]), oracle.Step(targets=[once.op]), oracle.Step([seen])]

    return build


def reference_cases():
    for dtype in cpu_dtypes("RefIdentity"):
        if dtype in ALL:
            yield f"RefIdentity/{dtype}", _reference(dtype, lambda v: R.RefIdentity(input=v))
            yield f"DebugGradientRefIdentity/{dtype}", _reference(
                dtype, lambda v: R.DebugGradientRefIdentity(input=v))
            yield f"DebugGradientIdentity/{dtype}", lambda dtype=dtype: [
                R.DebugGradientIdentity(input=const(oracle.sample(np.random.default_rng(2), dtype,
                        (3,)), dtype))]
    for dtype in cpu_dtypes("Variable", "dtype"):
        if dtype in ALL:

            def old_variable(dtype=dtype):
                v = R.Variable(shape=[2], dtype=tf.as_dtype(dtype), shared_name="old")
                return [oracle.Step([tf.identity(v)]),
                        oracle.Step(targets=[R.Assign(ref=v,
                                value=const(oracle.sample(np.random.default_rng(1), dtype, (2,)),
                                            dtype)).op]), oracle.Step([tf.identity(v)])]

            yield f"Variable/{dtype}", old_variable
    for dtype in (dtype for dtype in cpu_dtypes("ToBool") if dtype in ALL):
        for shape in ((), (0,), (2,), (1, 1)):
            yield f"ToBool/{dtype}/{shape}", lambda dtype=dtype, shape=shape: [
                R.ToBool(input=const(oracle.sample(np.random.default_rng(3), dtype, shape), dtype))]
        if dtype != "string":
            yield f"ToBool/{dtype}/zero", lambda dtype=dtype: [
                R.ToBool(input=const(np.zeros((), tf.as_dtype(dtype).as_numpy_dtype), dtype))]
    yield "Timestamp/ordered", lambda: [R.Less(x=const(1.6e9, "float64"), y=R.Timestamp())]
    for dtype in cpu_dtypes("Empty", "dtype"):
        for init in (True, False):
            for shape in ([], [3], [2, 0], [2, 2]):
                # memory as it is
                options = {} if init or dtype == "string" or 0 in shape else {"ignore": "values"}
                yield f"Empty/{dtype}/{shape}/{init}", lambda dtype=dtype, init=init, shape=shape: [
                    R.Empty(shape=const(np.array(shape, np.int32)), dtype=tf.as_dtype(dtype),
                            init=init)], options
    yield "Empty/negative", lambda: [R.Empty(shape=const(np.array([-1], np.int32)),
                                             dtype=tf.float32, init=True)]
    yield "Empty/matrix", lambda: [R.Empty(shape=const(np.ones((1, 1), np.int32)), dtype=tf.float32,
                                           init=True)]


def cases():
    yield from reference_cases()
    for dtype in ALL:
        for shape in ((), (3,), (2, 3), (0, 2), (1, 1, 1, 2, 1, 1, 1, 3), (40, 50)):
            yield f"ref assign/{dtype}/{shape}", _ref_assign(dtype, shape)
            yield f"resource assign/{dtype}/{shape}", _resource_assign(dtype, shape)
    for kind, dtypes in SCATTERS.items():
        for is_ref in (True, False):
            name = ("Scatter" if is_ref else "ResourceScatter") + kind
            for i, dtype in enumerate(dtypes):
                if is_ref and kind in ("Min", "Max") and dtype in (
                    "int8", "int16", "uint8", "uint16", "uint32", "uint64"):
                    continue  # not allowed by the op's attr
                for j, (what, params, indices, updates) in enumerate(SCATTER_SHAPES):
                    if dtype in ("float32", "string", "int32") or (i + j) % 3 == 0:
                        yield f"{name}/{dtype}/{what}", _scatter(
                            kind, is_ref, dtype, params, indices, updates,
                            ("int32", "int64")[(i + j) % 2])
            for what, params, indices, updates in SCATTER_ERRORS:
                yield f"{name}/bad/{what}", _scatter(
                    kind, is_ref, "float32", params, indices, updates, n_steps=2)
    for kind in ("Update", "Add", "Sub", "Min", "Max"):
        for is_ref in (True, False):
            name = ("ScatterNd" if is_ref else "ResourceScatterNd") + kind
            for i, dtype in enumerate(ALL if kind == "Update" else REALS if kind in ("Min", "Max")
                                      else NUMBERS):
                if dtype in ("string", "bool") and kind != "Update":
                    continue
                for j, (what, params, indices, updates) in enumerate(ND_SHAPES):
                    if dtype in ("float32", "int32") or (i + j) % 3 == 0:
                        yield f"{name}/{dtype}/{what}", _scatter_nd(
                            kind, is_ref, dtype, params, indices, updates,
                            ("int32", "int64")[(i + j) % 2])
            for what, params, indices, updates in ND_ERRORS:
                yield f"{name}/bad/{what}", _scatter_nd(
                    kind, is_ref, "float32", params, indices, updates, n_steps=2)
            for policy in ("IGNORE", "ERROR", "DEFAULT", "FOO"):
                yield f"{name}/policy/{policy}", _scatter_nd(
                    kind, is_ref, "float32", (5, 3), [[0, 1], [4, 3]], (2,), n_steps=3 if policy
                    == "IGNORE" else 2, bad_indices_policy=policy)
    for i, dtype in enumerate(NUMBERS + ("bool",)):
        for j, (what, params, indices, updates) in enumerate(ND_SHAPES + ND_ERRORS):
            if dtype == "float32" or (i + j) % 4 == 0:
                yield f"NonAliasing/{dtype}/{what}", _non_aliasing(
                    dtype, params, indices, updates, ("int32", "int64")[(i + j) % 2])
    for i, dtype in enumerate(ALL):
        for j, (what, params, indices, attrs) in enumerate(GATHERS):
            if dtype in ("float32", "string") or (i + j) % 4 == 0:
                yield f"ResourceGather/{dtype}/{what}", _gather(
                    dtype, params, indices, ("int32", "int64")[(i + j) % 2], **attrs)
        for j, (what, params, indices) in enumerate(GATHER_NDS):
            if dtype in ("float32", "string") or (i + j) % 4 == 0:
                yield f"ResourceGatherNd/{dtype}/{what}", _gather_nd(
                    dtype, params, indices, ("int32", "int64")[(i + j) % 2])
    yield "shared/same", _two_refs("q", (tf.float32, tf.float32), ([2], [2]))
    yield "shared/dtype", _two_refs("q", (tf.float32, tf.int32), ([2], [2]))
    for which in REF_ERRORS:
        # The static shape stays the declared one when an unchecked Assign changes it, in TensorFlow
        # too.
        yield f"ref/{which}", _ref_errors(which), {
            "ignore": "shapes"} if which == "unchecked" else {}
    for which in RESOURCE_ERRORS:
        yield f"resource/{which}", _resource_errors(which)
    yield "unknown shape/scalar", _unknown_shape(1.0, True)
    yield "unknown shape/vector", _unknown_shape([1.0, 2.0], True)
    yield "unknown shape/unchecked", _unknown_shape([1.0, 2.0], False)
    yield "partial shape", _partial_shape
    for dtype in ("int32", "int64"):
        for is_ref in (True, False):
            yield f"count/{dtype}/{is_ref}", _count(dtype, is_ref, 1, 3, 3)
            yield f"count beyond/{dtype}/{is_ref}", _count(dtype, is_ref, 7, 3, 1)
    yield "count/vector", _count_vector
    for which in ("plain", "bad", "unnamed", "initialized"):
        yield f"temporary/{which}", _temporary(which)
    for which in ("plain", "full", "zero", "unbounded", "empty", "wrong", "wrong pop", "vector",
                  "closed", "closed push", "closed twice"):
        yield f"stack/{which}", _stack(which)
    for dtype in ("int64", "string", "complex128", "bool"):
        yield f"stack/plain/{dtype}", _stack("plain", dtype)
    yield "stack/v1", _stack_v1, {"modes": ("static",)}
    for which in ASSERT_DATA:
        yield f"assert/false/{which}", _assert(False, which)
    yield "assert/true", _assert(True, "mixed")
    yield "assert/vector", _assert([False], "mixed")
    yield "print", _print
