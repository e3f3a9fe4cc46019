"""Writes graphdefs.bin: GraphDefs made by TensorFlow: real programs, and broken graphs with what
TensorFlow 2.21's server answers.

Run once with the project's Python (.venv/bin/python tests/data/gen_graphdefs.py); the output is
committed. The file is a sequence of cases, each field with its length before it as a little-endian
32-bit number:
  name, status code (4 bytes), words that the message must hold (empty: success), GraphDef
"""
import os
import struct

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from google.protobuf import text_format

tf1 = tf.compat.v1
cases = []


def run(data):
    return struct.pack("<I", len(data)) + data


def add(name, graph_def, code=0, words=""):
    cases.append(run(name.encode()) + run(struct.pack("<I", code)) + run(words.encode())
                 + run(graph_def.SerializeToString(deterministic=True)))


def program(name, build):
    with tf.Graph().as_default() as graph:
        build()
        add(name, graph.as_graph_def())


def mlp():
    x = tf1.placeholder(tf.float32, [None, 16], name="x")
    y = tf1.placeholder(tf.int64, [None], name="y")
    w = tf1.get_variable("w", [16, 10], use_resource=False)
    b = tf1.get_variable("b", [10], use_resource=True, initializer=tf1.zeros_initializer())
    with tf1.device("/job:worker/task:0"):
        loss = tf.reduce_mean(tf1.nn.sparse_softmax_cross_entropy_with_logits(labels=y,
                logits=tf.matmul(x, w) + b))
    tf1.train.AdamOptimizer().minimize(loss, global_step=tf1.train.get_or_create_global_step())
    tf1.global_variables_initializer()
    tf1.train.Saver()
    tf1.summary.scalar("loss", loss)


def loops():
    tf1.disable_control_flow_v2()
    i, total = tf1.while_loop(lambda i, t: i < 10, lambda i,
                              t: (i + 1, t + tf1.while_loop(lambda j: j < i, lambda j: j + 1, [0])),
                              [0, 0])
    x = tf1.placeholder(tf.float32, [], name="x")
    tf1.gradients(tf1.while_loop(lambda v: v < 100, lambda v: v * 2, [x]), x)
    tf1.cond(x > 0, lambda: x, lambda: -x)
    tf1.enable_control_flow_v2()


def functions():
    tf1.enable_control_flow_v2()

    @tf.function
    def f(a, b):
        if tf.reduce_sum(a) > 0:
            return a * b
        for _ in tf.range(3):
            a += b
        return a

    x = tf1.placeholder(tf.float32, [2], name="x")
    tf1.gradients(f(x, 2.0), x)
    tf.map_fn(lambda v: v * 2, x)


def legacy_function():
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, tf.float32, func_name="AddTwice")
    def add_twice(a, b):
        return a + b + b, tf.shape(a)

    add_twice(tf.constant([1.0]), tf.constant([2.0]))


def queues():
    q = tf1.FIFOQueue(10, [tf.float32, tf.string], shapes=[[], [2]])
    q.enqueue([1.0, ["a", "b"]])
    q.dequeue_many(2)
    reader = tf1.TFRecordReader()
    reader.read(tf1.train.string_input_producer(["a.tfrecord"]))
    tf.io.parse_example(tf.constant(["x"]),
                        {"a": tf.io.FixedLenFeature([2], tf.float32, [1.0, 2.0]),
                         "b": tf.io.VarLenFeature(tf.int64)})
    tf.data.Dataset.range(10).map(lambda v: v * 2).batch(3)


program("mlp", mlp)
program("loops", loops)
program("functions", functions)
program("legacy function", legacy_function)
program("queues and datasets", queues)

A = ('node{name:"a" op:"Const" attr{key:"dtype" value{type:DT_FLOAT}} '
     'attr{key:"value" value{tensor{dtype:DT_FLOAT tensor_shape{} float_val:1}}}}')
T = 'attr{key:"T" value{type:DT_FLOAT}}'
VERSIONS = "versions{producer:2474}"
INVALID, NOT_FOUND, UNIMPLEMENTED = 3, 5, 12


def broken(name, text, code, words):
    add(name, text_format.Parse(text + ("" if "versions" in text else VERSIONS), tf1.GraphDef()),
        code, words)


def identity(inputs, attrs=T, name="n", op="Identity", more=""):
    return 'node{name:"%s" op:"%s" %s %s %s}' % (
        name, op, " ".join('input:"%s"' % i for i in inputs), attrs, more)


broken("sound", A + identity(["a"]), 0, "")
broken("the same control edge twice", A + 'node{name:"n" op:"NoOp" input:"^a" input:"^a"}', 0, "")
broken("an attr that the op does not have", A + identity(["a"], T + ' attr{key:"foo" value{i:3}}'),
       0, "")
broken("unknown op", A + identity(["a"], op="Nope"), NOT_FOUND,
       "Op type not registered 'Nope' in binary running on")
broken("our internal op", A + identity([], T + ' attr{key:"index" value{i:0}}', op="_MrFeed"),
       NOT_FOUND, "Op type not registered '_MrFeed'")
broken("unknown input", A + identity(["z"]), INVALID, "Node 'n': Unknown input node 'z'")
broken("missing attr", A + identity(["a"], ""), INVALID,
       "NodeDef missing attr 'T' from Op<name=Identity; signature=input:T -> output:T; "
       "attr=T:type>; NodeDef: {{node n}}")
S = ('node{name:"s" op:"Const" attr{key:"dtype" value{type:DT_STRING}} attr{key:"value" '
     'value{tensor{dtype:DT_STRING tensor_shape{}}}}}')
broken("type that is not allowed", S + identity(["s"], 'attr{key:"T" value{type:DT_STRING}}',
                                                op="Neg"), INVALID,
       "Value for attr 'T' of string is not in the list of allowed values: ")
broken("wrong type of an input", A + identity(["a"], 'attr{key:"T" value{type:DT_INT32}}',
                                              name="b"), INVALID,
       "Input 0 of node b was passed float from a:0 incompatible with expected int32.")
broken("too few inputs", A + identity(["a"], name="b", op="AddV2"), INVALID,
       "NodeDef expected inputs 'float, float' do not match 1 inputs specified; Op<name=AddV2; "
       "signature=x:T, y:T -> z:T;")
broken("too many inputs", A + identity(["a", "a"], name="b"), INVALID,
       "NodeDef expected inputs 'float' do not match 2 inputs specified")
broken("an output that is not there", A + identity(["a:3"], name="b"), INVALID,
       "Node 'b': Connecting to invalid output 3 of source node a which has 1 outputs.")
broken("one name twice", A + A, INVALID, "Node 'a' is not unique")
broken("cycle", identity(["b"], name="a") + identity(["a"], name="b"), INVALID,
       "2 nodes in a cycle")
broken("cycle of one", identity(["a"], name="a"), INVALID, "1 nodes in a cycle")
broken("cycle of control edges", identity(["b"], name="a", op="NoOp").replace('"b"', '"^b"')
       + 'node{name:"b" op:"NoOp" input:"^a"}', INVALID,
       "2 nodes in a cycle")
broken("name with a blank", A.replace('"a"', '"a b"'), INVALID,
       "Illegal op name 'a b'\n\t [[{{node a b}}]]")
broken("empty name", A.replace('"a"', '""'), INVALID, "Illegal op name ''")
broken("name that begins with _", A.replace('"a"', '"_a"'), INVALID, "Illegal op name '_a'")
broken("attr of the wrong kind", A + identity(["a"], 'attr{key:"T" value{i:3}}'), INVALID,
       "AttrValue had value with type 'int' when 'type' expected\n\t for attr 'T'\n\t; NodeDef: "
       "{{node n}}; Op<name=Identity;")
broken("attr without a value", A + identity(["a"], 'attr{key:"T" value{}}'), INVALID, "attr 'T'")
broken("placeholder attr outside of a function",
       A + identity(["a"], 'attr{key:"T" value{placeholder:"T"}}'), INVALID,
       "AttrValue had value with unexpected type 'placeholder'")
broken("int below its minimum", A + identity(["a"], T + ' attr{key:"N" value{i:0}}', op="AddN"),
       INVALID,
       "Value for attr 'N' of 0 must be at least minimum 1")
broken("list below its minimum",
       'node{name:"n" op:"FIFOQueueV2" attr{key:"component_types" value{list{}}}}', INVALID,
       "Length for attr 'component_types' of 0 must be at least minimum 1")
broken("string that is not allowed",
       A + identity(["a", "a"], T + ' attr{key:"strides" value{list{i:1 i:1 i:1 i:1}}} '
                                                  'attr{key:"padding" value{s:"FOO"}}',
                                                  op="Conv2D"), INVALID,
       "Value for attr 'padding' of \"FOO\" is not in the list of allowed values: \"SAME\", "
       "\"VALID\", \"EXPLICIT\"")
broken("value where a reference is wanted", A + identity(["a", "a"], op="Assign"), INVALID,
       "Input 0 of node n was passed float from a:0 incompatible with expected float_ref.")
broken("control edge before data", A + identity(["^a", "a"]), INVALID,
       "All control inputs must follow all data inputs\n\t [[{{node n}}]]")
broken("negative output", A + identity(["a:-1"]), INVALID,
       "Illegal op input name 'a:-1'\n\t [[{{node n}}]]")
broken("empty input", A + identity([""]), INVALID, "Illegal op input name ''")
broken("op of the past", A + identity(["a"] * 5,
                                      T
                                      + ' attr{key:"variance_epsilon" value{f:1}} '
                                        'attr{key:"scale_after_normalization" value{b:true}}',
                                      op="BatchNormWithGlobalNormalization"), UNIMPLEMENTED,
       "Op BatchNormWithGlobalNormalization is not available in GraphDef version 2474. It has been "
       "removed in version 9.")
broken("type 0", A + identity(["a"], 'attr{key:"T" value{type:DT_INVALID}}'), INVALID,
       "AttrValue has invalid DataType")
broken("reference type in an attr", A + identity(["a"], 'attr{key:"T" value{type:DT_FLOAT_REF}}'),
       INVALID,
       "AttrValue must not have reference type value of float_ref\n\t for attr 'T'")
broken("graph of the future", A + "versions{producer:9000 min_consumer:9000}", INVALID,
       "GraphDef min consumer version 9000 above current version 2474")
broken("very many outputs", A + identity(["a", "a"],
                                         T + ' attr{key:"num_split" value{i:1000000000}}',
                                         op="Split"), INVALID, "more than 65536")
broken("tensor of the wrong length", A.replace("float_val:1", 'tensor_content:"abc"'), INVALID,
       "tensor_content")

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "graphdefs.bin"), "wb") as out:
    for case in cases:
        out.write(case)
print(len(cases), "cases")
