"""Cases of the Unicode family, and StringNGrams."""

import itertools
import unicodedata

import numpy
import oracle
import tensorflow as tf

R = tf.raw_ops
TEXTS = [
    b"", b"a", "aé€😀z".encode(), b"X\xffY\xc3", b"\xe2\x82x\xf0\x9f\x98y\xed\xa0\x80", b"\x80\x80x",
    b"a\0b\x1f\x7f\n", "\ufeffbom".encode(), "\ufffd".encode(), b"\xf4\x90\x80\x80", b"\xc0\x80",
    b"\xe2\x82", b"\xf0\x9f\x98",
    "e\u0301\u200d\ufffe\U0010ffff".encode(), b"a" * 300,
]  # fmt: skip
OTHER = ["héllo€😀", "", "a\x01b", "日本語"]
ENCODINGS = ["UTF-8", "utf-8", "UTF8", "UTF-16", "UTF-16-BE", "UTF-16BE", "UTF-16-LE", "UTF-16LE",
             "UTF-32-BE", "UTF-32LE", "UTF-32", "US-ASCII", "ISO-8859-1", "latin1", "Shift_JIS",
             "GB18030", "EUC-JP", "windows-1252", "no such", ""]


def strings(values):
    out = numpy.empty(len(values), object)
    out[:] = values
    return out


def case(op, inputs, **attrs):
    def build():
        out = getattr(R, op)(**{k: oracle.const(v) for k, v in inputs.items()}, **attrs)
        return list(out) if isinstance(out, tuple) else [out]

    return build


def _encoded(encoding):
    for text in OTHER:
        try:
            yield text.encode(encoding)
        except (UnicodeError, LookupError):
            yield text.encode("utf-8")
    yield from (b"\xd8\x00a", b"\xd8\x3d\xde\x00", b"\x00\xd8", b"\x3d\xd8\x00\xde",
                b"\0\0\0a\0\x11\0\0", b"a\0\0\0", b"\xfe\xff\0a", b"\xff\xfea\0", b"\x8e\xa1x",
                b"\x81", b"\xff\xff\xff")


def decodes():
    for encoding in ENCODINGS:
        texts = TEXTS if encoding.lower() in ("utf-8", "utf8") else list(_encoded(encoding))
        for errors, controls in itertools.product(("replace", "ignore", "strict"), (False, True)):
            attrs = {"input_encoding": encoding, "errors": errors,
                     "replace_control_characters": controls}
            for label, values in [("all", texts)] + [
                (str(i), [t]) for i, t in enumerate(texts)] if errors == "strict" else [
                    ("all", texts)]:
                inputs = {"input": strings(values)}
                name = f"{encoding}/{errors}/{controls}/{label}"
                yield f"UnicodeDecode/{name}", case(
                    "UnicodeDecode", inputs, **attrs, Tsplits="int32")
                # with int32 splits TensorFlow ends the process
                yield f"UnicodeDecodeWithOffsets/{name}", case(
                    "UnicodeDecodeWithOffsets", inputs, **attrs)
                for output in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
                    yield f"UnicodeTranscode/{output}/{name}", case(
                        "UnicodeTranscode", inputs, output_encoding=output, **attrs)
    for char in (0, 63, 0x1F600, 0x10FFFF, 0x110000, -1, 0xD800, 0xFFFE):
        for op, attrs in (("UnicodeDecode", {}), ("UnicodeTranscode", {"output_encoding": "UTF-8"}),
                          ("UnicodeTranscode", {"output_encoding": "UTF-16-BE"})):
            yield f"{op}/replacement {char}/{attrs}", case(
                op, {"input": strings(TEXTS[:7])}, input_encoding="UTF-8", replacement_char=char,
                **attrs)
    for shape in ((), (0,), (2, 1), (2, 0, 3)):
        values = strings([b"ab"] * int(numpy.prod(shape, dtype=int))).reshape(shape)
        yield f"UnicodeDecode/{shape}", case("UnicodeDecode", {"input": values},
                                             input_encoding="UTF-8")
        yield f"UnicodeDecodeWithOffsets/{shape}", case(
            "UnicodeDecodeWithOffsets", {"input": values}, input_encoding="UTF-16-BE")
        yield f"UnicodeTranscode/{shape}", case("UnicodeTranscode", {"input": values},
                                                input_encoding="UTF-8", output_encoding="UTF-16-BE")


def encodes():
    codes = numpy.array([97, 233, 0x20AC, 0x1F600, 0, 0xFFFD, 10], "int32")
    wrong = numpy.array([97, 0xD800, 98, 0xFFFE, 0x110000, -1, 0xFDD0, 0x1FFFF, 0x10FFFD, 0xDFFF],
                        "int32")
    for errors, output, splits in itertools.product(
        ("replace", "ignore", "strict"), ("UTF-8", "UTF-16-BE", "UTF-32-BE"), ("int32", "int64")):
        attrs = {"errors": errors, "output_encoding": output}
        for values, ends in (
            (codes, [0, 7]), (codes, [0, 0, 2, 2, 5, 7]), (codes, [0, 3]), (codes, [0]),
            (codes, []), (codes, [1, 3]), (codes, [0, 3, 2]), (codes, [0, 8]), (codes, [0, -1]),
            (codes[:0], [0]), (codes[:0], [0, 0, 0]), (wrong, [0, 5, 10]),
            (wrong[:1], [0, 1]), (codes.reshape(7, 1), [0, 1]), (codes, 0), (codes, [[0, 1]]),
        ):  # fmt: skip
            yield f"UnicodeEncode/{output}/{errors}/{splits}/{values.shape}/{ends}", case(
                "UnicodeEncode", {"input_values": values,
                                  "input_splits": numpy.array(ends, splits)}, **attrs)
    for char in (0, 63, 0x1F600, 0x10FFFF, 0x110000, -1, 0xD800, 0xFFFE):
        yield f"UnicodeEncode/replacement {char}", case(
            "UnicodeEncode", {"input_values": wrong, "input_splits": [0, 10]},
            output_encoding="UTF-8", replacement_char=char)
    # Characters of an early Unicode: TensorFlow's ICU knows fewer than ours.
    for values in (numpy.array([c for c in range(0x11000) if unicodedata.ucd_3_2_0.category(chr(c))
                                != "Cn"], "int32"), numpy.array(
                                    [[-1, 0x110000], [0x10FFFF, 0xD800]], "int32"), numpy.int32(97),
                   numpy.zeros((2, 0), "int32"), numpy.array([2**31 - 1, -(2**31)], "int32")):
        yield f"UnicodeScript/{numpy.shape(values)}", case("UnicodeScript", {"input": values}), {}


def ngrams():
    data = strings([b"a", b"b", b"c", b"d", b"e", b"f"])
    for splits, dtype in itertools.product(([0, 6], [0, 3, 4, 4, 6], [0, 0, 6], [0], [], [1, 6],
                                            [0, 4], [0, 7], [0, 4, 3, 6], [0, 6, 6], [-1, 6]),
                                           ("int32", "int64")):
        # fmt: skip
        for widths, pad, keeps in (([2], 0, False), ([2], -1, False), ([3], -1, True),
                                   ([3], 0, True), ([3], 1, False), ([1, 2, 3], 0, False),
                                   ([3, 1], 5, True), ([5], 1, True), ([], 0, True), ([], -1, True),
                                   ([], 0, False), ([1], 0, False), ([7], 0, True), ([0], 0, False),
                                   ([-1], 0, False)):
            inputs = {"data": data, "data_splits": numpy.array(splits, dtype)}
            yield f"StringNGrams/{splits}/{dtype}/{widths}/{pad}/{keeps}", case(
                "StringNGrams", inputs, separator="|", ngram_widths=widths, left_pad="LP",
                right_pad="RP", pad_width=pad, preserve_short_sequences=keeps)
    plain = {"separator": "", "ngram_widths": [2], "left_pad": "", "right_pad": "",
             "preserve_short_sequences": False}
    for values, splits in ((data[:0], [0]), (data[:0], []), (data[:0], [0, 0, 0]),
                           (data[:0], [0, 1]), (data.reshape(2, 3), [0, 6])):
        for pad in (0, -1, 2**31 - 1, 2**40):
            yield f"StringNGrams/{values.shape}/{splits}/{pad}", case(
                "StringNGrams", {"data": values, "data_splits": numpy.array(splits, "int64")},
                pad_width=pad, **plain)


def cases():
    yield from decodes()
    yield from encodes()
    yield from ngrams()
