#!/usr/bin/env python3
"""Builds random graphs by the same calls through our library and TensorFlow's, differentiates them,
and runs them: the same GraphDef, the same static shapes, the same gradients' values, the same code
for each call that fails.

    random_graphs.py [--long] [--n N] [--first SEED] [--verbose]

A graph is a seed. Ours runs on a local cluster. What TensorFlow's C API cannot differentiate (it
has derivatives of fewer ops than its Python) says nothing of the gradients. The last line is "N
passed, N failed[, N skipped]".
"""
import argparse
import functools
import math
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from c_library import (BOOL, DOUBLE, FLOAT, INT32, INT64, Builder, Output, Refused,  # noqa: E402
                       ints, millrace, normal_graph_def, output, tensorflow, text)
from local_cluster import target  # noqa: E402

N_SAMPLE, N_LONG = 60, 1000
FLOATS = (FLOAT, DOUBLE)
TOLERANCE = 2e-3  # doubles, too: some are casts of floats
SHAPES = ((), (3,), (1,), (2, 3), (3, 1), (2, 2, 3))
UNARY = ("Square", "Exp", "Tanh", "Sigmoid", "Relu", "Softplus", "Sin", "Cos", "Neg", "Abs", "Atan",
         "Sinh", "Erf", "Identity", "Softsign", "Elu", "Log1p", "Sqrt", "Rsqrt", "Reciprocal",
         "L2Loss", "StopGradient", "ZerosLike", "OnesLike", "Sign", "Softmax",
         "LogSoftmax", "Selu", "Expm1")
BINARY = ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "Pow",
          "DivNoNan")
REDUCE = ("Sum", "Mean", "Max", "Min", "Prod")


class Script:
    """One random program. It makes the same choices with both libraries as long as these answer
    alike."""

    def __init__(self, seed, builder):
        self.rng, self.b = random.Random(seed), builder
        self.values, self.codes, self.n = [], [], 0  # (output, dtype) of what was made

    # ---- choices ----

    def name(self, kind):
        self.n += 1
        scope = f"scope_{self.n % 3}/" if self.rng.random() < .1 else ""
        return f"{scope}{kind}_{self.n}"

    def pick(self, dtypes=FLOATS, rank=None):
        """An output of one of these dtypes, and its dtype; a new constant where there is none."""
        found = [(o, t) for o, t in self.values
                 if t in dtypes and (rank is None or len(self.b.shape(o) or ()) >= rank)]
        if found and self.rng.random() < .95:
            return self.rng.choice(found)
        dtype = self.rng.choice(dtypes)
        shapes = [s for s in SHAPES if rank is None or len(s) >= rank]
        return output(self.constant(dtype, self.rng.choice(shapes))), dtype

    def elements(self, dtype, n):
        if dtype in FLOATS:  # no two alike, so that nothing is a tie
            return [round(self.rng.uniform(.3, 1.7), 6) for _ in range(n)]
        return [self.rng.randrange(2 if dtype == BOOL else 4) for _ in range(n)]

    def constant(self, dtype, shape, values=None):
        n = math.prod(shape)
        return self.b.constant(self.name("const"), dtype, list(shape),
                               self.elements(dtype, n) if values is None else values)

    def extras(self):
        """Control inputs, a device, a colocation."""
        out = {}
        if self.values and self.rng.random() < .1:
            out["controls"] = [self.rng.choice(self.values)[0].oper]
        if self.rng.random() < .05:
            out["device"] = self.rng.choice(("/cpu:0", "/device:CPU:0"))
        if self.values and self.rng.random() < .05:
            out["colocate"] = [self.rng.choice(self.values)[0].oper]
        return out

    def keep(self, oper, *dtypes):
        for i, dtype in enumerate(dtypes):
            self.values.append((Output(oper, i), dtype))

    # ---- steps: each may be refused ----

    def step_value(self):
        dtype, shape = self.rng.choice((*FLOATS, FLOAT, INT32)), self.rng.choice(SHAPES)
        self.keep(self.constant(dtype, shape), dtype)

    def step_unary(self):
        x, dtype = self.pick()
        op = self.rng.choice(UNARY)
        if op == "LogSoftmax" and len(self.b.shape(x) or ()) != 2:
            op = "Softmax"  # TensorFlow's library differentiates it along axis 1
        self.keep(self.b.op(op, self.name(op), x, **self.extras()), dtype)

    def step_binary(self):
        x, dtype = self.pick()
        y, other = self.pick((dtype,) if self.rng.random() < .97 else FLOATS)
        op = self.rng.choice(BINARY)
        self.keep(self.b.op(op, self.name(op), x, y, **self.extras()), dtype)

    def step_matmul(self):
        x, dtype = self.pick(rank=2)
        y, _ = self.pick((dtype,), rank=2)
        attrs = {name: ("Bool", int(self.rng.random() < .5))
                 for name in ("transpose_a", "transpose_b")}
        self.keep(self.b.op("MatMul", self.name("MatMul"), x, y, **attrs), dtype)

    def step_reduce(self):
        x, dtype = self.pick(rank=1)
        rank = len(self.b.shape(x) or (1,))
        axes = self.constant(INT32, (1,), [self.rng.randrange(-rank, rank)])
        op = self.rng.choice(REDUCE)
        self.keep(self.b.op(op, self.name(op), x, axes,
                            keep_dims=("Bool", int(self.rng.random() < .5))), dtype)

    def step_shape(self):
        x, dtype = self.pick()
        kind = self.rng.choice(("Reshape", "ExpandDims", "Tile", "Transpose", "BroadcastTo"))
        rank = len(self.b.shape(x) or ())
        if kind == "Reshape":
            sizes = [self.rng.choice(([-1], [3, -1], [2, 3], [-1, 1]))]
            other = self.constant(INT32, (len(sizes[0]),), sizes[0])
        elif kind == "ExpandDims":
            other = self.constant(INT32, (), [self.rng.randrange(-rank - 1, rank + 1)])
        elif kind == "Tile":
            other = self.constant(INT32, (rank,), [self.rng.randrange(1, 3) for _ in range(rank)])
        elif kind == "Transpose":
            other = self.constant(INT32, (rank,), self.rng.sample(range(rank), rank))
        else:
            other = self.constant(INT32, (3,), [2, self.rng.choice((1, 2, 3)), 3])
        self.keep(self.b.op(kind, self.name(kind), x, other), dtype)

    def step_join(self):
        x, dtype = self.pick(rank=1)
        y, _ = self.pick((dtype,), rank=1)
        kind = self.rng.choice(("ConcatV2", "Pack", "AddN", "IdentityN"))
        if kind == "ConcatV2":
            axis = self.constant(INT32, (), [self.rng.randrange(2)])
            self.keep(self.b.op(kind, self.name(kind), [x, y, x], axis), dtype)
        elif kind == "Pack":
            self.keep(self.b.op(kind, self.name(kind), [x, y],
                                axis=("Int", self.rng.randrange(2))), dtype)
        elif kind == "AddN":
            self.keep(self.b.op(kind, self.name(kind), [x, y, y]), dtype)
        else:
            self.keep(self.b.op(kind, self.name(kind), [x, y]), dtype, dtype)

    def step_part(self):
        x, dtype = self.pick(rank=1)
        rank = len(self.b.shape(x) or (1,))
        kind = self.rng.choice(("Slice", "GatherV2", "Split", "Unpack", "Pad"))
        if kind == "Slice":
            begin = self.constant(INT32, (rank,), [self.rng.randrange(2) for _ in range(rank)])
            size = self.constant(INT32, (rank,), [self.rng.choice((-1, 1)) for _ in range(rank)])
            self.keep(self.b.op(kind, self.name(kind), x, begin, size), dtype)
        elif kind == "GatherV2":
            last = max((self.b.shape(x) or [1])[0], 1) - 1
            index = self.constant(self.rng.choice((INT32, INT64)), (2,),
                                  [0, self.rng.choice((0, last))])
            self.keep(self.b.op(kind, self.name(kind), x, index, self.constant(INT32, (), [0])),
                      dtype)
        elif kind == "Split":
            axis = self.constant(INT32, (), [self.rng.randrange(rank)])
            n = self.rng.choice((1, 2, 3))
            self.keep(self.b.op(kind, self.name(kind), axis, x, num_split=("Int", n)),
                      *[dtype] * n)
        elif kind == "Unpack":
            n = self.rng.choice((1, 2, 3))
            self.keep(self.b.op(kind, self.name(kind), x, num=("Int", n)), *[dtype] * n)
        else:
            sides = self.constant(INT32, (rank, 2), [self.rng.randrange(2)
                                                     for _ in range(2 * rank)])
            self.keep(self.b.op(kind, self.name(kind), x, sides), dtype)

    def step_cast(self):
        x, dtype = self.pick((*FLOATS, INT32))
        to = self.rng.choice((*FLOATS, INT32))
        self.keep(self.b.op("Cast", self.name("Cast"), x, DstT=("Type", to)), to)

    def step_choose(self):
        x, dtype = self.pick()
        y, _ = self.pick((dtype,))
        bound, _ = self.pick((dtype,))
        is_less = self.b.op("Less", self.name("Less"), x, bound)
        self.keep(self.b.op("SelectV2", self.name("SelectV2"), is_less, x, y), dtype)

    def step_net(self):
        kind = self.rng.choice(("Conv2D", "MaxPool", "AvgPool", "BiasAdd"))
        padding = ("String", *text(self.rng.choice(("SAME", "VALID")))[1:])
        image = self.constant(FLOAT, (1, 3, 4, 2))
        if kind == "Conv2D":
            oper = self.b.op(kind, self.name(kind), image, self.constant(FLOAT, (2, 2, 2, 3)),
                             strides=ints(1, 1, self.rng.choice((1, 2)), 1), padding=padding)
        elif kind == "BiasAdd":
            oper = self.b.op(kind, self.name(kind), image, self.constant(FLOAT, (2,)))
        else:
            oper = self.b.op(kind, self.name(kind), image, ksize=ints(1, 2, 2, 1),
                             strides=ints(1, 1, 2, 1), padding=padding)
        self.values.append((output(self.b.op("Tanh", self.name("Tanh"), oper)), FLOAT))

    def step_wrong(self):
        """What both must refuse."""
        x, dtype = self.pick()
        kind, name = self.rng.randrange(9), self.name("wrong")
        b = self.b
        if kind == 0:
            b.op("NoSuchOp", name, x)
        elif kind == 1:
            b.op("Square", name)
        elif kind == 2:
            b.op("Square", name, x, x)
        elif kind == 3:
            b.op("Cast", name, x)
        elif kind == 4:
            b.op("MatMul", name, x, output(self.constant(INT32, (2, 2))))
        elif kind == 5:
            b.op("Square", name, x, T=("Type", BOOL))
        elif kind == 6:
            b.op("Reshape", name, x, output(self.constant(INT32, (1,), [7919])))
        elif kind == 7:
            b.op("Square", b.name(x.oper), x)
        else:
            b.op("Conv2D", name, x, x, strides=ints(1, 1, 1, 1), padding=("String", b"ODD", 3))

    STEPS = (("value", 2), ("unary", 6), ("binary", 6), ("matmul", 2), ("reduce", 2), ("shape", 2),
             ("join", 2), ("part", 3), ("cast", 1), ("choose", 1), ("net", 1), ("wrong", 1))

    def grow(self):
        names, weights = zip(*self.STEPS)
        for _ in range(self.rng.randrange(5, 40)):
            step = self.rng.choices(names, weights)[0]
            try:
                getattr(self, f"step_{step}")()
                self.codes.append((step, "OK"))
            except Refused as refused:
                self.codes.append((step, refused.code, refused.message))

    def ends(self):
        """The ys, and the xs: constants and inner values that a y needs, mostly."""
        found = [o for o, t in self.values if t in FLOATS]
        ys = self.rng.sample(found[-4:], min(len(found[-4:]), self.rng.randrange(1, 3)))
        xs = self.rng.sample(found, min(len(found), self.rng.randrange(1, 4)))
        return ys, xs


def without_needed(b, ys, graph):
    """The ys that no other y needs: TensorFlow's library leaves out how the others depend on such a
    y."""
    def needed_by(y):
        seen, stack = set(), [name.split(":")[0] for name in graph[b.name(y.oper)][2]]
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack += [source.split(":")[0] for source in graph[name][2]]
        return seen
    needed = set().union(*map(needed_by, ys)) if ys else set()
    return [y for y in ys if b.name(y.oper) not in needed][:1 if len(
        {y.oper for y in ys}) < len(ys) else None]


# What the formulas of TensorFlow's library make of some graphs that it accepted: slices and pads
# with a size of -1, a Split into one part, a softmax of a vector.
REFUSED_BY_FORMULA = ("{{node gradients/", "Value for attr 'N' of 1 must be at least minimum 2")


@functools.lru_cache()
def plain_config():
    """A step runs the graph as it is: TensorFlow's optimizer leaves out nodes that would fail."""
    from tensorflow.core.protobuf import config_pb2
    config = config_pb2.ConfigProto()
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config.SerializeToString()


class Outcome:
    """What one library made of a seed."""

    def __init__(self, seed, library, where):
        self.b = Builder(library)
        self.script, self.where = Script(seed, self.b), where
        self.script.grow()
        self.graph = normal_graph_def(self.b.graph_def())
        self.shapes = {self.b.name(o.oper) + f":{o.index}": self.b.shape(o)
                       for o, _ in self.script.values}
        self.grads, self.refused = [], None
        self.ys, self.xs = self.script.ends()
        self.ys = without_needed(self.b, self.ys, self.graph[0])
        try:
            if self.ys:
                self.grads = self.b.gradients(self.ys, self.xs)
        except Refused as refused:
            self.refused = refused

    def run(self):
        session = self.b.session(self.where, plain_config())
        try:
            return "OK", self.b.run(session, [*self.ys, *(g for g in self.grads if g)])
        except Refused as refused:
            return refused.code, refused.message
        finally:
            self.b.call("TF_CloseSession", session)
            self.b.call("TF_DeleteSession", session)


def values_differ(ours, theirs):
    for k, ((dtype, dims, values), (our_dtype, our_dims, our_values)) in enumerate(
            zip(theirs, ours)):
        if (dtype, dims) != (our_dtype, our_dims):
            return f"value {k}: {our_dtype} {our_dims}, TensorFlow has {dtype} {dims}"
        largest = max([1, *(abs(v) for v in values if math.isfinite(v))])
        for a, b in zip(our_values, values):
            if a == b or (math.isnan(a) and math.isnan(b)):
                continue
            if not abs(a - b) <= TOLERANCE * max(largest, 1):
                return f"value {k}: {a!r}, TensorFlow has {b!r}"
    return None


def compare(seed):
    """(what differs or None, were gradients compared?)"""
    theirs, ours = Outcome(seed, tensorflow(), ""), Outcome(seed, millrace(), target())
    try:
        for k, (mine, other) in enumerate(zip(ours.script.codes, theirs.script.codes)):
            if mine[:2] != other[:2]:
                return f"step {k}: {mine}, TensorFlow has {other}", False
        if ours.graph != theirs.graph:
            names = [n for n in {**ours.graph[0], **theirs.graph[0]}
                     if ours.graph[0].get(n) != theirs.graph[0].get(n)]
            return f"the GraphDefs differ, first at {names[:1]}: " \
                f"{[ours.graph[0].get(n) for n in names[:1]]}, TensorFlow has " \
                f"{[theirs.graph[0].get(n) for n in names[:1]]}", False
        if ours.shapes != theirs.shapes:
            name = next(n for n in theirs.shapes if ours.shapes.get(n) != theirs.shapes[n])
            return f"shape of {name}: {ours.shapes.get(name)}, TensorFlow has " \
                f"{theirs.shapes[name]}", False
        if theirs.refused and ("No gradient defined" in theirs.refused.message or (
                not ours.refused
                and any(words in theirs.refused.message for words in REFUSED_BY_FORMULA))):
            return None, False
        if bool(theirs.refused) != bool(ours.refused) or (
                theirs.refused and theirs.refused.code != ours.refused.code):
            return f"gradients: {ours.refused}, TensorFlow has {theirs.refused}", False
        if [bool(g) for g in ours.grads] != [bool(g) for g in theirs.grads]:
            return f"gradients: {ours.grads}, TensorFlow has {theirs.grads}", False
        if not theirs.ys:
            return None, False
        (code, values), (our_code, our_values) = theirs.run(), ours.run()
        if code != our_code:
            return f"run: {our_code} {our_values}, TensorFlow has {code} {values}", False
        return (values_differ(our_values, values) if code == "OK" else None), code == "OK"
    finally:
        ours.b.close()
        theirs.b.close()


def main():
    parser = argparse.ArgumentParser(description="compare random graphs through both libraries")
    parser.add_argument("--long", action="store_true", help=f"{N_LONG} graphs, not {N_SAMPLE}")
    parser.add_argument("--n", type=int, help="the number of graphs")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--verbose", action="store_true", help="say which seed runs")
    arguments = parser.parse_args()
    n = arguments.n or (N_LONG if arguments.long else N_SAMPLE)
    passed = failed = skipped = 0
    for seed in range(arguments.first, arguments.first + n):
        if arguments.verbose:
            print("seed", seed, flush=True)
        difference, is_compared = compare(seed)
        if difference:
            print(f"FAIL seed {seed}: {difference}", flush=True)
        failed += bool(difference)
        passed += not difference
        skipped += not difference and not is_compared
    print(f"gradients of {passed - skipped} graphs were compared")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
