"""CSV files as datasets: quotes, ends of lines, fields that are missing, wrong or too many,
columns, compression."""

import gzip
import itertools
import zlib

import numpy as np
from programs import tf
from programs_data import continued, through, written

I, F, S = tf.int32, tf.float32, tf.string
Csv = tf.data.experimental.CsvDataset
R = tf.raw_ops
numbers = itertools.count()


def file(content):
    return written(f"csv-{next(numbers)}.csv", content if isinstance(content, bytes)
                   else content.encode())


def csv(content, defaults, **arguments):
    """`content`: of a file, or of several."""
    contents = content if isinstance(content, list) else [content]
    return through(lambda: Csv([file(c) for c in contents], defaults, **arguments))


def v1(content):
    class V1(tf.data.Dataset):
        def __init__(self, op):
            super().__init__(
                op(
                    filenames=[file(content)], compression_type="", buffer_size=np.int64(100),
                    header=False, field_delim=",", use_quote_delim=True,
                    na_value="", select_cols=np.zeros(0, np.int64),
                    record_defaults=[tf.zeros([0], I), tf.constant(["x"])], output_shapes=[[], []],
                )  # fmt: skip
            )

        def _inputs(self):
            return []

        @property
        def element_spec(self):
            return tf.TensorSpec([], I), tf.TensorSpec([], S)

    return V1


CASES = {
    "plain": csv("1,2.5,a\n3,4,b\n", [I, F, S]),
    "types": csv("1,2,3.5,x\n-9,8,1e300,\n", [I, tf.int64, tf.float64, [""]]),
    "defaults": csv(",,\n1,,z\n", [[7], [1.5], ["d"]]),
    "missing": csv(",1\n2,3\n", [I, I]),
    "fewer": csv("1\n2,3\n", [I, [5]]),
    "more": csv("1,2,3\n4,5\n", [I, I]),
    "no number": csv("1,x\n4,5\n1.5,2\n99999999999,1\n0x10,2\n6,7\n", [I, I]),
    "no float": csv("x\n4\ninf\nnan\n 1e3 \n", [F]),
    "quotes": csv('"a,b","c""d"\n"e\nf",g\n"",""\n', [["d"], S]),
    "quoted number": csv('"12"\n""\n', [[3]]),
    "quote inside": csv('ab"c,d\ne,f\n', [S, S]),
    "quote not at the end": csv('"ab"c",d\ne,f\n', [S, S]),
    "quote goes on": csv('"ab"c,d\ne,f\n', [S, S]),
    "quote has no end": csv('1,2\n"ab,d\n', [S, S]),
    "quotes are bytes": csv('"a,b"\n', [S, S], use_quote_delim=False),
    "crlf": csv("1,a\r\n3,b\r\n", [I, S]),
    "cr": csv("1,a\r3,b\r", [I, S]),
    "blank lines": csv("\n1\n\n2\n", [[0]]),
    "blank lines of two": csv("\n1,2\n\n3,4\n", [I, I]),
    "no last newline": csv(["1,2\n3,4", "5,6"], [I, I]),
    "last is empty": csv("1,\n2,", [I, ["z"]]),
    "empty": csv(["", "1\n", ""], [I]),
    "newline": csv("\n", [["q"]]),
    "header": csv(["h,k\n1,2\n", "h,k\n3,4\n", "h,k"], [I, I], header=True),
    "header and nothing else": csv("h,k", [I, I], header=True),
    "header of an empty file": csv(["", "h,k\n1,2\n"], [I, I], header=True),
    "quoted header": csv('"h\nx",k\n1,2\n', [I, I], header=True),
    "tabs": csv("1\t2\n", [I, I], field_delim="\t"),
    "long delimiter": csv("1;2\n", [I, I], field_delim=";;"),
    "blanks": csv(" 1 , 2\n", [I, S]),
    "na": csv('NA,1\n2,NA\n"NA",3\n', [[9], [8]], na_value="NA"),
    "columns": csv("1,2,3\n4,5,6\n", [I, I], select_cols=[0, 2]),
    "columns beyond": csv("1,2\n", [I, I], select_cols=[0, 5]),
    "columns fall": csv("1,2\n", [I, I], select_cols=[1, 0]),
    "columns negative": csv("1,2\n", [I], select_cols=[-1]),
    "columns too many": csv("1,2\n", [I], select_cols=[0, 1]),
    "columns left out": csv("1,2,3\n", [I, I], exclude_cols=[1]),
    "too few left out": csv("1,2,3\n", [I], exclude_cols=[1]),
    "bytes": csv(b"a\0b,\xc3\xa9\n\xff,c\n", [S, S]),
    "gzip": csv(gzip.compress(b"1,2\n3,4\n"), [I, I], compression_type="GZIP"),
    "zlib": csv(zlib.compress(b"1,2\n"), [I, I], compression_type="ZLIB"),
    "coding": csv("1\n", [I], compression_type="XX"),
    "many": csv("".join(f'{k},"{"abc" * (k % 7)}\n{k}"\n' for k in range(40000)), [I, S],
                buffer_size=7),
}


MANY = "".join(f'{k},"{"abc" * (k % 7)}\n{k}"\n' for k in range(12))
POSITIONS = {
    "one file": lambda: Csv([file(MANY)], [I, S]),
    "files": lambda: Csv([file("1,a\n2,b\n"), file(""), file("3,c\n4,d\n5,e\n")], [I, S]),
    "with errors": lambda: Csv([file("1,a\nx,b\n3,c\ny,d\n5,e\n6,f\n")], [I, S]),
    "gzip": lambda: Csv([file(gzip.compress(MANY.encode()))], [I, S], compression_type="GZIP"),
}


def cases():
    for name, make in POSITIONS.items():
        yield f"csv/position/{name}", continued(make)
    for name, build in CASES.items():
        yield f"csv/{name}", build
    for op in ("CSVDataset", "ExperimentalCSVDataset"):
        yield f"csv/{op}", through(lambda op=op: v1("1,a\n,b\n3,\n")(getattr(R, op)))
