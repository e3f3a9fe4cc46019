#!/usr/bin/env python3
"""Writes common/signatures/op_signatures.c: the signature of every op that TensorFlow registers.

    .venv/bin/python tools/gen_op_signatures.py            write the table
    .venv/bin/python tools/gen_op_signatures.py --check    compare with what is committed; exit 1 on
    a difference

The source is the op registry of the installed wheel. Only facts are taken (names, types, defaults,
bounds, flags), never summaries, descriptions or messages; of a deprecation, the version and the
name of the successor. The output depends on nothing but the registry, so equal wheels give equal
files.
"""

import argparse
import difflib
import os
import re
import sys
from pathlib import Path

OUTPUT = "common/signatures/op_signatures.c"
COLUMNS = 140

ELEMENT_TYPES = ("string", "int", "float", "bool", "type", "shape", "tensor", "func")

# Where the registry's remark names an unrelated op by mistake, or names the right one in other
# words.
SUCCESSOR_FIXES = {
    "PlaceholderV2": "Placeholder",
    "TensorArrayConcat": "TensorArrayConcatV3",
    "TensorArrayScatter": "TensorArrayScatterV3",
}


def registered_ops():
    """(TensorFlow's version, every registered OpDef sorted by name as bytes)."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # the whole package, so that every library that registers ops is loaded
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    op_list = op_def_pb2.OpList()
    op_list.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return tf.__version__, sorted(op_list.op, key=lambda op: op.name.encode())


def c_string(data):
    """A C string literal of these bytes (or of this text)."""
    if isinstance(data, str):
        data = data.encode()
    out = []
    for byte in data:
        char = chr(byte)
        # Octal escapes have a fixed width, so what follows them is never swallowed; '?' could begin
        # a trigraph.
        out.append(char if 32 <= byte < 127 and char not in '"\\?' else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def c_int(value):
    if value == -(2**63):
        return "INT64_MIN"
    return str(value) if abs(value) < 2**31 else f"INT64_C({value})"


def c_float(value):
    import numpy as np

    single = np.float32(value)
    if np.isnan(single):
        return "NAN"
    if np.isinf(single):
        return "INFINITY" if single > 0 else "-INFINITY"
    form = np.format_float_scientific if single and not 1e-4 < abs(
        single) < 1e6 else np.format_float_positional
    return form(single, trim="0") + "f"


class Pool:
    """Rows of one C array in which lists share storage: a list that stands inside another is not
    stored again."""

    def __init__(self, lists):
        self.runs = []  # (first index, rows) as they will be printed
        self._first = {}
        length = 0
        for rows in sorted({tuple(rows) for rows in lists}, key=lambda rows: (-len(rows), rows)):
            if not rows or rows in self._first:
                continue
            for i in range(len(rows)):
                for j in range(i + 1, len(rows) + 1):
                    self._first.setdefault(rows[i:j], length + i)
            self.runs.append((length, rows))
            length += len(rows)

    def at(self, array, rows):
        """A C expression for the first of these rows; NULL for none."""
        rows = tuple(rows)
        return f"{array} + {self._first[rows]}" if rows else "NULL"

    def print(self, declaration, out):
        out.append(f"static const {declaration}[] = {{")
        for first, rows in self.runs:
            line = f"    /* {first} */"
            for row in rows:
                if len(line) + 2 + len(row) > COLUMNS:
                    out.append(line)
                    line = "       "
                line += f" {row},"
            out.append(line)
        out += ["};", ""]


def arg_row(arg):
    row = c_string(arg.name)
    for field in ("type_attr", "number_attr", "type_list_attr"):
        if getattr(arg, field):
            row += f", .{field} = {c_string(getattr(arg, field))}"
    if arg.type:
        row += f", .type = {arg.type}"
    if arg.is_ref:
        row += ", .is_ref = true"
    return "{" + row + "}"


def shape_dims(shape):
    return [] if shape.unknown_rank else [c_int(dim.size) for dim in shape.dim]


def attr_elements(attr):
    """The elements of a list attr's default as AttrValue-like (type, value) pairs, in order."""
    values = attr.default_value.list
    field = {"string": "s", "int": "i", "float": "f", "bool": "b"}.get(
        attr.type[5:-1], attr.type[5:-1])
    return list(getattr(values, field))


class Table:
    def __init__(self, version, ops):
        self.version = version
        self.ops = ops
        attrs = [attr for op in ops for attr in op.attr]
        with_default = [attr for attr in attrs if attr.HasField("default_value")]

        # Each pool's rows point into the pools before it.
        shapes = [attr.default_value.shape for attr in with_default if attr.type == "shape"]
        shapes += [shape for attr in with_default if attr.type == "list(shape)"
                   for shape in attr_elements(attr)]
        self.dims = Pool(shape_dims(shape) for shape in shapes)
        self.elements = Pool(self.element_rows(attr) for attr in with_default
                             if attr.type.startswith("list("))
        self.defaults = Pool([self.default_row(attr)] for attr in with_default)
        self.strings = Pool(self.allowed_strings(attr) for attr in attrs)
        self.args = Pool([arg_row(arg) for arg in args] for op in ops
                         for args in (op.input_arg, op.output_arg))
        self.attrs = Pool([self.attr_row(attr) for attr in op.attr] for op in ops)

    def value(self, element_type, value):
        """The initializer of a struct op_attr_default that holds a value of a type that is no list.
        """
        if element_type == "func":
            if value.attr:
                raise SystemExit(f"a function default with attrs ({value.name}) has no form in the "
                                 "table yet")
            value, element_type = value.name.encode(), "string"
        if element_type == "tensor":
            value, element_type = value.SerializeToString(deterministic=True), "string"
        if element_type == "string":
            return f"{{{len(value)}, {{.s = {c_string(value)}}}}}"
        if element_type == "shape":
            rank = -1 if value.unknown_rank else len(value.dim)
            return f"{{{rank}, {{.dims = {self.dims.at('dims', shape_dims(value))}}}}}"
        if element_type == "int":
            return f"{{0, {{.i = {c_int(value)}}}}}"
        if element_type == "float":
            return f"{{0, {{.f = {c_float(value)}}}}}"
        if element_type == "bool":
            return f"{{0, {{.b = {'true' if value else 'false'}}}}}"
        if element_type == "type":
            return f"{{0, {{.type = {value}}}}}"
        raise SystemExit(f"an attr type that the table does not know: {element_type}")

    def element_rows(self, attr):
        return [self.value(attr.type[5:-1], element) for element in attr_elements(attr)]

    def default_row(self, attr):
        if attr.type.startswith("list("):
            rows = self.element_rows(attr)
            return f"{{{len(rows)}, {{.list = {self.elements.at('elements', rows)}}}}}"
        field = {"string": "s", "int": "i", "float": "f", "bool": "b"}.get(attr.type, attr.type)
        return self.value(attr.type, getattr(attr.default_value, field))

    @staticmethod
    def allowed_strings(attr):
        strings = list(attr.allowed_values.list.s)
        if any(b"\0" in text for text in strings):
            raise SystemExit(f"attr {attr.name}: an allowed string with a NUL has no form in the "
                             "table yet")
        return [c_string(text) for text in strings]

    def attr_row(self, attr):
        is_list = attr.type.startswith("list(")
        element = attr.type[5:-1] if is_list else attr.type
        if element not in ELEMENT_TYPES:
            raise SystemExit(f"attr {attr.name}: unknown type {attr.type}")
        row = f"{c_string(attr.name)}, ATTR_{'LIST_' if is_list else ''}{element.upper()}"
        if attr.has_minimum:
            row += f", AT_LEAST({c_int(attr.minimum)})"
        mask = sum(1 << number for number in set(attr.allowed_values.list.type))
        if mask:
            row += f", .allowed_types = 0x{mask:x}"
        strings = self.allowed_strings(attr)
        if strings:
            row += f", ONE_OF({len(strings)}, {self.strings.at('strings', strings)})"
        if attr.HasField("default_value"):
            row += f", DEFAULT({self.defaults.at('defaults', [self.default_row(attr)])})"
        return "{" + row + "}"

    def successor(self, op, names):
        """The op that replaces a deprecated one, when the registry's remark names it ("use X",
        "replaced by X")."""
        named = re.search(r"\b(?:[Uu]se|by) (\w+)", op.deprecation.explanation)
        name = SUCCESSOR_FIXES.get(op.name) or (named and named.group(1))
        return name if name in names and name != op.name else None

    def op_row(self, op, names):
        counts = (len(op.input_arg), len(op.output_arg), len(op.attr))
        row = ", ".join((
            c_string(op.name),
            self.args.at("args", (arg_row(arg) for arg in op.input_arg)),
            self.args.at("args", (arg_row(arg) for arg in op.output_arg)),
            self.attrs.at("attrs", (self.attr_row(attr) for attr in op.attr)),
            "SIZES(%d, %d, %d)" % counts,
        ))
        if max(counts) > 255 or op.deprecation.version > 65535:
            raise SystemExit(f"op {op.name}: a number does not fit struct op_signature")
        if op.deprecation.version:
            row += f", .deprecated_at_version = {op.deprecation.version}"
            successor = self.successor(op, names)
            if successor:
                row += f", .replaced_by = {c_string(successor)}"
        for flag in ("is_stateful", "is_commutative", "is_aggregate", "allows_uninitialized_input",
                     "is_distributed_communication"):
            if getattr(op, flag):
                row += f", .{flag} = true"
        return "    {" + row + "},"

    def text(self):
        out = [
            f"/* The signature of each of the {len(self.ops)} ops in the registry of TensorFlow "
            f"{self.version}.",
            " *",
            " * Generated by tools/gen_op_signatures.py; do not edit. Equal lists of rows are "
            "stored once, longest first; the number",
            " * before a list is the index of its first row. dtypes are TensorFlow's numbers "
            "(common/tensor/dtype.h), a set of dtypes",
            " * is a mask with bit 1 << dtype. */",
            '#include "common/signatures/op_signature_internal.h"',
            "",
            "#include <math.h>",
            "",
            '#include "common/base/base.h"',
            "",
            "/* clang-format off */",
            "#define AT_LEAST(bound) .has_minimum = true, .minimum = (bound)",
            "#define ONE_OF(count, first) .n_allowed_strings = (count), .allowed_strings = (first)",
            "#define DEFAULT(value) .has_default = true, .default_value = (value)",
            "#define SIZES(inputs_, outputs_, attrs_) .n_inputs = (inputs_), .n_outputs = "
            "(outputs_), .n_attrs = (attrs_)",
            "",
            "/* Dimensions of the shapes among the defaults. */",
        ]
        self.dims.print("int64_t dims", out)
        out.append("/* Elements of the lists among the defaults. */")
        self.elements.print("struct op_attr_default elements", out)
        self.defaults.print("struct op_attr_default defaults", out)
        out.append("/* The values to which string attrs are bound. */")
        self.strings.print("char *const strings", out)
        self.args.print("struct op_arg_signature args", out)
        self.attrs.print("struct op_attr_signature attrs", out)
        names = {op.name for op in self.ops}
        out.append("const struct op_signature op_signature_table[] = {")
        out += [self.op_row(op, names) for op in self.ops]
        out += ["};", "", "const size_t op_signature_table_len = ARRAY_LEN(op_signature_table);"]
        out.append("/* clang-format on */")
        return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true",
                        help=f"compare with {OUTPUT} instead of writing it; exit 1 on a difference")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent.parent
                        / OUTPUT)
    options = parser.parse_args()

    new = Table(*registered_ops()).text()
    if not options.check:
        options.output.write_text(new)
        return 0
    old = options.output.read_text() if options.output.exists() else ""
    diff = list(difflib.unified_diff(old.splitlines(), new.splitlines(),
                                     f"{options.output} (committed)", "registry", lineterm="", n=0))
    for line in diff[:100]:
        print(line)
    if len(diff) > 100:
        print(f"... {len(diff) - 100} more lines")
    return 1 if diff else 0


if __name__ == "__main__":
    sys.exit(main())
