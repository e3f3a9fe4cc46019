"""Requests that are wrong, byte by byte as TensorFlow's client would never send them: graphs,
feeds, fetches, attrs, shapes, resources, clusters of sessions.

A case is a list of calls, made one after the other on one session; run_wrong.py makes them against
TensorFlow's own servers and against ours, and every call must come to the same code, and name the
same node. Graphs are pieces of raw_clients.

    Create(graph, config)  Extend(graph)  Run(fetches, feeds, targets)
    Setup(feeds, fetches, targets)  Part(fetches, feeds)  Callable(feeds, fetches, targets)

    cases() yields (name, calls) or (name, calls, options). Options:
        words    a regular expression that both messages of the last call that fails must match
    EXPLAINED lists intended differences: our codes, our words, and the reason.
"""

from collections import namedtuple

import numpy as np
from raw_clients import (
    BOOL, FLOAT, INT32, RESOURCE, STRING, const, data, float_tensor, graph, int_tensor, node,
    number, tensor, type_attr)

Create = namedtuple("Create", "graph config", defaults=(b"",))
Extend = namedtuple("Extend", "graph version", defaults=(None,))
Run = namedtuple("Run", "fetches feeds targets", defaults=((), (), ()))
Setup = namedtuple("Setup", "feeds fetches targets", defaults=((), (), ()))
Part = namedtuple("Part", "fetches feeds", defaults=((), ()))
Callable = namedtuple("Callable", "feeds fetches targets", defaults=((), (), ()))

TARGET = "here:1"  # what the client says that it has dialled
INT64 = 9
F, I, S, B = type_attr(FLOAT), type_attr(INT32), type_attr(STRING), type_attr(BOOL)
PS, WORKER0, WORKER1 = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"


# ---- attrs ----


def a_int(value):
    return number(3, value)


def a_bool(value):
    return number(5, int(value))


def a_str(value):
    return data(2, value)


def a_shape(*dims):
    return data(7, b"".join(data(2, number(1, d)) for d in dims))


UNKNOWN_SHAPE = data(7, number(3, 1))


def a_tensor(value):
    return data(8, value)


def a_func(name):
    return data(10, data(1, name))


def a_strings(*values):
    return data(1, b"".join(data(2, v) for v in values))


def a_types(*types):
    return data(1, b"".join(number(6, t) for t in types))


def a_ints(*values):
    return data(1, b"".join(number(3, v) for v in values))


# ---- tensors ----


def floats(values, shape=None):
    array = np.array(values, np.float32)
    return tensor(FLOAT, array.shape if shape is None else shape, array.tobytes())


def ints(values, shape=None, dtype=INT32):
    array = np.array(values, np.int32 if dtype == INT32 else np.int64)
    return tensor(dtype, array.shape if shape is None else shape, array.tobytes())


def bools(values):
    array = np.array(values, bool)
    return tensor(BOOL, array.shape, array.tobytes())


def strings(*values):
    return number(1, STRING) + data(2, data(2, number(1, len(values)))) + b"".join(
        data(8, v) for v in values)


def one_string(value):
    return number(1, STRING) + data(2, b"") + data(8, value)


def fconst(name, values, device=""):
    return const(name, floats(values), FLOAT, device)


def iconst(name, values, device="", dtype=INT32):
    return const(name, ints(values, dtype=dtype), dtype, device)


def hidden(name, value, dtype=FLOAT):
    """A value whose shape nobody knows before the step."""
    return [const(f"{name}/value", value, dtype),
            node(name, "PlaceholderWithDefault", (f"{name}/value",), dtype=type_attr(dtype),
                 shape=UNKNOWN_SHAPE)]


def wrong_graph(name, *nodes, run="e:0", **options):
    """A graph that is refused when it comes or in the step that fetches `run`."""
    return name, [Create(graph(*nodes)), Run([run])], options


def x(shape=None, name="x"):
    return node(name, "Placeholder", dtype=F,
                **({} if shape is None else {"shape": a_shape(*shape)}))


ONE = fconst("one", 1.0)
TWO = fconst("two", [1.0, 2.0])
NEG = node("e", "Neg", ("one",), T=F)


def graphs():
    yield wrong_graph("unknown_op", ONE, node("e", "NoSuchOperation", ("one",)),
                      words="NoSuchOperation")
    yield wrong_graph("no_op_name", ONE, node("e", "", ("one",)))
    yield wrong_graph("same_name_twice", ONE, NEG, NEG,
                      words="[Dd]uplicate|already exists|not unique")
    yield wrong_graph("input_is_missing", node("e", "Neg", ("nobody",), T=F), words="nobody")
    yield wrong_graph("output_is_missing", ONE, node("e", "Neg", ("one:3",), T=F), words="one")
    yield wrong_graph("cycle", node("e", "Neg", ("f",), T=F), node("f", "Neg", ("e",), T=F),
                      words="cycle")
    yield wrong_graph("cycle_of_one", node("e", "Neg", ("e",), T=F), words="cycle")
    yield wrong_graph("control_cycle", ONE, node("e", "Neg", ("one", "^f"), T=F),
                      node("f", "Neg", ("e",), T=F), words="cycle")
    yield wrong_graph("no_attr", ONE, node("e", "Neg", ("one",)), words="'T'|attr")
    yield wrong_graph("attr_of_another_kind", ONE, node("e", "Neg", ("one",), T=a_int(1)))
    yield wrong_graph("attr_not_allowed", ONE, node("e", "Neg", ("one",), T=B))
    # ignored
    yield wrong_graph("attr_not_known", ONE, node("e", "Neg", ("one",), T=F, colour=a_str("red")))
    yield wrong_graph("attr_below_minimum", ONE, node("e", "Pack", T=F, N=a_int(0)),
                      words="minimum|at least")
    yield wrong_graph("attr_enum", ONE, node("e", "MaxPool", ("one",), T=F,
                                             ksize=a_ints(1, 1, 1, 1), strides=a_ints(1, 1, 1, 1),
                                             padding=a_str("SOME")), words="padding|SOME")
    yield wrong_graph("attr_list_too_short", node("e", "Assert", (), T=a_types()),
                      words="T|[Ii]nput")
    yield wrong_graph("attr_huge_n", ONE, node("e", "Pack", ("one",), T=F, N=a_int(2**40)))
    yield wrong_graph("too_few_inputs", ONE, node("e", "AddV2", ("one",), T=F),
                      words="[Ii]nput|expected")
    yield wrong_graph("too_many_inputs", ONE, node("e", "Neg", ("one", "one"), T=F),
                      words="[Ii]nput|expected")
    yield wrong_graph("types_do_not_fit", ONE, iconst("two", 2),
                      node("e", "AddV2", ("one", "two"), T=F),
                      words="int32.*incompatible.*float|two")
    yield wrong_graph("name_with_space", ONE, node("e e", "Neg", ("one",), T=F),
                      node("e", "Neg", ("one",), T=F), words="e e")
    yield wrong_graph("name_empty", ONE, node("", "Neg", ("one",), T=F),
                      node("e", "Neg", ("one",), T=F))
    yield wrong_graph("name_with_colon", ONE, node("a:0", "Neg", ("one",), T=F),
                      node("e", "Neg", ("one",), T=F), words="a:0")
    yield wrong_graph("control_before_data", ONE, TWO, node("e", "Neg", ("^two", "one"), T=F))
    yield wrong_graph("input_not_a_name", ONE, node("e", "Neg", ("one:0:0",), T=F))
    yield wrong_graph("input_negative", ONE, node("e", "Neg", ("one:-1",), T=F))
    yield wrong_graph("input_empty", ONE, node("e", "Neg", ("",), T=F))
    yield wrong_graph("device_unparsable", ONE, node("e", "Neg", ("one",), "job worker", T=F),
                      words="job worker")
    yield wrong_graph("device_of_no_job", ONE,
                      node("e", "Neg", ("one",), "/job:nobody/task:0", T=F), words="nobody")
    yield wrong_graph("device_of_no_task", ONE,
                      node("e", "Neg", ("one",), "/job:worker/task:7", T=F), words="task:7")
    yield wrong_graph("device_of_no_type", ONE,
                      node("e", "Neg", ("one",), "/job:worker/task:1/device:GPU:0", T=F),
                      words="GPU")
    yield wrong_graph("with_nobody", ONE, node("e", "Neg", ("one",), T=F,
                                               _class=a_strings("loc:@nobody")))
    yield wrong_graph("with_one_elsewhere", fconst("one", 1.0, PS),
                      node("e", "Neg", ("one",), WORKER1, T=F, _class=a_strings("loc:@one")))
    yield wrong_graph("class_of_another_kind", ONE,
                      node("e", "Neg", ("one",), T=F, _class=a_str("loc:@one")))
    yield wrong_graph("const_of_another_type",
                      node("e", "Const", dtype=F, value=a_tensor(int_tensor(1))))
    yield wrong_graph("const_without_value", node("e", "Const", dtype=F), words="value")
    yield wrong_graph("const_too_short", node("e", "Const", dtype=F,
                                              value=a_tensor(floats([1.0], (3,)))), run="e:0")
    yield wrong_graph("const_negative", node("e", "Const", dtype=F,
                                             value=a_tensor(floats([1.0], (-1,)))))
    yield wrong_graph("const_too_large", node("e", "Const", dtype=F,
                                              value=a_tensor(floats([1.0], (2**40, 2**40)))))
    yield wrong_graph("const_of_no_type", node("e", "Const", dtype=type_attr(99),
                                               value=a_tensor(floats([1.0]))))
    for name, versions in (("too_new", number(1, 99999) + number(2, 99999)),
                           ("too_old", number(1, 0)),
                           ("bad_consumer", number(1, 2129) + number(3, 2129))):
        yield name, [Create(graph(ONE, NEG) + data(4, versions)), Run(["e:0"])], {}
    yield wrong_graph("unknown_function", ONE,
                      node("e", "PartitionedCall", ("one",), Tin=a_types(FLOAT),
                           Tout=a_types(FLOAT), f=a_func("nobody")), words="nobody")
    yield wrong_graph("function_without_name", ONE,
                      node("e", "PartitionedCall", ("one",), Tin=a_types(FLOAT),
                           Tout=a_types(FLOAT), f=a_func("")))


# ---- a library ----


def arg(name, dtype):
    return data(1, name) + number(3, dtype)


def function(name, args, results, nodes, ret):
    signature = data(1, name) + b"".join(data(2, arg(*a)) for a in args) + b"".join(
        data(3, arg(*r)) for r in results)
    body = data(1, signature) + b"".join(data(3, n) for n in nodes) + b"".join(
        data(4, data(1, k) + data(2, v)) for k, v in ret.items())
    return data(2, data(1, body))


def call(name, op="PartitionedCall", tin=(FLOAT,), tout=(FLOAT,), inputs=("one",)):
    return node("e", op, inputs, Tin=a_types(*tin), Tout=a_types(*tout), f=a_func(name))


NEG_BODY = [node("n", "Neg", ("a",), T=F)]


def functions():
    good = function("f", [("a", FLOAT)], [("r", FLOAT)], NEG_BODY, {"r": "n:y:0"})
    yield "function/good", [Create(graph(ONE, call("f")) + good), Run(["e:0"])]

    def wrong(name, *library, made=None, **options):
        return f"function/{name}", [Create(graph(ONE, made or call("f")) + b"".join(library)),
                                    Run(["e:0"])], options

    yield wrong("input_type", function("f", [("a", INT32)], [("r", INT32)],
                                       [node("n", "Neg", ("a",), T=I)], {"r": "n:y:0"}))
    yield wrong("output_type", good, made=call("f", tout=(INT32,)))
    yield wrong("too_many_inputs", good, made=call("f", tin=(FLOAT, FLOAT), inputs=("one", "one")))
    yield wrong("too_few_outputs", good, made=call("f", tout=()))
    yield wrong("return_of_nothing", function("f", [("a", FLOAT)], [("r", FLOAT)], NEG_BODY,
                                              {"r": "nobody:y:0"}))
    yield wrong("no_return", function("f", [("a", FLOAT)], [("r", FLOAT)], NEG_BODY, {}))
    yield wrong("return_of_another_type",
                function("f", [("a", FLOAT)], [("r", INT32)], NEG_BODY, {"r": "n:y:0"}),
                made=call("f", tout=(INT32,)))
    yield wrong("input_of_nothing", function("f", [("a", FLOAT)], [("r", FLOAT)],
                                             [node("n", "Neg", ("b",), T=F)], {"r": "n:y:0"}))
    yield wrong("unknown_op", function("f", [("a", FLOAT)], [("r", FLOAT)],
                                       [node("n", "NoSuchOperation", ("a",))], {"r": "n:y:0"}))
    yield wrong("two_of_a_name", good, function("f", [("a", FLOAT)], [("r", FLOAT)],
                                                [node("n", "Abs", ("a",), T=F)], {"r": "n:y:0"}))
    yield wrong("name_of_an_op", function("Neg", [("a", FLOAT)], [("r", FLOAT)], NEG_BODY,
                                          {"r": "n:y:0"}), made=NEG)
    yield wrong("calls_itself", function("f", [("a", FLOAT)], [("r", FLOAT)],
                                         [node("n", "PartitionedCall", ("a",), Tin=a_types(FLOAT),
                                               Tout=a_types(FLOAT), f=a_func("f"))],
                                         {"r": "n:output:0"}))
    yield wrong("division_inside", function("f", [("a", INT32)], [("r", INT32)],
                                            [iconst("zero", 0), node("n", "FloorDiv",
                                                    ("a", "zero:output:0"), T=I)], {"r": "n:z:0"}),
                made=call("f", tin=(INT32,), tout=(INT32,), inputs=("seven",)), **{})


# ---- feeds, fetches, targets ----

SUM = graph(node("x", "Placeholder", dtype=F, shape=a_shape(2)), ONE,
            node("y", "AddV2", ("x", "one"), T=F), node("z", "NoOp"),
            node("s", "Placeholder", dtype=S))
TWO_FLOATS = float_tensor(1, 2)


def requests():
    def on_sum(name, *calls, **options):
        return f"request/{name}", [Create(SUM), *calls,
                                   Run(["y:0"], [("x:0", TWO_FLOATS)])], options

    feed = [("x:0", TWO_FLOATS)]
    yield on_sum("nothing", Run())
    for text in ("nobody:0", "nobody", "y:1", "y:-1", "y:", "y:00", "y:0:0", ":0", "", "^y", "z",
                 "z:0", "y", "y:99999999999"):
        yield on_sum(f"fetch {text!r}", Run([text], feed))
    for text in ("nobody", "z:0", "z:7", "^z", "", "z ", "y"):
        yield on_sum(f"target {text!r}", Run([], feed, [text]))
    for text in ("nobody:0", "x", "x:1", "x:-1", "^x", "", "z:0", "one:0"):
        yield on_sum(f"feed {text!r}", Run(["y:0"], [(text, TWO_FLOATS)]))
    yield on_sum("no feed", Run(["y:0"]), words="You must feed a value for placeholder tensor 'x'")
    yield on_sum("fed twice", Run(["y:0"], feed + feed), words="more than once")
    yield on_sum("fed twice by two names", Run(["y:0"], feed + [("x", TWO_FLOATS)]))
    yield on_sum("fed and fetched", Run(["x:0"], feed), words="both fed and fetched")
    yield on_sum("fed and fetched by two names", Run(["x"], feed))
    yield on_sum("fetched twice", Run(["y:0", "y:0"], feed))
    yield on_sum("fed what nobody needs", Run(["one:0"], feed))
    yield on_sum("a shape that does not fit", Run(["y:0"], [("x:0", float_tensor(1, 2, 3))]))
    yield on_sum("another type", Run(["y:0"], [("x:0", ints([1, 2]))]), words="int32|expected")
    yield on_sum("strings for floats", Run(["y:0"], [("x:0", strings("a", "b"))]))
    yield on_sum("an inner endpoint of another type",
                 Run(["y:0"], [("one:0", int_tensor(1)), *feed]))
    yield on_sum("a tensor that is cut short",
                 Run(["y:0"], [("x:0", tensor(FLOAT, (2,), b"1234"))]))
    yield on_sum("a tensor of no type", Run(["y:0"], [("x:0", tensor(0, (2,), b"12345678"))]))
    yield on_sum("a tensor of an unknown type",
                 Run(["y:0"], [("x:0", tensor(77, (2,), b"12345678"))]))
    yield on_sum("a tensor of negative size", Run(["y:0"], [("x:0", tensor(FLOAT, (-2,), b""))]))
    yield on_sum("a tensor of unknown rank",
                 Run(["y:0"], [("x:0", number(1, FLOAT) + data(2, number(3, 1)))]))
    yield on_sum("a tensor that is no message", Run(["y:0"], [("x:0", b"\xff\xff\xff")]))
    yield on_sum("too many dimensions", Run(["y:0"], [("x:0", tensor(FLOAT, (1,) * 300, b"1234"))]))
    yield on_sum("an empty message", Run(["y:0"], [("x:0", b"")]))
    yield on_sum("strings that are cut short",
                 Run(["s:0", "y:0"], [("s:0", number(1, STRING) + data(2, data(2, number(1, 3)))
                                       + data(4, b"\x09"))]))
    yield on_sum("parts without a setup", Part(["y:0"], feed))
    yield on_sum("setup of nothing", Setup())
    yield on_sum("setup of unknown names", Setup(["nobody:0"], ["y:0"]))
    yield on_sum("setup of an unknown fetch", Setup(["x:0"], ["nobody:0"]))
    yield on_sum("part that is not there", Setup(["x:0"], ["y:0"]), Part(["one:0"], feed))
    yield on_sum("part that is not ready", Setup(["x:0"], ["y:0"]), Part(["y:0"]))
    yield on_sum("part with another feed", Setup(["x:0"], ["y:0"]),
                 Part([], [("one:0", floats(1.0))]))
    yield on_sum("part fed twice", Setup(["x:0", "one:0"], ["y:0"]), Part([], feed), Part([], feed))
    yield on_sum("part of another type", Setup(["x:0"], ["y:0"]),
                 Part(["y:0"], [("x:0", ints([1, 2]))]))
    yield on_sum("part after the end", Setup(["x:0"], ["y:0"]), Part(["y:0"], feed), Part(["y:0"]))
    yield on_sum("callable of unknown names", Callable(["nobody:0"], ["y:0"]))
    yield on_sum("callable of an unknown fetch", Callable(["x:0"], ["nobody:0"]))
    yield on_sum("callable of nothing", Callable())
    yield on_sum("callable of an unknown target", Callable(["x:0"], ["y:0"], ["nobody"]))


# ---- clusters of sessions ----


def clusters():
    def job(name, *tasks):
        """A JobDef; each task is an entry of the map, as bytes."""
        return data(1, data(1, name) + b"".join(data(2, task) for task in tasks))

    def task(index, address):
        return number(1, index) + data(2, address)

    def brings(name, *jobs, **options):
        """ConfigProto.cluster_def."""
        config = data(14, b"".join(jobs))
        return (f"cluster/{name}", [Create(SUM, config), Run(["y:0"], [("x:0", TWO_FLOATS)])],
                options)

    here, other = task(0, TARGET), task(1, "127.0.0.1:1")
    yield brings("a job twice", job("a", here), job("b", other), job("b", task(2, "127.0.0.1:2")))
    for address in ("nonsense", "", "127.0.0.1:", "127.0.0.1:port"):
        yield brings(f"address {address!r}", job("a", here), job("b", task(0, address)))
    for name in ("", "b c", "b/c"):
        yield brings(f"job {name!r}", job("a", here), job(name, other))
    yield brings("a task of a negative number", job("a", here),
                 job("b", number(1, -1) + data(2, "127.0.0.1:1")))
    yield brings("the target twice", job("a", here), job("b", here))
    yield brings("no task", job("a"))
    yield brings("a job that is cut short", b"\x0a\x09\x0a\x01a")


# ---- a graph that grows ----


def growing():
    more = graph(node("w", "Neg", ("y",), T=F))
    feed = [("x:0", TWO_FLOATS)]
    yield "extend/good", [Create(SUM), Extend(more), Run(["w:0"], feed)]
    yield "extend/same_name", [Create(SUM), Extend(graph(ONE)), Run(["y:0"], feed)], {
        "words": "already exist|[Dd]uplicate|one"}
    yield "extend/name_twice", [Create(SUM), Extend(more), Extend(more), Run(["w:0"], feed)]
    yield "extend/missing_input", [Create(SUM), Extend(graph(node("v", "Neg", ("w",), T=F))),
                                   Extend(more), Run(["w:0"], feed)], {"words": "w"}
    yield "extend/part_is_wrong", [Create(SUM), Extend(more + graph(node("v", "Nope", ("w",)))),
                                   Run(["w:0"], feed), Extend(more), Run(["w:0"], feed)]
    yield "extend/old_version", [Create(SUM), Extend(more, 1), Extend(graph(fconst("q", 1.0)), 1),
                                 Run(["q:0"])]
    yield "extend/nothing", [Create(SUM), Extend(b""), Run(["y:0"], feed)]
    yield "extend/no_graph", [Create(SUM), Extend(b"\xff\xff\xff"), Run(["y:0"], feed)]
    yield "create/no_graph", [Create(b"\xff\xff\xff")]
    yield "create/nothing", [Create(b""), Run(["y:0"]), Extend(SUM), Run(["y:0"], feed)]
    other = function("f", [("a", FLOAT)], [("r", FLOAT)], [node("n", "Abs", ("a",), T=F)],
                     {"r": "n:y:0"})
    good = function("f", [("a", FLOAT)], [("r", FLOAT)], NEG_BODY, {"r": "n:y:0"})
    yield "extend/another_function_of_the_name", [
        Create(graph(ONE) + good), Extend(graph(call("f")) + other), Run(["e:0"])]
    yield "extend/same_function_again", [Create(graph(ONE) + good), Extend(graph(call("f")) + good),
                                         Run(["e:0"])]


# ---- shapes that cannot fit ----


def shapes():
    wide, tall = fconst("wide", np.ones([2, 3])), fconst("tall", np.ones([4, 5]))

    def wrong(name, *nodes, **options):
        return wrong_graph(f"shape/{name}", *nodes, **options)

    yield wrong("matmul", wide, tall, node("e", "MatMul", ("wide", "tall"), T=F),
                words="Matrix size-incompatible")
    yield wrong("matmul_rank", wide, ONE, node("e", "MatMul", ("wide", "one"), T=F))
    yield wrong("batch_matmul", fconst("p", np.ones([2, 2, 3])), fconst("q", np.ones([3, 3, 2])),
                node("e", "BatchMatMulV2", ("p", "q"), T=F))
    yield wrong("add", TWO, wide, node("e", "AddV2", ("two", "wide"), T=F),
                words="[Ii]ncompatible shapes")
    yield wrong("concat", wide, tall, iconst("axis", 0),
                node("e", "ConcatV2", ("wide", "tall", "axis"), N=a_int(2), T=F, Tidx=I),
                words="[Dd]imension")
    yield wrong("concat_axis", wide, iconst("axis", 7),
                node("e", "ConcatV2", ("wide", "wide", "axis"), N=a_int(2), T=F, Tidx=I),
                words="ange")
    yield wrong("pack", wide, tall, node("e", "Pack", ("wide", "tall"), N=a_int(2), T=F),
                words="[Ss]hapes")
    yield wrong("reshape", wide, iconst("to", [4]),
                node("e", "Reshape", ("wide", "to"), T=F, Tshape=I), words="reshape")
    yield wrong("reshape_two_unknown", wide, iconst("to", [-1, -1]),
                node("e", "Reshape", ("wide", "to"), T=F, Tshape=I), words="one")
    yield wrong("reshape_rest", wide, iconst("to", [-1, 4]),
                node("e", "Reshape", ("wide", "to"), T=F, Tshape=I), words="multiple")
    yield wrong("transpose", wide, iconst("by", [0, 0]),
                node("e", "Transpose", ("wide", "by"), T=F, Tperm=I))
    yield wrong("transpose_size", wide, iconst("by", [0]),
                node("e", "Transpose", ("wide", "by"), T=F, Tperm=I))
    yield wrong("bias", wide, ONE, node("e", "BiasAdd", ("wide", "one"), T=F))
    yield wrong("bias_size", wide, TWO, node("e", "BiasAdd", ("wide", "two"), T=F), words="biases")
    yield wrong("conv_rank", wide, tall, node("e", "Conv2D", ("wide", "tall"), T=F,
                                              strides=a_ints(1, 1, 1, 1), padding=a_str("SAME")))
    image, filter_ = fconst("image", np.ones([1, 4, 4, 3])), fconst("filter", np.ones([2, 2, 2, 5]))
    yield wrong("conv_depth", image, filter_,
                node("e", "Conv2D", ("image", "filter"), T=F, strides=a_ints(1, 1, 1, 1),
                     padding=a_str("SAME")))
    yield wrong("conv_strides", image, filter_,
                node("e", "Conv2D", ("image", "filter"), T=F, strides=a_ints(1, 1),
                     padding=a_str("SAME")))
    yield wrong("pool_window", image, node("e", "MaxPool", ("image",), T=F,
                                           ksize=a_ints(1, 9, 9, 1), strides=a_ints(1, 1, 1, 1),
                                           padding=a_str("VALID")))
    yield wrong("pool_zero", image, node("e", "MaxPool", ("image",), T=F, ksize=a_ints(1, 0, 0, 1),
                                         strides=a_ints(1, 1, 1, 1), padding=a_str("VALID")))
    yield wrong("pool_stride_zero", image, node("e", "AvgPool", ("image",), T=F,
                                                ksize=a_ints(1, 2, 2, 1),
                                                strides=a_ints(1, 0, 0, 1), padding=a_str("VALID")))
    yield wrong("squeeze", wide, node("e", "Squeeze", ("wide",), T=F, squeeze_dims=a_ints(0)),
                words="squeeze")
    yield wrong("squeeze_axis", wide, node("e", "Squeeze", ("wide",), T=F, squeeze_dims=a_ints(5)))
    yield wrong("expand", wide, iconst("axis", 9),
                node("e", "ExpandDims", ("wide", "axis"), T=F, Tdim=I))
    yield wrong("sum_axis", wide, iconst("axis", 4),
                node("e", "Sum", ("wide", "axis"), T=F, Tidx=I, keep_dims=a_bool(False)),
                words="[Ii]nvalid reduction dimension")
    yield wrong("gather", wide, iconst("at", 7), iconst("axis", 0),
                node("e", "GatherV2", ("wide", "at", "axis"), Tparams=F, Tindices=I, Taxis=I),
                words="not in")
    yield wrong("slice", wide, iconst("at", [0, 0]), iconst("size", [3, 1]),
                node("e", "Slice", ("wide", "at", "size"), T=F, Index=I), words="Expected size")
    yield wrong("slice_rank", wide, iconst("at", [0]), iconst("size", [1]),
                node("e", "Slice", ("wide", "at", "size"), T=F, Index=I))
    yield wrong("split", wide, iconst("axis", 1),
                node("e", "Split", ("axis", "wide"), T=F, num_split=a_int(2)), words="evenly")
    yield wrong("unpack", wide, node("e", "Unpack", ("wide",), T=F, num=a_int(3), axis=a_int(0)))
    yield wrong("unpack_axis", wide, node("e", "Unpack", ("wide",), T=F, num=a_int(3),
                                          axis=a_int(2)))
    yield wrong("tile", wide, iconst("by", [2]),
                node("e", "Tile", ("wide", "by"), T=F, Tmultiples=I))
    yield wrong("tile_negative", TWO, iconst("by", [-2]),
                node("e", "Tile", ("two", "by"), T=F, Tmultiples=I))
    yield wrong("pad", wide, iconst("by", [[1, 1]]),
                node("e", "Pad", ("wide", "by"), T=F, Tpaddings=I))
    yield wrong("pad_negative", TWO, iconst("by", [[-1, 1]]),
                node("e", "Pad", ("two", "by"), T=F, Tpaddings=I))
    yield wrong("broadcast", TWO, iconst("to", [3]),
                node("e", "BroadcastTo", ("two", "to"), T=F, Tidx=I))
    yield wrong("fill_negative", iconst("dims", [-3]), ONE,
                node("e", "Fill", ("dims", "one"), T=F, index_type=I))
    yield wrong("fill_huge", iconst("dims", [2**31 - 1] * 4), ONE,
                node("e", "Fill", ("dims", "one"), T=F, index_type=I))
    yield wrong("fill_value", iconst("dims", [3]), TWO,
                node("e", "Fill", ("dims", "two"), T=F, index_type=I))
    yield wrong("range", *[iconst(n, v) for n, v in (("from", 0), ("to", 5), ("by", 0))],
                node("e", "Range", ("from", "to", "by"), Tidx=I), words="delta")
    yield wrong("range_sign", *[iconst(n, v) for n, v in (("from", 0), ("to", 5), ("by", -1))],
                node("e", "Range", ("from", "to", "by"), Tidx=I))
    yield wrong("one_hot", iconst("at", [1]), iconst("depth", -1), ONE, fconst("off", 0.0),
                node("e", "OneHot", ("at", "depth", "one", "off"), T=F, TI=I, axis=a_int(-1)))
    yield wrong("one_hot_axis", iconst("at", [1]), iconst("depth", 3), ONE, fconst("off", 0.0),
                node("e", "OneHot", ("at", "depth", "one", "off"), T=F, TI=I, axis=a_int(5)))
    yield wrong("scatter", iconst("at", [[9]]), ONE, TWO, iconst("to", [3]), fconst("value", [1.0]),
                node("e", "ScatterNd", ("at", "value", "to"), T=F, Tindices=I))
    yield wrong("segment", TWO, iconst("ids", [1, 0]),
                node("e", "SegmentSum", ("two", "ids"), T=F, Tindices=I))
    yield wrong("segment_size", TWO, iconst("ids", [0]),
                node("e", "SegmentSum", ("two", "ids"), T=F, Tindices=I))
    yield wrong("cholesky", wide, node("e", "Cholesky", ("wide",), T=F))
    yield wrong("cholesky_sign", fconst("m", [[-1.0]]), node("e", "Cholesky", ("m",), T=F))
    yield wrong("inverse", fconst("m", np.zeros([2, 2])), node("e", "MatrixInverse", ("m",), T=F),
                words="not invertible")
    yield wrong("diag", ONE, node("e", "DiagPart", ("one",), T=F))
    yield wrong("top_k", TWO, iconst("k", 3),
                node("e", "TopKV2", ("two", "k"), T=F, sorted=a_bool(True)), words="k")
    yield wrong("in_top_k", fconst("p", [[1.0, 2.0]]), iconst("t", [0, 1]),
                node("e", "InTopK", ("p", "t"), T=I, k=a_int(1)))
    yield wrong("sparse_labels", fconst("p", [[1.0, 2.0]]), iconst("t", [0, 1]),
                node("e", "SparseSoftmaxCrossEntropyWithLogits", ("p", "t"), T=F, Tlabels=I))
    yield wrong("cross_entropy", wide, tall,
                node("e", "SoftmaxCrossEntropyWithLogits", ("wide", "tall"), T=F))
    yield wrong("where", bools_const("c", [True, False]), wide, tall,
                node("e", "Select", ("c", "wide", "tall"), T=F))
    yield wrong("einsum", wide, tall, node("e", "Einsum", ("wide", "tall"), T=F, N=a_int(2),
                                           equation=a_str("ij,jk->ik")))
    yield wrong("einsum_equation", wide, tall,
                node("e", "Einsum", ("wide", "tall"), T=F, N=a_int(2), equation=a_str("ij,jk=ik")))
    yield wrong("space_to_depth", image, node("e", "SpaceToDepth", ("image",), T=F,
                                              block_size=a_int(3)))
    yield wrong("depth_to_space", image, node("e", "DepthToSpace", ("image",), T=F,
                                              block_size=a_int(2)))
    yield wrong("resize", image, iconst("size", [0, 3]),
                node("e", "ResizeBilinear", ("image", "size"), T=F))
    yield wrong("lrn", wide, node("e", "LRN", ("wide",), T=F))
    yield wrong("bitcast", TWO, node("e", "Bitcast", ("two",), T=F, type=type_attr(18)))
    yield wrong("reverse", wide, iconst("axis", [2]),
                node("e", "ReverseV2", ("wide", "axis"), T=F, Tidx=I))
    yield wrong("reverse_twice", wide, iconst("axis", [0, 0]),
                node("e", "ReverseV2", ("wide", "axis"), T=F, Tidx=I))
    yield wrong("reverse_sequence", wide, iconst("lengths", [9, 9], dtype=INT64),
                node("e", "ReverseSequence", ("wide", "lengths"), T=F, Tlen=type_attr(INT64),
                     seq_dim=a_int(1), batch_dim=a_int(0)))
    yield wrong("cumsum", wide, iconst("axis", 2),
                node("e", "Cumsum", ("wide", "axis"), T=F, Tidx=I))
    yield wrong("arg_max", wide, iconst("axis", 2),
                node("e", "ArgMax", ("wide", "axis"), T=F, Tidx=I, output_type=type_attr(INT64)))
    yield wrong("strided_slice", TWO, iconst("from", [5]), iconst("to", [6]), iconst("by", [1]),
                node("e", "StridedSlice", ("two", "from", "to", "by"), T=F, Index=I,
                     shrink_axis_mask=a_int(1)), words="out of bounds")
    yield wrong("strided_slice_zero", TWO, iconst("from", [0]), iconst("to", [2]),
                iconst("by", [0]), node("e", "StridedSlice", ("two", "from", "to", "by"), T=F,
                                        Index=I), words="non-zero")
    yield wrong("strided_slice_rank", TWO, iconst("from", [0, 0]), iconst("to", [1, 1]),
                iconst("by", [1, 1]), node("e", "StridedSlice", ("two", "from", "to", "by"), T=F,
                                           Index=I))
    yield wrong("linspace", ONE, fconst("to", 2.0), iconst("n", 0),
                node("e", "LinSpace", ("one", "to", "n"), T=F, Tidx=I))
    yield wrong("string_split", const("t", strings("a b"), STRING),
                const("d", strings("a", "b"), STRING),
                node("e", "StringSplit", ("t", "d"), skip_empty=a_bool(True)))
    yield wrong("decode_raw", const("t", strings("abc"), STRING),
                node("e", "DecodeRaw", ("t",), out_type=F), words="multiple|length")
    yield wrong("regex", const("t", strings("abc"), STRING), const("p", one_string("(("), STRING),
                const("r", one_string(""), STRING), node("e", "RegexReplace", ("t", "p", "r")))
    yield wrong("to_number", const("t", strings("1", "x"), STRING),
                node("e", "StringToNumber", ("t",), out_type=F),
                words="StringToNumberOp could not correctly convert string: x")
    yield wrong("base64", const("t", strings("?"), STRING), node("e", "DecodeBase64", ("t",)))
    yield wrong("jpeg", const("t", one_string("no picture"), STRING),
                node("e", "DecodeJpeg", ("t",)))
    yield wrong("image_gif", const("t", one_string("GIF89a"), STRING),
                node("e", "DecodeGif", ("t",)))
    yield wrong("csv", const("t", strings("1,2"), STRING), const("d", floats([0.0]), FLOAT),
                node("e", "DecodeCSV", ("t", "d"), OUT_TYPE=a_types(FLOAT)))
    yield wrong("parse_tensor", const("t", one_string(b"\xff"), STRING),
                node("e", "ParseTensor", ("t",), out_type=F))
    yield wrong("parse_tensor_type", const("t", one_string(ints([1])), STRING),
                node("e", "ParseTensor", ("t",), out_type=F), words="[Tt]ype mismatch")
    yield wrong("substr", const("t", one_string("abc"), STRING), iconst("p", 7), iconst("n", 1),
                node("e", "Substr", ("t", "p", "n"), T=I))
    yield wrong("unique", wide, node("e", "Unique", ("wide",), T=F, out_idx=I))
    yield wrong("sparse_to_dense", iconst("at", [[0], [0]]), iconst("to", [2]), TWO,
                fconst("rest", 0.0), node("e", "SparseToDense", ("at", "to", "two", "rest"), T=F,
                                          Tindices=I, validate_indices=a_bool(True)),
                words="repeated")
    yield wrong("dynamic_stitch", iconst("at", [0, 1]), ONE,
                node("e", "DynamicStitch", ("at", "one"), T=F, N=a_int(1)))
    yield wrong("dynamic_partition", TWO, iconst("to", [0, 5]),
                node("e", "DynamicPartition", ("two", "to"), T=F, num_partitions=a_int(2)),
                words="not in")
    yield wrong("random_shape", iconst("dims", [-1]),
                node("e", "RandomUniform", ("dims",), T=I, dtype=F))
    yield wrong("multinomial", TWO, iconst("n", 3), node("e", "Multinomial", ("two", "n"), T=F))
    yield wrong("check_numerics", fconst("nan", np.nan),
                node("e", "CheckNumerics", ("nan",), T=F, message=a_str("look here")),
                words="look here : Tensor had NaN values")


def bools_const(name, values):
    return const(name, bools(values), BOOL)


# ---- control flow ----


def enter(name, src, frame="frame", is_constant=False, T=F):
    return node(name, "Enter", (src,), T=T, frame_name=a_str(frame),
                is_constant=a_bool(is_constant), parallel_iterations=a_int(10))


def control_flow():
    def wrong(name, *nodes, **options):
        return wrong_graph(f"flow/{name}", *nodes, **options)

    true = bools_const("true", True)
    yield wrong("switch_vector", ONE, bools_const("p", [True, False]),
                node("e", "Switch", ("one", "p"), T=F))
    yield wrong("switch_dead", ONE, true, node("s", "Switch", ("one", "true"), T=F),
                node("e", "Neg", ("s:0",), T=F), words="[Rr]etval.*dead|was not assigned|dead")
    yield wrong("merge_all_dead", ONE, true, node("s", "Switch", ("one", "true"), T=F),
                node("e", "Merge", ("s", "s"), T=F, N=a_int(2)))
    yield wrong("enter_fetched", ONE, enter("e", "one"))
    yield wrong("exit_without_enter", ONE, node("e", "Exit", ("one",), T=F))
    yield wrong("next_without_enter", ONE, node("e", "NextIteration", ("one",), T=F))
    yield wrong("frames_meet", ONE, enter("p", "one", "a"), enter("q", "one", "b"),
                node("sum", "AddV2", ("p", "q"), T=F), node("e", "Exit", ("sum",), T=F),
                words="frame")
    yield wrong("frame_and_root_meet", ONE, enter("p", "one", "a"),
                node("sum", "AddV2", ("p", "one"), T=F), node("e", "Exit", ("sum",), T=F),
                words="frame")
    yield wrong("loop_without_a_condition", ONE, enter("p", "one"),
                node("m", "Merge", ("p", "n"), T=F, N=a_int(2)),
                node("n", "NextIteration", ("m",), T=F), node("e", "Exit", ("m",), T=F))
    yield wrong("parallel_zero", ONE, node("p", "Enter", ("one",), T=F, frame_name=a_str("f"),
                                           parallel_iterations=a_int(0)),
                node("e", "Exit", ("p",), T=F))
    yield wrong("no_frame_name", ONE, node("p", "Enter", ("one",), T=F, frame_name=a_str("")),
                node("e", "Exit", ("p",), T=F))
    yield wrong("cond_of_floats", ONE, node("e", "LoopCond", ("one",)))
    good = function("f", [("a", FLOAT)], [("r", FLOAT)], NEG_BODY, {"r": "n:y:0"})
    other = function("g", [("a", FLOAT)], [("r", INT32)],
                     [node("n", "Cast", ("a",), SrcT=F, DstT=I)], {"r": "n:y:0"})

    def functional(name, op, inputs, library, *more, **attrs):
        return f"flow/{name}", [Create(graph(ONE, true, *more, node("e", op, inputs, **attrs))
                                       + library), Run(["e:0"])], {}

    types = {"Tin": a_types(FLOAT), "Tout": a_types(FLOAT)}
    yield functional("if_good", "If", ("true", "one"), good, Tcond=B, then_branch=a_func("f"),
                     else_branch=a_func("f"), **types)
    yield functional("if_unknown_branch", "If", ("true", "one"), good, Tcond=B,
                     then_branch=a_func("f"), else_branch=a_func("nobody"), **types)
    yield functional("if_branches_differ", "If", ("true", "one"), good + other, Tcond=B,
                     then_branch=a_func("f"), else_branch=a_func("g"), **types)
    yield functional("while_type", "While", ("one",), good, T=a_types(FLOAT), cond=a_func("f"),
                     body=a_func("f"))
    yield functional("while_body", "While", ("one",), good + other, T=a_types(FLOAT),
                     cond=a_func("g"), body=a_func("g"))
    yield functional("case_range", "Case", ("at", "one"), good, iconst("at", 9),
                     branches=data(1, data(9, data(1, "f"))), **types)


# ---- resources ----


def var(name="v", dtype=FLOAT, shape=UNKNOWN_SHAPE, device=PS, shared="v"):
    return node(name, "VarHandleOp", (), device, dtype=type_attr(dtype), shape=shape,
                shared_name=a_str(shared), container=a_str(""))


def resources():
    def wrong(name, nodes, *calls, **options):
        return f"resource/{name}", [Create(graph(*nodes)), *calls], options

    read = node("r", "ReadVariableOp", ("v",), PS, dtype=F)
    assign = node("a", "AssignVariableOp", ("v", "one"), PS, dtype=F)
    yield wrong("uninitialized", [var(), read], Run(["r:0"]),
                words="(is uninitialized|[Cc]ould not find variable|does not exist)")
    yield wrong("read_another_type",
                [var(), ONE, assign, node("r", "ReadVariableOp", ("v",), PS, dtype=I)],
                Run([], [], ["a"]), Run(["r:0"]))
    yield wrong("assign_another_type", [var(), iconst("one", 1),
                                        node("a", "AssignVariableOp", ("v", "one"), PS, dtype=I)],
                Run([], [], ["a"]))
    yield wrong("assign_another_shape", [var(shape=a_shape(2)), ONE,
                                         node("a", "AssignVariableOp", ("v", "one"), PS, dtype=F,
                                              validate_shape=a_bool(True))], Run([], [], ["a"]))
    yield wrong("add_another_shape", [var(), ONE, TWO, assign,
                                      node("g", "AssignAddVariableOp", ("v", "two"), PS, dtype=F)],
                Run([], [], ["a"]), Run([], [], ["g"]), words="shape")
    yield wrong("destroyed", [var(), ONE, assign, read,
                              node("d", "DestroyResourceOp", ("v",), PS,
                                   ignore_lookup_error=a_bool(False))], Run([], [], ["a"]),
                Run([], [], ["d"]), Run(["r:0"]), Run([], [], ["d"]))
    yield wrong("gather_range",
                [var(), TWO, node("a", "AssignVariableOp", ("v", "two"), PS, dtype=F),
                 iconst("at", [0, 7], PS), node("r", "ResourceGather", ("v", "at"), PS, dtype=F,
                                                Tindices=I)], Run([], [], ["a"]), Run(["r:0"]),
                words="7")
    yield wrong("scatter_range",
                [var(), TWO, node("a", "AssignVariableOp", ("v", "two"), PS, dtype=F),
                 iconst("at", [7], PS), fconst("u", [1.0], PS),
                 node("s", "ResourceScatterAdd", ("v", "at", "u"), PS, dtype=F, Tindices=I)],
                Run([], [], ["a"]), Run([], [], ["s"]), words="7")
    yield wrong("fetch_a_handle", [var()], Run(["v:0"]))
    yield wrong("feed_a_handle", [var(), read], Run(["r:0"], [("v:0", tensor(RESOURCE, (), b""))]))
    yield wrong("feed_floats_for_a_handle", [var(), read], Run(["r:0"], [("v:0", float_tensor(1))]))
    queue = node("q", "FIFOQueueV2", (), PS, component_types=a_types(FLOAT), capacity=a_int(2),
                 shared_name=a_str("q"), container=a_str(""),
                 shapes=data(1, data(7, data(2, number(1, 2)))))
    yield wrong("a_queue_is_no_variable", [queue, node("r", "ReadVariableOp", ("q",), PS, dtype=F)],
                Run(["r:0"]))
    yield wrong("a_variable_is_no_queue",
                [var(), node("d", "QueueDequeueV2", ("v",), PS, component_types=a_types(FLOAT))],
                Run(["d:0"]))
    yield wrong("dequeue_another_type",
                [queue, node("d", "QueueDequeueV2", ("q",), PS, component_types=a_types(INT32))],
                Run(["d:0"]))
    yield wrong("enqueue_another_type", [queue, iconst("i", [1, 2], PS),
                                         node("p", "QueueEnqueueV2", ("q", "i"), PS,
                                              Tcomponents=a_types(INT32))], Run([], [], ["p"]))
    yield wrong("enqueue_another_shape", [queue, fconst("i", [1.0, 2.0, 3.0], PS),
                                          node("p", "QueueEnqueueV2", ("q", "i"), PS,
                                               Tcomponents=a_types(FLOAT))], Run([], [], ["p"]),
                words="[Ss]hape")
    yield wrong("enqueue_too_many", [queue, fconst("i", [1.0, 2.0], PS),
                                     node("p", "QueueEnqueueV2", ("q", "i", "i"), PS,
                                          Tcomponents=a_types(FLOAT, FLOAT))], Run([], [], ["p"]))
    close = node("c", "QueueCloseV2", ("q",), PS, cancel_pending_enqueues=a_bool(False))
    take = node("d", "QueueDequeueV2", ("q",), PS, component_types=a_types(FLOAT))
    put = [fconst("i", [1.0, 2.0], PS), node("p", "QueueEnqueueV2", ("q", "i"), PS,
                                             Tcomponents=a_types(FLOAT))]
    yield wrong("dequeue_closed", [queue, close, take], Run([], [], ["c"]), Run(["d:0"]),
                words="is closed and has insufficient elements")
    yield wrong("enqueue_closed", [queue, close, *put], Run([], [], ["c"]), Run([], [], ["p"]),
                words="is closed")
    yield wrong("close_twice", [queue, close], Run([], [], ["c"]), Run([], [], ["c"]))
    yield wrong("dequeue_many_unknown_shape",
                [node("q", "FIFOQueueV2", (), PS, component_types=a_types(FLOAT), capacity=a_int(2),
                      shared_name=a_str("q2")), iconst("n", 2, PS),
                 node("d", "QueueDequeueManyV2", ("q", "n"), PS, component_types=a_types(FLOAT))],
                Run(["d:0"]))
    yield wrong("dequeue_negative", [queue, iconst("n", -1, PS),
                                     node("d", "QueueDequeueManyV2", ("q", "n"), PS,
                                          component_types=a_types(FLOAT))], Run(["d:0"]))
    yield wrong("queue_capacity_differs",
                [queue, node("q2", "FIFOQueueV2", (), PS, component_types=a_types(FLOAT),
                             capacity=a_int(9), shared_name=a_str("q"), container=a_str(""),
                             shapes=data(1, data(7, data(2, number(1, 2))))),
                 node("s", "QueueSizeV2", ("q",), PS), node("s2", "QueueSizeV2", ("q2",), PS)],
                Run(["s:0"]), Run(["s2:0"]), words="capacity")
    table = node("t", "HashTableV2", (), PS, key_dtype=S, value_dtype=type_attr(INT64),
                 shared_name=a_str("t"))
    key, value = const("k", strings("a", "b"), STRING, PS), const(
        "w", ints([1, 2], dtype=INT64), INT64, PS)
    find = node("f", "LookupTableFindV2", ("t", "k", "rest"), PS, Tin=S, Tout=type_attr(INT64))
    rest = const("rest", ints(-1, dtype=INT64), INT64, PS)
    fill = node("i", "LookupTableImportV2", ("t", "k", "w"), PS, Tin=S, Tout=type_attr(INT64))
    init = node("i", "InitializeTableV2", ("t", "k", "w"), PS, Tkey=S, Tval=type_attr(INT64))
    yield wrong("table_uninitialized", [table, key, rest, find], Run(["f:0"]),
                words="Table not initialized")
    yield wrong("table_of_other_sizes", [table, key, const("w", ints([1], dtype=INT64), INT64, PS),
                                         init], Run([], [], ["i"]))
    yield wrong("table_same_key_twice", [table, const("k", strings("a", "a"), STRING, PS), value,
                                         init], Run([], [], ["i"]),
                words="different value for same key|[Dd]uplicate")
    yield wrong("table_import", [table, key, value, fill], Run([], [], ["i"]))
    yield wrong("table_other_types", [table, iconst("k", [1], PS), rest,
                                      node("f", "LookupTableFindV2", ("t", "k", "rest"), PS, Tin=I,
                                           Tout=type_attr(INT64))], Run(["f:0"]))
    yield wrong("table_shared_with_others",
                [table, node("t2", "HashTableV2", (), PS, key_dtype=type_attr(INT64), value_dtype=S,
                             shared_name=a_str("t")), node("s", "LookupTableSizeV2", ("t",), PS),
                 node("s2", "LookupTableSizeV2", ("t2",), PS)], Run(["s:0"]), Run(["s2:0"]))
    ref = node("v", "VariableV2", (), PS, dtype=F, shape=a_shape(2), shared_name=a_str("rv"))
    yield wrong("ref_uninitialized", [ref, node("e", "Neg", ("v",), PS, T=F)], Run(["e:0"]),
                words="uninitialized value")
    yield wrong("ref_assign_shape", [ref, ONE, node("a", "Assign", ("v", "one"), PS, T=F)],
                Run(["a:0"]), words="shapes")
    yield wrong("ref_assign_type", [ref, iconst("i", [1, 2], PS),
                                    node("a", "Assign", ("v", "i"), PS, T=I)], Run(["a:0"]))
    other = [node("v2", "VariableV2", (), PS, dtype=I, shape=a_shape(2), shared_name=a_str("rv")),
             iconst("i", [1, 2], PS), node("b", "Assign", ("v2", "i"), PS, T=I)]
    yield wrong("ref_shared_with_another_type",
                [ref, TWO, node("a", "Assign", ("v", "two"), PS, T=F), *other], Run(["a:0"]),
                Run(["b:0"]), Run(["a:0"]))
    yield wrong("shared_with_another_type", [var(), ONE, assign, var("v2", INT32),
                                             iconst("i", 1, PS), node("b", "AssignVariableOp",
                                                     ("v2", "i"), PS, dtype=I)], Run([], [], ["a"]),
                Run([], [], ["b"]))
    yield wrong("shared_by_a_queue",
                [var(), ONE, assign, node("q", "FIFOQueueV2", (), PS,
                                          component_types=a_types(FLOAT), shared_name=a_str("v")),
                 node("s", "QueueSizeV2", ("q",), PS)], Run([], [], ["a"]), Run(["s:0"]))
    yield wrong("ref_of_a_value", [TWO, node("a", "Assign", ("two", "two"), PS, T=F)], Run(["a:0"]))
    yield wrong("ref_scatter", [ref, TWO, node("a", "Assign", ("v", "two"), PS, T=F),
                                iconst("at", [5], PS), fconst("u", [1.0], PS),
                                node("s", "ScatterUpdate", ("v", "at", "u"), PS, T=F, Tindices=I)],
                Run(["a:0"]), Run(["s:0"]), words="5")
    array = [iconst("n", 2, PS), node("ta", "TensorArrayV3", ("n",), PS, dtype=F,
                                      element_shape=UNKNOWN_SHAPE)]
    at = iconst("at", 5, PS)
    yield wrong("array_write_range",
                [*array, at, ONE, node("w", "TensorArrayWriteV3", ("ta", "at", "one", "ta:1"), PS,
                                       T=F)], Run(["w:0"]), words="5")
    yield wrong("array_read_nothing", [*array, iconst("at", 1, PS),
                                       node("r", "TensorArrayReadV3", ("ta", "at", "ta:1"), PS,
                                            dtype=F)], Run(["r:0"]), words="1")
    yield wrong("array_type", [*array, iconst("at", 1, PS), iconst("i", 1, PS),
                               node("w", "TensorArrayWriteV3", ("ta", "at", "i", "ta:1"), PS, T=I)],
                Run(["w:0"]))
    yield wrong("array_negative", [iconst("n", -2, PS), array[1]], Run(["ta:1"]))
    yield wrong("stack_empty",
                [iconst("n", 2, PS), node("st", "StackV2", ("n",), PS, elem_type=F,
                                          stack_name=a_str("")),
                 node("p", "StackPopV2", ("st",), PS, elem_type=F)], Run(["p:0"]), words="empty")
    yield wrong("file_missing", [const("name", one_string("nobody/nowhere"), STRING),
                                 node("r", "ReadFile", ("name",))], Run(["r:0"]))
    yield wrong("restore_missing", [const("name", one_string("nobody/nowhere"), STRING),
                                    const("k", strings("a"), STRING),
                                    const("s", strings(""), STRING),
                                    node("r", "RestoreV2", ("name", "k", "s"),
                                         dtypes=a_types(FLOAT))], Run(["r:0"]))
    yield wrong("iterator_uninitialized", [node("it", "IteratorV2", (), PS, shared_name=a_str("it"),
                                                container=a_str(""), output_types=a_types(FLOAT),
                                                output_shapes=data(1, data(7, b""))),
                                           node("g", "IteratorGetNext", ("it",), PS,
                                                output_types=a_types(FLOAT),
                                                output_shapes=data(1, data(7, b"")))], Run(["g:0"]),
                words="has not been initialized")
    yield wrong("assert", [bools_const("no", False), const("m", one_string("the data"), STRING),
                           node("e", "Assert", ("no", "m"), T=a_types(STRING))], Run([], [], ["e"]),
                words="assertion failed: .the data")
    yield wrong("abort_on_error_ends_all", [bools_const("no", False),
                                            const("m", one_string("over"), STRING),
                                            node(
                                                "e", "Assert", ("no", "m"), WORKER1,
                                                T=a_types(STRING)), node("x", "Placeholder", (), PS,
                                                        dtype=F), node("y", "Neg", ("x", "^e"), PS,
                                                                T=F)],
                Run(["y:0"], [("x:0", float_tensor(1))]), words="over")


SILENT = ("TensorFlow's server takes both spellings for one, and then never answers the next step "
          "that uses the other")
UNCHECKED = ("TensorFlow's server sends the value on unchecked and fails inside, INTERNAL; in "
             "process it says INVALID_ARGUMENT, too")
BROKEN = ("TensorFlow's server says INTERNAL for what is no message; the bytes are the client's "
          "mistake")
LATER = ("what has no state is placed, and functions are looked up, for the step that needs them: "
         "other steps go on")
CONNECTS = "TensorFlow connects first, and then finds no such device"
EXPLAINED = {
    "no_attr": ((3,), "missing attr 'T'",
                "TensorFlow's client says INVALID_ARGUMENT, too; its server looks the attr up "
                "unchecked"),
    "with_one_elsewhere": ((0, 3), "colocat", LATER),
    "unknown_function": ((0, 3), "Failed to find function", LATER),
    "function_without_name": ((0, 3), "Failed to find function", LATER),
    "function/input_type": ((0, 3), "int32",
                            "the function is inlined: the node that does not fit is named, inside "
                            "the call"),
    "function/input_of_nothing": ((0, 3), "'b' of 'n' in function 'f' is not found",
                                  "the call is named besides the function's node"),
    "function/output_type": ((0, 3), "int32 is wanted", UNCHECKED),
    "request/fetch 'y:00'": ((0, 0, 0), "", SILENT),
    "request/fetch 'y'": ((0, 0, 0), "", SILENT),
    "request/feed 'x'": ((0, 0, 0), "", SILENT),
    "request/fed twice by two names": ((0, 3, 0), "more than once",
                                       "TensorFlow's server takes one of the two"),
    "request/fed and fetched by two names": ((0, 3, 0), "both fed and fetched",
                                             "TensorFlow's server does not see that x is x:0, and "
                                             "misses the feed"),
    "request/another type": ((0, 3, 0), "float but int32 is provided", UNCHECKED),
    "request/strings for floats": ((0, 3, 0), "float but string is provided", UNCHECKED),
    "request/an inner endpoint of another type": (
        (0, 3, 0), "float but int32 is provided", UNCHECKED),
    "request/part of another type": ((0, 0, 3, 0), "float but int32 is provided", UNCHECKED),
    "request/a tensor of unknown rank": ((0, 3, 0), "no rank", "TensorFlow takes it for a scalar"),
    "request/a tensor that is no message": ((0, 3, 0), "cannot be read", BROKEN),
    **{f"cluster/job {name!r}": ((3,), "is not a job name", CONNECTS)
       for name in ("", "b c", "b/c")},
    "cluster/a task of a negative number": ((3,), "-1 is not the number of a task", CONNECTS),
    "cluster/no task": ((0, 0), "", "a cluster without tasks is none; TensorFlow wants its target "
                                    "in the list"),
    "cluster/a job that is cut short": ((3,), "Malformed ConfigProto.cluster_def", BROKEN),
    "extend/no_graph": ((0, 3, 0), "cannot be read", BROKEN),
    "create/no_graph": ((3,), "cannot be read", BROKEN),
    "resource/ref_shared_with_another_type": (
        (0, 0, 3, 0), "does not match declared output type",
        "TensorFlow says INTERNAL, which is for a server's own broken invariants"),
    "flow/switch_dead": ((0, 3), r"Retval\[0\] does not have value",
                         "in process TensorFlow says this, too; its server INTERNAL"),
    "flow/merge_all_dead": ((0, 3), r"Retval\[0\] does not have value",
                            "in process TensorFlow says this, too; its server INTERNAL"),
    "flow/enter_fetched": ((0, 3), "inside a loop", "TensorFlow waits for ever"),
    "flow/parallel_zero": ((0, 3), "must be positive",
                           "TensorFlow takes it, and aborts or waits for ever in a loop"),
    "flow/next_without_enter": ((0, 3), "outside of any loop",
                                "TensorFlow lets the step itself have iterations"),
    "flow/loop_without_a_condition": ((0, 3), "two iterations", "TensorFlow iterates for ever"),
    "flow/if_branches_differ": ((0, 3), "int32 where float is wanted",
                                "TensorFlow does not look at the branch that is not taken"),
    "flow/while_body": ((0, 3), "int32 where float is wanted",
                        "the call is named; TensorFlow names a node that it has made"),
    "resource/feed_a_handle": ((0, 3), "no resource handle",
                               "TensorFlow takes no bytes for a handle of no name"),
    "resource/feed_floats_for_a_handle": ((0, 3), "resource but float is provided", UNCHECKED),
}


def cases():
    for family in (graphs, functions, requests, clusters, growing, shapes, control_flow, resources):
        for case in family():
            name, calls, options = case if len(case) == 3 else (*case, {})
            yield name, calls, {**options, **({"ours": EXPLAINED[name]} if name in EXPLAINED
                                              else {})}
