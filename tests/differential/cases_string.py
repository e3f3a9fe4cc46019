"""Cases of the string family."""

import itertools

import numpy
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
TEXTS = [
    b"", b"a", b"Hello World", b" \t\n\v\f\r a b \0 ", "aé€😀z".encode(),
    "AÉßİŉΣ ΑΣ. ΑΣΑ ǰΐﬁ ﬃ Ǆ ǅ ᲐꙀ".encode(), b"X\xffY\xc3", b"\xe2\x82x\xf0\x9f\x98y\xed\xa0\x80",
    b"\x80\x80x", b"a" * 1000,
]  # fmt: skip


def strings(*values):
    return numpy.array(values, object)


def case(op, inputs, **attrs):
    def build():
        wrapped = {k: [oracle.const(x) for x in v] if isinstance(v, list) else oracle.const(v)
                   for k, v in inputs.items()}
        out = getattr(R, op)(**wrapped, **attrs)
        return list(out) if isinstance(out, tuple) else [out]

    return build


def text():
    matrix = strings(*TEXTS).reshape(2, 5)
    for op, encoding in itertools.product(("StringLower", "StringUpper"),
                                          ("", "utf-8", "latin1", "UTF-8")):
        # TensorFlow's utf-8 ends at a NUL; ours goes on.
        texts = strings(*[t.replace(b"\0", b"") for t in TEXTS]).reshape(
            2, 5) if encoding else matrix
        yield f"{op}/{encoding}", case(op, {"input": texts}, encoding=encoding)
    letters = "".join(chr(c) for c in range(0x20, 0x2100) if not 0xD800 <= c < 0xE000)
    # no letter is beside another one
    letters = "\n".join(letters[i : i + 1] for i in range(len(letters)))
    for op in ("StringLower", "StringUpper"):
        yield f"{op}/all letters", case(op,
                                        {"input": strings(*[c.encode() for c in letters.split(
                                            "\n")])}, encoding="utf-8")
    yield "StringStrip", case("StringStrip", {"input": matrix})
    for unit in ("BYTE", "UTF8_CHAR"):
        yield f"StringLength/{unit}", case("StringLength", {"input": matrix}, unit=unit)
        for index in ("int32", "int64"):
            for texts, pos, length in (
                (strings(b"hello", b"world"), [1], [3]), (strings(b"hello", b"world"), 1, 3),
                (strings(b"hello", b"world"), [1, 2], [3, 3]),
                (strings(b"hello", b"wo"), [1, 3], [3, 3]), (strings(b"hello"), -3, 2),
                (strings(b"hello"), -6, 2), (strings(b"hello"), 6, 2),
                (strings(b"hello"), 5, 2), (strings(b"hello"), 1, -2),
                (strings(b"hello").reshape(1, 1), [1, 2], [1, 1]),
                (numpy.array(b"hello", object), [0, 1], [1, 2]),
                (strings(b"a", b"b", b"c"), [0, 1], [1, 1]),
                (strings(b"hello", b"ab"), [[1], [2]], [[1], [1]]),
                (strings(b"ab", b"cd"), [0, 1], 1), (strings(), 0, 1),
                (strings(b"ab"), 2**31 - 1, 1), (strings(b"ab"), -(2**31), 1),
                (strings(b"ab"), 0, 2**31 - 1),
                (strings(b"ab"), 0, -(2**31)), (matrix, [0, 0, 0, 0, 0], [1, 2, 3, 4, 5]),
                (matrix[1:, :1], [[0, 1, 2, 3], [-1, -2, -3, -4]], [[1, 1, 1, 1], [1, 2, 3, 4]]),
            ):  # fmt: skip
                inputs = {"input": texts, "pos": numpy.array(pos, index),
                          "len": numpy.array(length, index)}
                yield f"Substr/{unit}/{index}/{texts.shape}/{pos}/{length}", case(
                    "Substr", inputs, unit=unit)
            for broken, pos in itertools.product(
                (b"a\xc3", b"\xe2\x82b", b"\x80\x80x", "é€😀".encode()), range(-4, 5)):
                if unit == "BYTE" and abs(pos) > len(broken):
                    # TensorFlow's message would hold bytes that its own client cannot decode
                    continue
                inputs = {"input": strings(broken), "pos": numpy.array(pos, index),
                          "len": numpy.array(1, index)}
                yield f"Substr/{unit}/{index}/{broken}/{pos}", case("Substr", inputs, unit=unit)


def joins():
    for values in (
        [strings(b"a", b"b"), numpy.array(b"-", object), strings(b"x", b"y")],
        [strings(b"a", b"b"), strings(b"x", b"y", b"z")],
        [strings(b"a", b"b"), strings(b"x", b"y").reshape(1, 2)],
        [], [numpy.array(b"q", object)], [numpy.array(b"q", object)] * 3,
        [strings(b"", b""), strings(b"", b"")], [strings()] * 2,
        [numpy.array(b"q", object), strings()],
    ):  # fmt: skip
        for separator in ("", "|", "<->"):
            yield f"StringJoin/{[v.shape for v in values]}/{separator}", case(
                "StringJoin", {"inputs": values}, separator=separator)
    letters = strings(*[bytes([97 + i]) for i in range(24)])
    for shape in ((2, 3), (2, 3, 4), (24,), (1, 2, 1, 2, 1, 2, 1, 3), (2, 0), (0, 2), ()):
        size = int(numpy.prod(shape, dtype=int))
        for axes in (0, 1, -1, -2, [0], [0, 1], [1, 0], [], [0, 0], 2, -3, [0, -2], [[0]], [2, 0],
                     [2, 1, 0], [7, 5, 3, 1], list(range(30))):
            for keep_dims, separator in ((False, ","), (True, ""), (False, "")):
                inputs = {"inputs": letters[:size].reshape(shape),
                          "reduction_indices": numpy.array(axes, "int32")}
                yield f"ReduceJoin/{shape}/{axes}/{keep_dims}", case(
                    "ReduceJoin", inputs, keep_dims=keep_dims, separator=separator)
    matrix = letters[:4].reshape(2, 2)
    for inputs, ids, n in (
        (letters[:4], [0, 1, 0, 1], 2), (letters[:4], [0, 1, 0, 3], 5),
        (letters[:4], [0, 0, 0, 0], 1), (letters[:4], [0, -1, 0, 1], 2),
        (letters[:4], [0, 2, 0, 1], 2), (letters[:4], [0, 1], 2),
        (letters[:4], [0, 1, 0, 1], 0), (letters[:4], [0, 1, 0, 1], -1), (matrix, [1, 1], 3),
        (matrix, [[1, 0], [0, 1]], 3), (matrix, [1, 1, 1], 3), (letters[:4], [0, 1, 0, 1], [3]),
        (letters[:4], 0, 1),
        (letters[:0], [], 2), (numpy.array(b"x", object), 0, 2),
        (strings(b"", b"", b"a"), [0, 0, 0], 1), (strings(b"a", b"", b"b", b""), [0, 0, 0, 0], 1),
        (letters.reshape(2, 3, 4), [[0, 1, 0], [1, 0, 1]], 2),
        (letters[:0].reshape(2, 0), [0, 1], 2),
    ):  # fmt: skip
        for a, b in (("int32", "int32"), ("int64", "int32"), ("int32", "int64"),
                     ("int64", "int64")):
            values = {"inputs": inputs, "segment_ids": numpy.array(ids, a),
                      "num_segments": numpy.array(n, b)}
            yield f"UnsortedSegmentJoin/{inputs.shape}/{ids}/{n}/{a}/{b}", case(
                "UnsortedSegmentJoin", values, separator=":")


def numbers():
    words = (
        "1", " 2 ", "abc", "", "1e400", "-1e400", "1e-400", "inf", "-Infinity", "nan", "0x10",
        "1_0", "12abc", "+5", "1.5", "99999999999", "-99999999999", "\t7\n", "NaN", "1e39", "1 2",
        ".5", "5.", "1e",
        "infinit", "- 5", "\x005", "5\x00", "18446744073709551616", "18446744073709551615", "-1",
        "--1", "+-1", "+", "-", "-0", "0000000000000000000000000000012", "2147483647", "2147483648",
        "-2147483648",
        "-2147483649", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808",
        "-9223372036854775808", "-9223372036854775809", "1e-45", "4.9e-324", "0.1", "1" + "0" * 60,
        "3.40282357e38",
        "nan(123)", "0x1p-3", "1e5", " ", "infinity", "INF", "1.7976931348623159e308", "16777217",
        "1d5", "1f",
    )  # fmt: skip
    for word, dtype in itertools.product(words,
                                         tf_kernels.cpu_dtypes("StringToNumber", "out_type")):
        if word in ("1e-45", "4.9e-324", "nan(123)"):
            continue  # denormals, which TensorFlow flushes
        yield f"StringToNumber/{dtype}/{word!r}", case(
            "StringToNumber", {"string_tensor": strings(word.encode())}, out_type=dtype), {
                "rtol": 0}
    decimals = ("0.1 16777217 16777219 16777216.5 8388609.5 123456.789 -.5 5. +1.25 .000001 "
                "9007199254740993 123456789012345 1234567890123456 00012.500 3.4028235 1.17549435 "
                "0.3000000119 "
                # fmt: skip
                "-0 -0.0 +.0 . + - 1.2.3 1-2 999999999999999 0.999999999999999 33554434.99999 "
                "33554433 33554435 7.0385307e-26").split()
    for dtype in ("float32", "float64"):
        for word in decimals:
            yield f"StringToNumber/{dtype}/decimal {word}", case(
                "StringToNumber", {"string_tensor": strings(word.encode())}, out_type=dtype), {
                    "rtol": 0}
    yield "StringToNumber/matrix", case("StringToNumber",
                                        {"string_tensor": strings(b"1", b"2", b"3", b"4").reshape(
                                            2, 2)}, out_type="int64")
    yield "StringToNumber/none", case("StringToNumber", {"string_tensor": strings()},
                                      out_type="int64")

    options = (
        {}, {"precision": 3}, {"precision": 0}, {"scientific": True}, {"shortest": True},
        {"width": 8}, {"width": 8, "fill": "0"}, {"width": 12, "fill": "0"},
        {"width": 12, "fill": "-"}, {"width": 12, "fill": " "},
        {"width": 12, "fill": "+"}, {"width": 9, "fill": "#", "precision": 0},
        {"width": 9, "fill": "xx"}, {"width": 9, "fill": "x"}, {"fill": "0"},
        {"precision": 2, "scientific": True, "width": 12},
        {"scientific": True, "shortest": True}, {"precision": 20, "width": 40},
        {"precision": 4, "shortest": True}, {"width": 0}, {"width": 0, "precision": 3},
        {"width": 1, "precision": 3}, {"width": -3}, {"precision": 200},
        {"width": 300, "fill": "-"},
    )  # fmt: skip
    rng = numpy.random.default_rng(1)
    for dtype in tf_kernels.cpu_dtypes("AsString"):
        if dtype == "variant":
            continue
        kind = tf.as_dtype(dtype)
        values = oracle.sample(rng, dtype, (7,))
        if kind.is_floating:
            values = numpy.concatenate([values,
                                        numpy.array(
                                            [0, -0.0, 0.1, numpy.inf, -numpy.inf, numpy.nan, 1e4,
                                             1e-3], kind.as_numpy_dtype)])
        if kind.is_integer:
            values = numpy.concatenate([values,
                                        numpy.array(
                                            [kind.min, kind.max, 0, 9, 10, 99, 100],
                                            kind.as_numpy_dtype)])
        if dtype in ("float32", "float64"):
            values = numpy.concatenate([values,
                                        numpy.array(
                                            [1e20, 1e-20, 123456.789], kind.as_numpy_dtype)])
        if kind.is_integer:
            values = numpy.concatenate([values,
                                        numpy.array([kind.min, kind.max], kind.as_numpy_dtype)])
        for attrs in options:
            yield f"AsString/{dtype}/{attrs}", case("AsString", {"input": values}, **attrs)
        yield f"AsString/{dtype}/scalar", case("AsString", {"input": values[0]})
        yield f"AsString/{dtype}/empty", case("AsString", {"input": values[:0].reshape(0, 2)})


def formats():
    big = (numpy.arange(100, dtype="float32") / 3).reshape(10, 10)
    for values, template, attrs in (
        ([numpy.arange(10, dtype="int32"), numpy.float32(2.5)], "a{}b{}c", {"placeholder": "{}"}),
        ([big], "a%sb", {}), ([big], "a%sb", {"summarize": 1}), ([big], "a%sb", {"summarize": -1}),
        ([big], "a%sb", {"summarize": 0}),
        ([strings(b"x", b"y\n\"'\t\\\r\x01\xff"), numpy.array([True, False]),
          numpy.array(b"sc", object)], "%s %s %s", {}),
        ([numpy.zeros((2, 0)), numpy.zeros(0), numpy.zeros((2, 2, 3), "int8")], "%s|%s|%s", {}),
        ([], "abc", {}), ([], "", {}), ([numpy.zeros((7, 2, 7), "int8")], "%s", {}),
        ([numpy.zeros(6, "int8"), numpy.zeros(7, "int8")], "%s %s", {}),
        ([numpy.float64(0.1), numpy.float32(0.1), numpy.float16(0.1)], "%s%s%s", {}),
        ([numpy.array([1e10, 1e-10, numpy.inf, -numpy.inf, 123456.789, 1e5, 1e15, 1e16, 1 / 3,
                       2.0**-1000])], "%s", {"summarize": 20}),
        ([numpy.array([1e10, 1.1, 123456.789, 1e-30, 3.4e38], "float32")], "%s", {"summarize": 20}),
        ([numpy.array([1 + 2j], "complex64")], "%s", {}),
        ([numpy.array([-5, 7], dtype) for dtype in ("int16", "int64", "int8")], "%s %s %s", {}),
        ([numpy.array([5, 7], dtype) for dtype in ("uint8", "uint16", "uint32", "uint64")],
         "%s %s %s %s", {}),
        ([numpy.ones((1, 2, 1, 2, 1, 2, 1, 3), "int32")], "%s", {}),
        ([numpy.ones((1, 8, 1, 9), "int32")], "%s", {"summarize": 2}),
        ([numpy.array([0.1, 3], tf.bfloat16.as_numpy_dtype)], "%s", {}),
    ):  # fmt: skip
        yield f"StringFormat/{template}/{[(v.dtype.name, v.shape) for v in values]}/{attrs}", case(
            "StringFormat", {"inputs": values}, template=template, **attrs)


def codes():
    rng = numpy.random.default_rng(2)
    texts = strings(*[rng.bytes(n) for n in list(range(140))
                      + [191, 192, 193, 255, 256, 257, 1000, 4099]])
    for n in (1, 10, 2**31, 2**62, 2**63 - 1):
        yield f"StringToHashBucketFast/{n}", case(
            "StringToHashBucketFast", {"input": texts}, num_buckets=n)
        yield f"StringToHashBucket/{n}", case("StringToHashBucket", {"string_tensor": texts},
                                              num_buckets=n)
        yield f"StringToHashBucketStrong/{n}", case(
            "StringToHashBucketStrong", {"input": texts}, num_buckets=n, key=[123, -456])
    for key in ([1], [1, 2, 3], []):
        yield f"StringToHashBucketStrong/key {key}", case(
            "StringToHashBucketStrong", {"input": texts}, num_buckets=9, key=key)
    for pad in (False, True):
        yield f"EncodeBase64/{pad}", case("EncodeBase64", {"input": texts[:148].reshape(2, 74)},
                                          pad=pad)
    for word in ("YQ", "YQ==", "YQ=", "YWI", "YWJj", "Y", "Y===", "YWJjZA", "_-77AA", "/+77",
                 "YQ=a", "Y Q", "YR", "====", "=", "", "YQ==YQ==", "YWJ=", "YQ\0=", "==", "===",
                 "Y=", "YWJjYQ=="):
        yield f"DecodeBase64/{word!r}", case("DecodeBase64", {"input": strings(word.encode())})


def splits():
    lists = (strings(b"a b  c", b"", b"d"), strings(b" a ", b"x,y;z"),
             strings(b" \t a \n b", b"a<>b<><>c<>"), strings(b"a b  c ", b"", b"d"), strings(),
             strings(b"", b""))
    for texts, delimiter in itertools.product(lists, (b" ", b"", b",;", b", ", b"<>", b",")):
        sep = numpy.array(delimiter, object)
        for skip in (False, True):
            yield f"StringSplit/{texts}/{delimiter}/{skip}", case(
                "StringSplit", {"input": texts, "delimiter": sep}, skip_empty=skip)
        for limit in (-1, 0, 1, 2, -5):
            yield f"StringSplitV2/{texts}/{delimiter}/{limit}", case(
                "StringSplitV2", {"input": texts, "sep": sep}, maxsplit=limit)
    for texts, delimiter in ((strings(b"a b"), strings(b" ")),
                             (strings(b"a b").reshape(1, 1), numpy.array(b"", object)),
                             (numpy.array(b"a b", object), numpy.array(b"", object))):
        yield f"StringSplit/wrong/{texts.shape}/{delimiter.shape}", case(
            "StringSplit", {"input": texts, "delimiter": delimiter})
        yield f"StringSplitV2/wrong/{texts.shape}/{delimiter.shape}", case(
            "StringSplitV2", {"input": texts, "sep": delimiter})


def cases():
    yield from text()
    yield from joins()
    yield from numbers()
    yield from formats()
    yield from codes()
    yield from splits()
