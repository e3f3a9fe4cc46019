"""Cases of the parsing family: bytes, CSV, tensors' protos, compressed data, fingerprints, Examples
and SequenceExamples."""

import gzip
import itertools
import zlib

import numpy
import oracle
import tensorflow as tf
import tf_kernels

R = tf.raw_ops


def strings(values):
    out = numpy.empty(len(values), object)
    out[:] = values
    return out


def flatten(out):
    if isinstance(out, tf.Tensor):
        return [out]
    return [t for part in out for t in flatten(part)] if isinstance(out, (list, tuple)) else []


def case(op, inputs, without=(), **attrs):
    """without: outputs that are not compared, by number."""
    def build():
        wrapped = {k: [oracle.const(x) for x in v] if isinstance(v, list) else oracle.const(v)
                   for k, v in inputs.items()}
        return [t for i, t in enumerate(flatten(getattr(R, op)(**wrapped, **attrs))) if i
                not in without]

    return build


def raws():
    rng = numpy.random.default_rng(1)
    for dtype, little in itertools.product(tf_kernels.cpu_dtypes("DecodeRaw", "out_type"),
                                           (True, False)):
        size = tf.as_dtype(dtype).size
        data = (lambda n: bytes(rng.integers(0, 2, n, "uint8"))) if dtype == "bool" else rng.bytes
        for label, values in (
            ("three", strings([data(size * 3), data(size * 3)])), ("one", strings([data(size)])),
            ("empty", strings([b"", b""])), ("none", strings([])),
            ("scalar", numpy.array(data(size * 2), object)),
            ("matrix", strings([data(size)] * 4).reshape(2, 2)),
            ("lengths", strings([data(size), data(size * 2)])),
            ("odd", strings([data(size * 2 + 1)])), ("no rows", strings([]).reshape(0, 3)),
        ):  # fmt: skip
            yield f"DecodeRaw/{dtype}/{little}/{label}", case(
                "DecodeRaw", {"bytes": values}, out_type=dtype, little_endian=little)
    for dtype, little in itertools.product(tf_kernels.cpu_dtypes("DecodePaddedRaw", "out_type"),
                                           (True, False)):
        size = tf.as_dtype(dtype).size
        # fmt: skip
        for values, fixed in itertools.product((strings([rng.bytes(size * 3), rng.bytes(size)]),
                                                strings(
                                                    [b"", rng.bytes(size * 9),
                                                            rng.bytes(size * 2 + 1)]), strings([]),
                                                numpy.array(rng.bytes(size), object),
                                                strings([b"a"] * 4).reshape(2, 2)),
                                               (size, size * 4, size * 3 + 1, 0, -size)):
            inputs = {"input_bytes": values, "fixed_length": numpy.int32(fixed)}
            if not little and size > 1 and any(len(v) % size or len(v) < fixed
                                               for v in values.ravel()):
                continue  # TensorFlow leaves what it did not swap as it was in memory
            yield f"DecodePaddedRaw/{dtype}/{little}/{values.shape}/{fixed}", case(
                "DecodePaddedRaw", inputs, out_type=dtype, little_endian=little)
    yield "DecodePaddedRaw/vector", case("DecodePaddedRaw",
                                         {"input_bytes": strings([b"ab"]),
                                          "fixed_length": numpy.array([2, 4], "int32")},
                                         out_type="uint8")


def csvs():
    plain = [b"1,2.5,x", b"3,,y z", b",4,"]
    rows = (
        plain, [b'1,2,"a,b"', b'"4","5","say ""hi"""'], [b"1,2,\n"], [b"1,2"], [b"1,2,3,4"],
        [b'1,2,a"b'], [b'1,2,"a'], [b'1,2,"a"b'], [b"x,2,y"], [b"1,x,y"], [b"99999999999,1,a"],
        [b" 1 , 2 ,  z "], [b"1,2,a\r\n"], [b"\n1,2,b"], [b""], [b",,"],
        [b"1,nan,NA"], [b"1,inf,c\0d"], [b'"",1,""'], [b'1,2,"x\ny"'], [b"1;2;3"], [b'1,2,"'],
        [b'1,2,""'], [b"1,1e400,a"], [b"0x10,1,a"], [],
    )  # fmt: skip
    for values, (ints, floats) in itertools.product(
        rows, (("int32", "float32"), ("int64", "float64"))):
        # fmt: skip
        for label, defaults in (("defaults", [numpy.array([7], ints), numpy.array([0.5], floats),
                                              strings([b"d"])]), ("required",
                                                      [numpy.array([], ints),
                                                              numpy.array([], floats),
                                                              strings([])]), ("scalars",
                                                                      [numpy.array(7, ints),
                                                                              numpy.array(
                                                                                  0.5, floats),
                numpy.array(b"d", object)])):
            inputs = {"records": strings(values), "record_defaults": defaults}
            yield f"DecodeCSV/{values}/{ints}/{label}", case("DecodeCSV", inputs)
    defaults = [numpy.array([7], "int32"), strings([b"d"])]
    for values, attrs in (
        ([b"1;a"], {"field_delim": ";"}), ([b'1,"a'], {"use_quote_delim": False}),
        ([b"NA,NA", b"1,"], {"na_value": "NA"}),
        ([b"0,1,2,a,4", b"0,1,2"], {"select_cols": [1, 3]}),
        ([b"0,1,2,a,4"], {"select_cols": [0, 4]}), ([b'0,1,2,a,"4'], {"select_cols": [1, 3]}),
        ([b"0,1"], {"select_cols": [1, 3]}),
        ([b"1,a"], {"select_cols": [3, 1]}), ([b"1,a"], {"select_cols": [1, 1]}),
        ([b"1,a"], {"select_cols": [1]}), ([b"1,a"], {"select_cols": [-1, 2]}),
        ([b"1,a"], {"field_delim": ""}), ([b"1,a"], {"field_delim": ",,"}),
        ([b"1 a", b"2 "], {"field_delim": " "}), ([b"1,2,"], {"select_cols": [0, 2]}),
        ([b'1\t"q"'], {"field_delim": "\t"}), ([b"7,"], {"na_value": "7"}),
    ):  # fmt: skip
        yield f"DecodeCSV/attrs/{values}/{attrs}", case(
            "DecodeCSV", {"records": strings(values), "record_defaults": defaults}, **attrs)
    yield "DecodeCSV/matrix", case("DecodeCSV",
                                   {"records": strings([b"1,a", b"2,b"]).reshape(2, 1),
                                    "record_defaults": defaults})
    yield "DecodeCSV/scalar", case("DecodeCSV",
                                   {"records": numpy.array(b"1,a", object),
                                    "record_defaults": defaults})
    yield "DecodeCSV/two defaults", case("DecodeCSV",
                                         {"records": strings([b"1,a"]),
                                          "record_defaults": [
                                              numpy.array([7, 8], "int32"), strings([b"d"])]})
    yield "DecodeCSV/matrix default", case("DecodeCSV",
                                           {"records": strings([b"1,a"]),
                                            "record_defaults": [
                                                numpy.array([[7]], "int32"), strings([b"d"])]})


def tensors():
    rng = numpy.random.default_rng(3)
    for dtype in tf_kernels.cpu_dtypes("SerializeTensor"):
        if dtype in ("resource", "variant"):
            continue
        for shape in ((), (3,), (2, 0), (2, 3, 4)):
            value = oracle.sample(rng, dtype, shape)
            yield f"SerializeTensor/{dtype}/{shape}", case("SerializeTensor", {"tensor": value})
            proto = tf.make_tensor_proto(value, tf.as_dtype(dtype), shape).SerializeToString()
            yield f"ParseTensor/{dtype}/{shape}", case(
                "ParseTensor", {"serialized": numpy.array(proto, object)}, out_type=dtype)
    good = tf.make_tensor_proto([1.0, 2.0]).SerializeToString()
    for label, value in (("dtype", numpy.array(good, object)),
                         ("garbage", numpy.array(b"\xff\xff", object)),
                         ("empty", numpy.array(b"", object)),
                         ("cut", numpy.array(good[:-3], object)), ("vector", strings([good]))):
        yield f"ParseTensor/wrong/{label}", case(
            "ParseTensor", {"serialized": value}, out_type="int32" if label == "dtype"
            else "float32")

    texts = [b"", b"a", b"hello " * 1000, rng.bytes(100000)]
    for kind, compress in (("", bytes), ("ZLIB", zlib.compress), ("GZIP", gzip.compress)):
        yield f"DecodeCompressed/{kind}", case("DecodeCompressed",
                                               {"bytes": strings([compress(t)
                                                       for t in texts]).reshape(2, 2)},
                                               compression_type=kind)
        yield f"DecodeCompressed/{kind}/scalar", case(
            "DecodeCompressed", {"bytes": numpy.array(compress(b"abc"), object)},
            compression_type=kind)
        yield f"DecodeCompressed/{kind}/none", case(
            "DecodeCompressed", {"bytes": strings([])}, compression_type=kind)
        yield f"DecodeCompressed/{kind}/garbage", case(
            "DecodeCompressed", {"bytes": strings([b"garbage"])}, compression_type=kind)
        # Of data that are cut short TensorFlow gives what there is, without an error; ours is
        # DATA_LOSS.
    yield "DecodeCompressed/no such", case("DecodeCompressed", {"bytes": strings([b""])},
                                           compression_type="LZ4")

    method = numpy.array(b"farmhash64", object)
    for dtype in ("float32", "int64", "uint8", "bool", "complex128", "string", "bfloat16"):
        for shape in ((3,), (2, 3), (2, 1), (0,), (2, 0), (2, 2, 2), ()):
            if dtype == "string" and shape == (2, 0):
                continue  # TensorFlow reads beyond the row
            yield f"Fingerprint/{dtype}/{shape}", case(
                "Fingerprint", {"data": oracle.sample(rng, dtype, shape), "method": method})
    yield "Fingerprint/method", case("Fingerprint",
                                     {"data": numpy.zeros(2),
                                      "method": numpy.array(b"md5", object)})
    yield "Fingerprint/method vector", case("Fingerprint",
                                            {"data": numpy.zeros(2),
                                             "method": strings([b"farmhash64"])})


# ---- Examples ----


def feature(values):
    if values is None:
        return tf.train.Feature()
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**features):
    return tf.train.Example(features=tf.train.Features(feature={k: feature(v) for k,
            v in features.items()})).SerializeToString()


def sequence(context, lists):
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={k: feature(v) for k, v in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list={k: tf.train.FeatureList(
            feature=[feature(v) for v in steps]) for k, steps in lists.items()}),
    ).SerializeToString()


def unpacked(key, field, payload):
    """An Example with one feature whose list is written element by element."""
    def wrap(number, data):
        return bytes([number << 3 | 2, len(data)]) + data
    return wrap(1, wrap(1, wrap(1, key) + wrap(2, wrap(field, payload))))


# A key is asked for once: of one that is asked for twice, TensorFlow fills in only one (ours both).
BATCHES = {
    "full": [example(i=[1, 2], f=[1.5, -2.5], s=[b"x", b"y"], v=[1, 2, 3, 4], w=[b"p"], x=[0.5],
                     r=[9, 8], q=[b"k"]),
             example(i=[3, 4], f=[0.5, 9.0], s=[b"", b"zz"], v=[5, 6], x=[1.5, 2.5], q=[])],
    "missing": [example(i=[1, 2], f=[1.0, 2.0], s=[b"a", b"b"], v=[1, 2], r=[1]), example()],
    "empty kind": [example(i=None, f=None, s=None, v=None, r=None)],
    "short": [example(i=[1], f=[1.0, 2.0], s=[b"a", b"b"], v=[1, 2])],
    "long": [example(i=[1, 2, 3], f=[1.0, 2.0], s=[b"a", b"b"], v=[1, 2, 3])],
    "dense type": [example(i=[1.0, 2.0], f=[1.0, 2.0], s=[b"a", b"b"], v=[1, 2])],
    "sparse type": [example(i=[1, 2], f=[1.0, 2.0], s=[b"a", b"b"], v=[1.0, 2.0])],
    "ragged type": [example(i=[1, 2], f=[1.0, 2.0], s=[b"a", b"b"], r=[b"x"])],
    "extra": [example(i=[1, 2], f=[1.0, 2.0], s=[b"a", b"b"], v=[-(2**63), 2**63 - 1],
                      other=[b"q"] * 9)],
    "garbage": [b"\xff\xff\xff"],
    "cut": [example(i=[1, 2], f=[1.0, 2.0], s=[b"a", b"b"])[:-4]],
    "none": [],
    "blank": [b""],
    "unpacked ints": [unpacked(b"v", 3, b"\x08\x01\x08\x02"),
                      unpacked(b"r", 3, b"\x08\x01\x08\x02"),
                      unpacked(b"i", 3, b"\x08\x01\x08\x02")],
    "unpacked floats": [unpacked(b"x", 2, b"\x0d\0\0\x80\x3f\x0d\0\0\0\x40"),
                        unpacked(b"f", 2, b"\x0d\0\0\x80\x3f\x0d\0\0\0\x40")],
}
SPARSE = [("v", tf.int64), ("w", tf.string), ("x", tf.float32), ("absent", tf.float32)]
SHAPES = {"i": [2], "f": [2, 1], "s": [2]}
DEFAULTS = {
    "none": [numpy.array([], "int64"), numpy.array([], "float32"), strings([])],
    "given": [numpy.array([8, 9], "int64"), numpy.array([[0.25], [0.75]], "float32"),
              strings([b"d0", b"d1"])],
    "shape": [numpy.array([8, 9, 10], "int64"), numpy.array([[0.25], [0.75]], "float32"),
              strings([b"d0", b"d1"])],
    "scalar": [numpy.array(8, "int64"), numpy.array([[0.25], [0.75]], "float32"),
               strings([b"d0", b"d1"])],
}


def scalar(text):
    return numpy.array(text if isinstance(text, bytes) else text.encode(), object)


def keys(names):
    return strings([n.encode() for n in names])


def examples():
    names, types = [k for k, _ in SPARSE], [t for _, t in SPARSE]
    dense = list(SHAPES)
    for (label, batch), (given, defaults) in itertools.product(BATCHES.items(), DEFAULTS.items()):
        batch = strings(batch)
        shapes = list(SHAPES.values())
        v1 = {"serialized": batch, "names": strings([]), "sparse_keys": [scalar(k) for k in names],
              "dense_keys": [scalar(k) for k in dense], "dense_defaults": defaults}
        yield f"ParseExample/{label}/{given}", case(
            "ParseExample", v1, sparse_types=types, dense_shapes=shapes)
        v2 = {"serialized": batch, "names": strings([]), "sparse_keys": keys(names),
              "dense_keys": keys(dense), "ragged_keys": keys(["r", "q", "gone"]),
              "dense_defaults": defaults}
        ragged = {"num_sparse": 4, "sparse_types": types,
                  "ragged_value_types": [tf.int64, tf.string, tf.float32],
                  "ragged_split_types": [tf.int32, tf.int64, tf.int64], "dense_shapes": shapes}
        yield f"ParseExampleV2/{label}/{given}", case("ParseExampleV2", v2, **ragged)
        if len(batch) == 1:
            yield f"ParseExampleV2/single/{label}/{given}", case(
                "ParseExampleV2", {**v2, "serialized": scalar(batch[0])}, **ragged)
            single = {"serialized": scalar(batch[0]), "dense_defaults": defaults}
            yield f"ParseSingleExample/{label}/{given}", case(
                "ParseSingleExample", single, num_sparse=4, sparse_keys=names, dense_keys=dense,
                sparse_types=types, dense_shapes=shapes)
        # only sparse, only ragged
        yield f"ParseExample/sparse/{label}", case(
            "ParseExample", {**v1, "dense_keys": [], "dense_defaults": []}, sparse_types=types,
            dense_shapes=[])
        only = {**v2, "sparse_keys": keys([]), "dense_keys": keys([]), "dense_defaults": []}
        yield f"ParseExampleV2/ragged/{label}", case(
            "ParseExampleV2", only, **{**ragged, "num_sparse": 0, "sparse_types": [],
                                       "dense_shapes": []})
        # a first size that is unknown
        for padding in (numpy.array([0], "int64"), numpy.array(-1, "int64"),
                        numpy.array([], "int64"), numpy.array([1, 2], "int64")):
            for shape in ([None], [None, 2], [None, 3]):
                inputs = {"serialized": batch, "names": strings([]), "sparse_keys": keys([]),
                          "dense_keys": keys(["v"]), "ragged_keys": keys([]),
                          "dense_defaults": [padding]}
                attrs = {"num_sparse": 0, "sparse_types": [], "ragged_value_types": [],
                         "ragged_split_types": [], "dense_shapes": [tf.TensorShape(shape)]}
                if given == "none":
                    yield f"ParseExampleV2/variable/{label}/{padding}/{shape}", case(
                        "ParseExampleV2", inputs, **attrs)
    good = strings(BATCHES["full"])
    base = {"serialized": good, "names": strings([]), "sparse_keys": keys(["i"]),
            "dense_keys": keys(["f"]), "ragged_keys": keys([]),
            "dense_defaults": [numpy.array([], "float32")]}
    attrs = {"num_sparse": 1, "sparse_types": [tf.int64], "ragged_value_types": [],
             "ragged_split_types": [], "dense_shapes": [[2]]}
    for label, change, other in (
        ("names", {"names": strings([b"one", b"two"])}, {}),
        ("names short", {"names": strings([b"one"])}, {}),
        ("matrix", {"serialized": good.reshape(2, 1)}, {}),
        ("sparse keys", {"sparse_keys": keys(["i", "v"])}, {}),
        ("dense keys", {"dense_keys": keys([])}, {}),
        ("unknown inner", {}, {"dense_shapes": [tf.TensorShape([2, None])]}),
        ("unknown rank", {}, {"dense_shapes": [tf.TensorShape(None)]}),
        ("scalar dense", {"serialized": strings([example(i=[1], f=[2.0])])},
         {"dense_shapes": [[]]}), ("empty dense", {"serialized": strings([example(i=[1], f=[])])},
                                   {"dense_shapes": [[0]]}),
        ("num_sparse", {}, {"num_sparse": 2}), ("key scalar", {"sparse_keys": scalar("i")}, {}),
        ("big", {"serialized": strings([example(i=list(range(1000)), f=[1.0, 2.0])] * 50)}, {}),
        ("ragged key", {"ragged_keys": keys(["q"])}, {}),
    ):  # fmt: skip
        yield f"ParseExampleV2/{label}", case("ParseExampleV2", {**base, **change},
                                              **{**attrs, **other})


SEQUENCES = {
    "full": [sequence({"c": [1, 2], "d": [0.5], "r": [b"p"]},
                      {"a": [[1, 2], [3]], "b": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
                       "t": [[b"x"], [], [b"y", b"z"]], "u": [[1], [2, 3]]}),
             sequence({"c": [], "d": [1.5]}, {"a": [[4, 5, 6]], "b": [[7.0, 8.0]], "t": []})],
    "missing list": [sequence({"d": [1.5]}, {})],
    "missing context": [sequence({}, {"b": [[1.0, 2.0]]})],
    "blank": [b""],
    "garbage": [b"\xff\xff"],
    "list size": [sequence({"d": [1.5]}, {"b": [[1.0]]})],
    "list type": [sequence({"d": [1.5]}, {"b": [[1, 2]], "a": [[1.0]]})],
    "context type": [sequence({"d": [1]}, {"b": [[1.0, 2.0]]})],
    "empty steps": [sequence({"d": [1.5]}, {"a": [None, [1], None], "b": [[1.0, 2.0]],
                                            "t": [None]})],
    "empty dense step": [sequence({"d": [1.5]}, {"b": [None, [1.0, 2.0]]})],
    "none": [],
}


def sequences():
    for (label, batch), given, may_miss in itertools.product(
        SEQUENCES.items(), (True, False), (True, False)):
        if not batch and not given:
            continue  # of no example, TensorFlow misses what would be required of one
        defaults = [numpy.array([9.5] if given else [], "float32")]
        base = {"context_sparse_types": [tf.int64], "context_dense_shapes": [[1]],
                "feature_list_sparse_types": [tf.int64], "feature_list_dense_types": [tf.float32],
                "feature_list_dense_shapes": [[2]]}
        v1 = {"serialized": strings(batch), "debug_name": strings([]),
              "context_dense_defaults": defaults}
        v1_attrs = {
            "feature_list_dense_missing_assumed_empty": ["b"] if may_miss else [],
            "context_sparse_keys": ["c"], "context_dense_keys": ["d"],
            "feature_list_sparse_keys": ["a"], "feature_list_dense_keys": ["b"],
            "Ncontext_sparse": 1, "Ncontext_dense": 1,
            "Nfeature_list_sparse": 1, "Nfeature_list_dense": 1, **base,
        }  # fmt: skip
        name = f"{label}/{given}/{may_miss}"
        yield f"ParseSequenceExample/{name}", case("ParseSequenceExample", v1, **v1_attrs)
        v2 = {
            "serialized": strings(batch), "debug_name": strings([]),
            "context_sparse_keys": keys(["c"]), "context_dense_keys": keys(["d"]),
            "context_ragged_keys": keys(["r"]), "feature_list_sparse_keys": keys(["a"]),
            "feature_list_dense_keys": keys(["b"]),
            "feature_list_ragged_keys": keys(["t", "u"]),
            "feature_list_dense_missing_assumed_empty": numpy.array([may_miss]),
            "context_dense_defaults": defaults,
        }  # fmt: skip
        v2_attrs = {
            "Ncontext_sparse": 1, "Nfeature_list_sparse": 1, "Nfeature_list_dense": 1,
            "context_ragged_value_types": [tf.string], "context_ragged_split_types": [tf.int32],
            "feature_list_ragged_value_types": [tf.string, tf.int64],
            "feature_list_ragged_split_types": [tf.int64, tf.int32], **base,
        }  # fmt: skip
        yield f"ParseSequenceExampleV2/{name}", case("ParseSequenceExampleV2", v2, **v2_attrs)
        if len(batch) != 1 and label != "full":
            continue
        one = scalar(batch[0])
        # TensorFlow does not set these
        yield f"ParseSequenceExampleV2/single/{name}", case(
            "ParseSequenceExampleV2", {**v2, "serialized": one, "debug_name": scalar("q")},
            without=(5, 13, 14), **v2_attrs)
        single = {
            "serialized": one, "feature_list_dense_missing_assumed_empty": keys(
                ["b"] if may_miss else []), "context_sparse_keys": [scalar("c")],
                  "context_dense_keys": [scalar("d")], "feature_list_sparse_keys": [scalar("a")],
                  "feature_list_dense_keys": [scalar("b")],
            "context_dense_defaults": defaults, "debug_name": scalar("name"),
        }  # fmt: skip
        yield f"ParseSingleSequenceExample/{name}", case(
            "ParseSingleSequenceExample", single, **base)


JSON = [
    "{}", '{"features": {}}',
    '{"features": {"feature": {"a": {"int64List": {"value": [1, "-2", 3.0, 1e3]}}}}}',
    '{"features": {"feature": {"a": {"int64_list": {"value": []}}}}}',
    '{"features": {"feature": {"a": {"floatList": {"value": [1.5, -2, "NaN", "Infinity", '
    '"-Infinity", "2.5"]}}}}}',
    '{"features": {"feature": {"a": {"bytesList": {"value": ["YWI=", "YWI", "_-8", "/+8=", '
    '""]}}}}}', '{"features": {"feature": {"a": {}}}}', '{"features": null}',
    '{"features": {"feature": null}}', '{"features": {"feature": {"a": {"int64List": null}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": null}}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": ["x"]}}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": [1.5]}}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": [9223372036854775808]}}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": ["9223372036854775807", '
    '-9223372036854775808]}}}}}',
    '{"features": {"feature": {"a": {"floatList": {"value": [1e39]}}}}}',
    '{"features": {"feature": {"a": {"bytesList": {"value": ["*"]}}}}}',
    '{"features": {"feature": {"a": {"bytesList": {"value": [1]}}}}}',
    '{"other": 1}', "[]", "", "{", "nonsense", '{"features": []}',
    '{"features": {"feature": {"a": {"int64List": {"value": 1}}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": [1]}, "floatList": {"value": [1]}}}}}',
    '{"features": {"feature": {"\\u00e9\\n": {"int64List": {"value": [1]}}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": [true]}}}}}',
    '{"features": {"feature": {"a": {"int64List": {"value": [null]}}}}}',
]  # fmt: skip


def jsons():
    for text in JSON:
        yield f"DecodeJSONExample/{text}", case("DecodeJSONExample",
                                                {"json_examples": strings([text.encode()])})
    yield "DecodeJSONExample/matrix", case("DecodeJSONExample",
                                           {"json_examples": strings([b"{}"] * 4).reshape(2, 2)})
    yield "DecodeJSONExample/scalar", case("DecodeJSONExample", {"json_examples": scalar(b"{}")})
    yield "DecodeJSONExample/none", case("DecodeJSONExample", {"json_examples": strings([])})


def cases():
    yield from jsons()
    yield from raws()
    yield from csvs()
    yield from tensors()
    yield from examples()
    yield from sequences()
