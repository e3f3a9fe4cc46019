"""Optimizers: two steps of each, dense and by rows, on both kinds of variable; and what they
refuse."""

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops
Step = oracle.Step
REAL = ("float32", "float64", "float16", "bfloat16")
FULL = REAL + ("complex64", "complex128")
WIDE = ("float32", "float64")

# name: slots (after var), scalars, dtypes dense, dtypes by rows (None: no such op), switches, the
# gradient's name
OPTIMIZERS = {
    "GradientDescent": ([], {"alpha": 0.1}, FULL, None, [{}], "delta"),
    "ProximalGradientDescent": ([], {"alpha": 0.1, "l1": 0.2, "l2": 0.3}, WIDE, WIDE, [{}],
                                "delta"),
    "Momentum": (["accum"], {"lr": 0.1, "momentum": 0.9}, FULL, FULL, [{}, {"use_nesterov": True}],
                 "grad"),
    "KerasMomentum": (["accum"], {"lr": 0.1, "momentum": 0.9}, FULL, FULL,
                      [{}, {"use_nesterov": True}], "grad"),
    "Adagrad": (["accum"], {"lr": 0.1}, FULL, FULL, [{}, {"update_slots": False}], "grad"),
    "AdagradV2": (["accum"], {"lr": 0.1, "epsilon": 0.01}, FULL, FULL,
                  [{}, {"update_slots": False}], "grad"),
    "AdagradDA": (["gradient_accumulator", "gradient_squared_accumulator"],
                  {"lr": 0.1, "l1": 0.2, "l2": 0.3, "global_step": 3}, WIDE, WIDE, [{}], "grad"),
    "ProximalAdagrad": (["accum"], {"lr": 0.1, "l1": 0.2, "l2": 0.3}, WIDE, WIDE, [{}], "grad"),
    "Adadelta": (["accum", "accum_update"], {"lr": 0.1, "rho": 0.95, "epsilon": 0.01}, FULL, FULL,
                 [{}], "grad"),
    "RMSProp": (["ms", "mom"], {"lr": 0.1, "rho": 0.9, "momentum": 0.8, "epsilon": 0.01}, FULL,
                ("float32", "float64", "float16", "complex64", "complex128"), [{}], "grad"),
    "CenteredRMSProp": (["mg", "ms", "mom"], {"lr": 0.1, "rho": 0.9, "momentum": 0.8,
                                              "epsilon": 20.0}, FULL,
                        ("float32", "float64", "float16", "complex64", "complex128"), [{}], "grad"),
    "Adam": (["m", "v"], {"beta1_power": 0.81, "beta2_power": 0.9, "lr": 0.1, "beta1": 0.9,
                          "beta2": 0.95, "epsilon": 0.01}, FULL, None, [{}, {"use_nesterov": True}],
             "grad"),
    "AdamWithAmsgrad": (["m", "v", "vhat"], {"beta1_power": 0.81, "beta2_power": 0.9, "lr": 0.1,
                                             "beta1": 0.9, "beta2": 0.95, "epsilon": 0.01}, REAL,
                        None, [{}], "grad"),
    "AdaMax": (["m", "v"], {"beta1_power": 0.81, "lr": 0.1, "beta1": 0.9, "beta2": 0.95,
                            "epsilon": 0.01}, ("float32", "float64", "float16"), None, [{}],
               "grad"),
    "Ftrl": (["accum", "linear"], {"lr": 0.5, "l1": 0.2, "l2": 0.3, "lr_power": -0.5}, REAL, REAL,
             [{}, {"multiply_linear_by_lr": True}], "grad"),
    "FtrlV2": (["accum", "linear"], {"lr": 0.5, "l1": 0.2, "l2": 0.3, "l2_shrinkage": 0.1,
                                     "lr_power": -0.5}, REAL, REAL,
               [{}, {"multiply_linear_by_lr": True}], "grad"),
    "AddSign": (["m"], {"lr": 0.1, "alpha": 1.5, "sign_decay": 0.9, "beta": 0.8}, REAL, None, [{}],
                "grad"),
    "PowerSign": (["m"], {"lr": 0.1, "logbase": 1.2, "sign_decay": 0.9, "beta": 0.8}, REAL, None,
                  [{}], "grad"),
}
RESOURCE_ONLY = {"KerasMomentum", "AdamWithAmsgrad"}
# Squares and roots: positive from the start.
POSITIVE_SLOTS = {"accum", "accum_update", "ms", "v", "vhat", "gradient_squared_accumulator"}
# Half: TensorFlow rounds after each operation, we once.
TOLERANCE = {"float16": (2e-2, 2e-2), "bfloat16": (1.5e-1, 1.5e-1), "float32": (2e-5, 1e-5),
             "float64": (1e-12, 1e-12), "complex64": (5e-5, 2e-5), "complex128": (1e-11, 1e-11)}


def _normal(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x).astype(tf.as_dtype(dtype).as_numpy_dtype)


class _Variables:
    def __init__(self, is_resource, names, values):
        self.is_resource, self.inits, self.handles, self.dtypes = is_resource, [], {}, {}
        for name, x in zip(names, values):
            dtype = tf.as_dtype(x.dtype)
            self.dtypes[name] = dtype
            if is_resource:
                h = R.VarHandleOp(dtype=dtype, shape=None, shared_name=name, name=name)
                self.inits.append(R.AssignVariableOp(resource=h, value=tf.constant(x)))
            else:
                h = R.VariableV2(shape=None, dtype=dtype, name=name)
                self.inits.append(R.Assign(ref=h, value=tf.constant(x), validate_shape=False).op)
            self.handles[name] = h

    def read(self):
        if not self.is_resource:
            return [tf.identity(h) for h in self.handles.values()]
        return [R.ReadVariableOp(resource=h, dtype=self.dtypes[n]) for n, h in self.handles.items()]


def _scalars(name, dtype, overrides):
    np_dtype = tf.as_dtype(dtype).as_numpy_dtype
    out = {}
    for scalar, value in {**OPTIMIZERS[name][1], **overrides}.items():
        out[scalar] = oracle.const(np.asarray(value).astype(np.int64 if scalar == "global_step"
                else np_dtype))
    return out


def _optimize(name, is_resource, dtype, shape, attrs, rows=None, index_dtype="int32",
              overrides=None, grad_shape=None, slot_shape=None, skip=(), n_steps=2, reads=True):
    def build():
        slots, _, _, _, _, grad_name = OPTIMIZERS[name]
        if rows is not None:
            grad_name = "grad"
        op = getattr(R, ("Resource" if is_resource else "") + ("Sparse" if rows is not None else "")
                     + "Apply" + name)
        values = [_normal(1, shape, dtype)]
        for i, slot in enumerate(slots):
            x = _normal(2 + i, slot_shape or shape, dtype)
            if slot in POSITIVE_SLOTS:
                x = (np.abs(x) + np.asarray(0.1, x.dtype)).astype(x.dtype)
            values.append(x)
        variables = _Variables(is_resource, ["var"] + slots, values)
        args = {"var" if slot == "var" else slot: h for slot, h in variables.handles.items()}
        args.update(_scalars(name, dtype, overrides or {}))
        if rows is not None:
            index = np.asarray(rows, index_dtype)
            args["indices"] = oracle.const(index)
            default = list(index.shape[:1]) + list(shape[1:])
        else:
            default = shape
        args[grad_name] = oracle.const(_normal(9, default if grad_shape is None else grad_shape,
                                               dtype))
        result = op(**args, **attrs)
        steps = [Step([], targets=[i for j, i in enumerate(variables.inits) if j not in skip])]
        for _ in range(n_steps):
            steps.append(Step([], targets=[result]) if is_resource else Step([result]))
            if reads and not skip:
                steps.append(Step(variables.read()))
        return steps

    return build


def cases():
    for name, (slots, scalars, dense, sparse, switches, _) in OPTIMIZERS.items():
        kinds = (True,) if name in RESOURCE_ONLY else (False, True)
        for is_resource in kinds:
            full = ("Resource" if is_resource else "") + "Apply" + name
            for dtype in dense:
                rtol, atol = TOLERANCE[dtype]
                for attrs in switches:
                    for shape in ((5,), (), (3, 7), (0, 2), (41, 500)):
                        if shape == (41, 500) and (
                            dtype not in ("float32", "complex64") or not is_resource):
                            continue
                        yield f"{full}/{dtype}/{attrs}/{shape}", _optimize(
                            name, is_resource, dtype, shape, attrs), {"rtol": rtol, "atol": atol}
            for scalar in scalars:
                yield f"{full}/vector {scalar}", _optimize(
                    name, is_resource, "float32", (3,), {}, overrides={scalar: [1]})
                for value in (-0.5, 0.0, 0.5):
                    yield f"{full}/{scalar}={value}", _optimize(
                        name, is_resource, "float32", (3,), {}, overrides={scalar: value}), {
                            "rtol": 1e-4, "atol": 1e-4}
            yield f"{full}/grad shape", _optimize(
                name, is_resource, "float32", (3,), {}, grad_shape=(4,))
            yield f"{full}/uninitialized", _optimize(
                name, is_resource, "float32", (3,), {}, skip=(0,), n_steps=1)
            if slots:
                yield f"{full}/slot shape", _optimize(
                    name, is_resource, "float32", (3,), {}, slot_shape=(4,))
                yield f"{full}/slot uninitialized", _optimize(
                    name, is_resource, "float32", (3,), {}, skip=(1,), n_steps=1)
            if sparse is None:
                continue
            full = ("Resource" if is_resource else "") + "SparseApply" + name
            for i, dtype in enumerate(sparse):
                rtol, atol = TOLERANCE[dtype]
                for attrs in switches:
                    for j, (shape, rows) in enumerate(
                        (((5, 3), [0, 4]), ((4,), [2, 1]), ((5, 2, 2), [1]), ((5, 3), []),
                         ((3, 300), [2, 0]), ((5, 3), [1, 1, 1]))):
                        yield f"{full}/{dtype}/{attrs}/{shape}{rows}", _optimize(
                            name, is_resource, dtype, shape, attrs, rows,
                            ("int32", "int64")[(i + j) % 2]), {"rtol": rtol, "atol": atol}
            for scalar in scalars:
                yield f"{full}/vector {scalar}", _optimize(
                    name, is_resource, "float32", (3, 2), {}, [1], overrides={scalar: [1]})
                for value in (-0.5, 0.0, 0.5):
                    yield f"{full}/{scalar}={value}", _optimize(
                        name, is_resource, "float32", (3, 2), {}, [1, 2],
                        overrides={scalar: value}), {"rtol": 1e-4, "atol": 1e-4}
            for what, shape, rows, grad_shape in (
                ("outside", (3, 2), [0, 3], None),
                ("negative", (3, 2), [-1], None),
                ("matrix", (3, 2), [[0, 1]], (1, 2)),
                ("count", (3, 2), [0, 1, 2], (2, 2)),
                ("inner", (3, 2), [0, 1], (2, 3)),
                # the others abort TensorFlow
                ("rank", (3, 2), [0, 1], (2,) if name.startswith("Adagrad") and name != "AdagradDA"
                 else (2, 3)),
                ("scalar", (), [0], (1,)),
            ):
                # a refused step writes nothing here, a part in TensorFlow
                yield f"{full}/bad/{what}", _optimize(
                    name, is_resource, "float32", shape, {}, rows, grad_shape=grad_shape,
                    reads=False)
            if slots:
                yield f"{full}/slot shape", _optimize(
                    name, is_resource, "float32", (3, 2), {}, [0], slot_shape=(4, 2))
    for lr_power in (-0.3, -1.0, -0.5):
        for name in ("Ftrl", "FtrlV2"):
            for flag in (False, True):
                attrs = {"multiply_linear_by_lr": flag}
                yield f"{name}/lr_power={lr_power}/{flag}", _optimize(
                    name, True, "float32", (7,), attrs, overrides={"lr_power": lr_power}), {
                        "rtol": 1e-4, "atol": 1e-4}
                yield f"Sparse{name}/lr_power={lr_power}/{flag}", _optimize(
                    name, True, "float32", (7, 2), attrs, [3, 4],
                    overrides={"lr_power": lr_power}), {"rtol": 1e-4, "atol": 1e-4}
