#!/usr/bin/env python3
"""Broken bytes for the kernels that parse: protos of Examples, SequenceExamples, tensors and
summaries, CSV, compressed data, texts in all encodings. The evaluator must survive them; best use
that of a sanitized build (--eval build-asan/tests/tools/graph_eval).

    fuzz_parsing.py [--n 2000] [--seed 1] [--eval PATH]

The last line is "N passed, N failed": inputs."""

import argparse
import os
import random
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases_parsing as parsing  # noqa: E402
import numpy  # noqa: E402
import oracle  # noqa: E402
import tensorflow as tf  # noqa: E402
from run_kernels import default_evaluator  # noqa: E402

R = tf.raw_ops


def graphs():
    """(what, ops on a scalar placeholder, seeds)"""
    text = tf.compat.v1.placeholder(tf.string, [])
    one = tf.reshape(text, [1])
    keys, none = parsing.keys, parsing.strings([])
    example = R.ParseExampleV2(
        serialized=one, names=none, sparse_keys=keys(["v", "w"]), dense_keys=keys(["f", "i"]),
        ragged_keys=keys(["r"]), dense_defaults=[tf.constant([1.0, 2.0]), tf.constant(0, tf.int64)],
        num_sparse=2, sparse_types=[tf.int64, tf.string],
        ragged_value_types=[tf.int64], ragged_split_types=[tf.int32],
        dense_shapes=[[2], tf.TensorShape([None])],
    )  # fmt: skip
    sequence = R.ParseSequenceExample(
        serialized=one, debug_name=none, context_dense_defaults=[tf.constant([1.0])],
        feature_list_dense_missing_assumed_empty=["b"], context_sparse_keys=["c"],
        context_dense_keys=["d"], feature_list_sparse_keys=["a", "t"],
        feature_list_dense_keys=["b"], Ncontext_sparse=1, Ncontext_dense=1,
        Nfeature_list_sparse=2, Nfeature_list_dense=1, context_sparse_types=[tf.int64],
        context_dense_shapes=[[1]], feature_list_sparse_types=[tf.int64, tf.string],
        feature_list_dense_types=[tf.float32], feature_list_dense_shapes=[[2]],
    )  # fmt: skip
    csv = R.DecodeCSV(records=text,
                      record_defaults=[tf.constant([1]), tf.constant([0.5]), tf.constant(["d"])])
    summary = tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag="a",
            simple_value=1.0)]).SerializeToString()
    yield "example", text, parsing.flatten(example), parsing.BATCHES["full"] + parsing.BATCHES[
        "unpacked floats"]
    yield "sequence", text, parsing.flatten(sequence), parsing.SEQUENCES[
        "full"] + parsing.SEQUENCES["empty steps"]
    yield "csv", text, list(csv), [b'1,2.5,"a ""b"""', b"1,,\r\n"]
    yield "tensor", text, [R.ParseTensor(serialized=text, out_type=tf.float32)], [
        tf.make_tensor_proto(numpy.ones((3, 2), "float32")).SerializeToString(),
        tf.make_tensor_proto(1.0).SerializeToString()]
    yield "strings", text, [R.ParseTensor(serialized=text, out_type=tf.string)], [
        tf.make_tensor_proto([b"a", b"bc"]).SerializeToString()]
    yield "summary", text, [R.MergeSummary(inputs=[text, summary])], [
        tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag="b",
                simple_value=1.0)]).SerializeToString()]
    yield "zlib", text, [R.DecodeCompressed(bytes=text, compression_type="ZLIB")], [
        zlib.compress(b"hello " * 50)]
    yield "raw", text, [R.DecodeRaw(bytes=text, out_type=tf.complex64, little_endian=False)], [
        b"0123456789abcdef"]
    for encoding in ("UTF-8", "UTF-16-LE", "UTF-32", "Shift_JIS", "GB18030", "ISO-2022-JP"):
        transcoded = R.UnicodeTranscode(input=text, input_encoding=encoding,
                                        output_encoding="UTF-16-BE")
        yield encoding, text, [transcoded] + list(
            R.UnicodeDecodeWithOffsets(input=text, input_encoding=encoding)), [
                "aé€😀z日本".encode(), "日本".encode("shift_jis"), "日本".encode("utf-16")]
    yield "pattern", text, [R.RegexFullMatch(input=["ab", "é"], pattern=text),
                            R.RegexReplace(input=["ab", "é"], pattern=text, rewrite="\\1")], [
                                b"(?i:[a-z]+|\\pL{2,3})(b)*$", b"[^[:alpha:]\\d]\\x{e9}\\Qa\\E"]
    yield "rewrite", text, [R.RegexReplace(input=["ab", "é"], pattern="(a)|(b)", rewrite=text)], [
        b"\\1\\2\\0\\\\"]


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3, 5])):
        kind, at = rng.randrange(4), rng.randrange(len(data) + 1)
        if kind == 0:
            data[at:at] = bytes([rng.choice([0, 1, 2, 8, 10, 0x7F, 0x80, 0xFF,
                                             rng.randrange(256)])])
        elif kind == 1:
            del data[at : at + rng.randrange(1, 4)]
        elif at < len(data):
            data[at] = rng.randrange(256) if kind == 2 else data[at] ^ (1 << rng.randrange(8))
    return bytes(data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=2000, help="inputs per op")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eval", default=default_evaluator())
    arguments = parser.parse_args()
    evaluator, rng = oracle.Evaluator(arguments.eval), random.Random(arguments.seed)
    passed = failed = 0
    with tf.Graph().as_default() as graph:
        rows = list(graphs())
    graphdef = graph.as_graph_def().SerializeToString()
    for what, text, fetches, seeds in rows:
        codes = {}
        for _ in range(arguments.n):
            data = mutate(rng, rng.choice(seeds))
            feed = {text.name: tf.make_tensor_proto(data, tf.string, []).SerializeToString()}
            try:
                code = evaluator.run(graphdef, [(feed, [t.name for t in fetches], [])])[0][0]
                passed += 1
            except oracle.Crashed as crash:
                print(f"{what} {data!r}: {crash}")
                code, failed = "crash", failed + 1
            codes[code] = codes.get(code, 0) + 1
        print(what, codes, flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
