"""Files and checkpoints: both formats, slices, sharded ones, names, patterns, and their refusals.

TensorFlow and we run each case on the same paths, one after the other; what a case reads may have
been written by either, or by the fixtures here, which are TensorFlow's. Reading each other's files
in turn is run_checkpoints.py's."""

import atexit
import os
import shutil
import tempfile

import numpy as np
import oracle
import tensorflow as tf
import tf_kernels

R = tf.raw_ops
Step = oracle.Step
DIR = tempfile.mkdtemp(prefix="millrace-cases-io-")
atexit.register(shutil.rmtree, DIR, True)
SHAPES = ([], [0], [3], [2, 0, 3], [2, 3], [1, 2, 1, 2, 1, 3], [70000])


def path(*names):
    return os.path.join(DIR, *names)


def const(value, dtype=None):
    return oracle.const(value, dtype)


def text(value):
    return oracle.const(np.asarray(value, object) if len(np.shape(value)) else value, tf.string)


def run(*outs):
    """A step that runs ops or fetches tensors."""
    return Step([o for o in outs if isinstance(o, tf.Tensor)],
                targets=[o for o in outs if not isinstance(o, tf.Tensor)])


def value_of(dtype, shape, seed=0):
    return oracle.sample(np.random.default_rng(seed), dtype, shape)


def constant(value, dtype):
    if tf.as_dtype(dtype).is_quantized:
        base = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16",
                "qint32": "int32"}[dtype]
        return tf.bitcast(tf.constant(value.astype(base)), dtype)
    return oracle.const(value, dtype)


def back(out):
    """What can be compared: quantized values as plain ones."""
    base = {"qint8": tf.int8, "quint8": tf.uint8, "qint16": tf.int16, "quint16": tf.uint16,
            "qint32": tf.int32}.get(out.dtype.base_dtype.name)
    return tf.bitcast(out, base) if base else out


# ---- V2 ----


def save(prefix, names, values, specs=None):
    return R.SaveV2(prefix=text(prefix), tensor_names=text(names),
                    shape_and_slices=text(specs or [""] * len(names)), tensors=values)


def restore(prefix, names, dtypes, specs=None):
    return R.RestoreV2(prefix=text(prefix), tensor_names=text(names),
                       shape_and_slices=text(specs or [""] * len(names)),
                       dtypes=[tf.as_dtype(d) for d in dtypes])


def _round_trip(dtype):
    def build():
        prefix, names = path(f"v2-{dtype}"), [f"t/{i}" for i in range(len(SHAPES))]
        values = [constant(value_of(dtype, shape, i), dtype) for i, shape in enumerate(SHAPES)]
        return [run(save(prefix, names, values)),
                run(*map(back, restore(prefix, names, [dtype] * len(names))))]

    return build


def _round_trip_v1(dtype):
    def build():
        file, names = path(f"v1-{dtype}"), [f"t/{i}" for i in range(len(SHAPES))]
        values = [constant(value_of(dtype, shape, i), dtype) for i, shape in enumerate(SHAPES)]
        outs = [R.Restore(file_pattern=text(file), tensor_name=text(n), dt=tf.as_dtype(dtype))
                for n in names]
        return [run(R.Save(filename=text(file), tensor_names=text(names), data=values)),
                run(*map(back, outs)),
                run(*map(back, restore(file, names, [dtype] * len(names))))]

    return build


def numbers(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def f32(*shape):
    return const(numbers(*shape), tf.float32)


def _fixture():
    """Written once, by TensorFlow."""
    if os.path.exists(path("fixture.index")):
        return path("fixture")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        a = numbers(4, 5)
        session.run(R.SaveV2(prefix=path("fixture"),
                             tensor_names=["w", "words", "part", "part", "n"],
                             tensors=[a, [b"x", b"", b"yy"], a[:3], a[3:], np.int64(7)],
                             shape_and_slices=["", "", "4 5 0,3:-", "4 5 3,1:-", ""]))
        session.run(R.Save(filename=path("fixture-v1"), tensor_names=["w", "words"],
                           data=[a, [b"x", b"", b"yy"]]))
        for shard in range(2):
            session.run(R.SaveSlices(filename=path(f"fixture-shard-{shard:05d}-of-00002"),
                                     tensor_names=["part"],
                                     shapes_and_slices=[f"4 5 {2 * shard},2:-"],
                                     data=[a[2 * shard : 2 * shard + 2]]))
        session.run(R.Save(filename=path("large-v1"), tensor_names=["zeros", "mixed"],
                           data=[np.zeros(100000, np.float32), np.arange(100000) % 251]))
    for name, contents in {"text.txt": b"some\ntext\0\xff", "empty.txt": b"",
                           "broken.index": b"x" * 100, "short.index": b"x"}.items():
        with open(path(name), "wb") as f:
            f.write(contents)
    os.makedirs(path("dir", "sub"))
    for name in ("dir/a.txt", "dir/b.txt", "dir/c.dat", "dir/sub/a.txt", "dir/.hidden.txt"):
        open(path(name), "wb").close()
    return path("fixture")


def _restore(names, dtypes, specs=None, prefix=None):
    return lambda: [run(*restore(prefix or _fixture(), names, dtypes, specs))]


def _raw_restore(**change):
    arguments = {"prefix": "fixture", "tensor_names": ["w"], "shape_and_slices": [""], **change}

    def build():
        _fixture()
        prefix = arguments["prefix"]
        prefix = path(prefix) if isinstance(prefix, str) else [path(p) for p in prefix]
        return [run(*R.RestoreV2(prefix=text(prefix), tensor_names=text(arguments["tensor_names"]),
                                 shape_and_slices=text(arguments["shape_and_slices"]),
                                 dtypes=[tf.float32]))]

    return build


def _save(names, values, specs=None, then=None):
    """Saves, then restores what `then` says."""

    def build():
        prefix = path("save")
        steps = [run(save(prefix, names, [f32(*v) if isinstance(v, tuple) else v() for v in values],
                          specs))]
        return steps + ([run(*restore(prefix, *then))] if then else [])

    return build


def _sharded(allow_missing=False, missing=False, delete=True, destination="merged", **more):
    def build():
        parts = [path("merge_temp", f"part-{i:05d}-of-00002") for i in range(2)]
        writes = [save(p, [f"w{i}"], [f32(2, 3)]) for i, p in enumerate(parts)]
        merge = R.MergeV2Checkpoints(checkpoint_prefixes=text(
            parts + ([path("merge_temp", "none")] if missing else [])),
                                     destination_prefix=text(path(destination)),
                                     delete_old_dirs=delete, allow_missing_files=allow_missing)
        return [run(*writes), run(merge),
                run(*restore(path(destination), ["w0", "w1"], ["float32"] * 2)),
                run(R.MatchingFiles(pattern=text(path(destination) + ".*index"))),
                run(R.MatchingFiles(pattern=text(path("merge_temp") + "/*.index")))]

    return build


def _merged_slices():
    parts = [path("slices_temp", f"part-{i}") for i in range(2)]
    writes = [save(p, ["v"], [const(numbers(4, 3)[2 * i : 2 * i + 2], tf.float32)],
                   [f"4 3 {2 * i},2:-"]) for i, p in enumerate(parts)]
    merge = R.MergeV2Checkpoints(checkpoint_prefixes=text(parts),
                                 destination_prefix=text(path("slices")))
    return [run(*writes), run(merge),
            run(*restore(path("slices"), ["v", "v"], ["float32"] * 2, ["", "4 3 1,2:0,2"]))]


def _merge(parts, destination):
    return lambda: [run(R.MergeV2Checkpoints(checkpoint_prefixes=text(parts),
                                             destination_prefix=text(destination)))]


# ---- V1 ----


def _v1(name, dtype="float32", pattern="fixture-v1", spec=None):
    def build():
        _fixture()
        arguments = {"file_pattern": text(path(pattern)), "tensor_name": text(name),
                     "dt": tf.as_dtype(dtype)}
        return [run(R.Restore(**arguments) if spec is None
                    else R.RestoreSlice(shape_and_slice=text(spec), **arguments))]

    return build


def _save_slices(specs, values, name="save-slices"):
    def build():
        names = ["v"] * len(specs)
        write = R.SaveSlices(filename=text(path(name)), tensor_names=text(names),
                             shapes_and_slices=text(specs),
                             data=[const(v, tf.float32) for v in values])
        return [run(write), run(R.Restore(file_pattern=text(path(name)), tensor_name=text("v"),
                                          dt=tf.float32))]

    return build


# ---- files ----


def _read(name):
    return lambda: (_fixture(),
                    [run(R.ReadFile(filename=text(name if isinstance(name, list) else path(
                        name))))])[1]


def _write(name, contents):
    return lambda: [run(R.WriteFile(filename=text(name if isinstance(name, list) else path(name)),
                                    contents=text(contents))),
                    run(R.ReadFile(filename=text(path(name))))]


def _match(patterns):
    def build():
        _fixture()
        full = [path(p) for p in patterns] if isinstance(patterns, list) else path(patterns)
        return [run(R.MatchingFiles(pattern=text(full)))]

    return build


def _named(op, **arguments):
    return lambda: [run(op(**{k: text(v) if k == "basename" else const(v, tf.int32) for k,
                              v in arguments.items()}))]


w = _restore
PROGRAMS = {
    # what TensorFlow wrote
    "restore all": w(["w", "words", "part", "n"], ["float32", "string", "float32", "int64"]),
    "restore one twice": w(["w", "w"], ["float32"] * 2),
    "restore slice": w(["w", "w", "w"], ["float32"] * 3, ["4 5 1,2:-", "4 5 -:2,3", "4 5 3,1:4,1"]),
    "restore slice of slices": w(["part"] * 4, ["float32"] * 4,
                                 ["4 5 0,3:-", "4 5 2,2:1,3", "4 5 3,1:-", "4 5 -:-"]),
    "restore missing": w(["none"], ["float32"]),
    "restore missing second": w(["w", "none"], ["float32"] * 2),
    "restore wrong dtype": w(["w"], ["float64"]),
    "restore wrong dtypes": w(["w", "words"], ["int32", "float32"]),
    "restore spec shape": w(["w"], ["float32"], ["4 6 1,2:-"]),
    "restore spec rank": w(["w"], ["float32"], ["4 5 1,2"]),
    "restore spec beyond": w(["w"], ["float32"], ["4 5 3,2:-"]),
    "restore spec words": w(["w"], ["float32"], ["4 5 a,b:-"]),
    "restore spec alone": w(["w"], ["float32"], ["4"]),
    "restore spec negative": w(["w"], ["float32"], ["4 5 -1,2:-"]),
    "restore spec nothing": w(["w"], ["float32"], ["4 5 1,0:-"]),
    "restore spec no number": w(["w"], ["float32"], ["4 x 1,2:-"]),
    "restore nowhere": w(["w"], ["float32"], prefix=path("nowhere", "at all")),
    "restore broken": _raw_restore(prefix="broken"),
    "restore short": _raw_restore(prefix="short"),
    "restore v1": lambda: (_fixture(),
                           [run(*restore(path("fixture-v1"), ["w", "words"],
                                         ["float32", "string"]))])[1],
    "restore v1 sharded": lambda: (_fixture(),
                                   [run(*restore(path("fixture-shard-*"), ["part", "part"],
                                           ["float32"] * 2, ["", "4 5 1,2:-"]))])[1],
    "restore v1 large": lambda: (_fixture(),
                                 [run(*restore(path("large-v1"), ["zeros", "mixed"],
                                               ["float32", "int64"]))])[1],
    "restore prefix vector": _raw_restore(prefix=["fixture"]),
    "restore two prefixes": _raw_restore(prefix=["fixture", "fixture"]),
    "restore names scalar": _raw_restore(tensor_names="w"),
    "restore more names": _raw_restore(tensor_names=["w", "n"]),
    "restore more specs": _raw_restore(shape_and_slices=["", ""]),
    "restore both more": _raw_restore(tensor_names=["w", "n"], shape_and_slices=["", ""]),
    # saving
    "save slices": _save(["v", "v"], [(2, 3), (1, 3)], ["3 3 0,2:-", "3 3 2,1:-"],
                         (["v"], ["float32"])),
    "save full slice": _save(["v"], [(2, 3)], ["2 3 0,2:-"], (["v"], ["float32"])),
    "save slice hole": _save(["v"], [(2, 3)], ["3 3 0,2:-"], (["v"], ["float32"])),
    "save slice overlap": _save(["v", "v"], [(2, 3), (2, 3)], ["3 3 0,2:-", "3 3 1,2:-"],
                                (["v"], ["float32"])),
    "save slice shape": _save(["v"], [(2, 2)], ["3 3 0,2:-"]),
    "save slice rank": _save(["v"], [(2, 3)], ["3 0,2"]),
    "save doubled": _save(["v", "v"], [(2,), (2,)]),
    "save doubled slice": _save(["v", "v"], [(2,), (2,)], ["4 0,2", "4 0,2"]),
    "save nothing": lambda: [run(save(path("none"), ["x"], [f32(0)]))],
    "save order": _save(["z", "a", "m/b", "m"], [(1,), (2,), (3,), ()], None,
                        (["m", "z", "a", "m/b"], ["float32"] * 4)),
    "save fewer names": lambda: [run(R.SaveV2(prefix=text(path("n")), tensor_names=text(["a"]),
                                              shape_and_slices=text([""]),
                                              tensors=[f32(1), f32(1)]))],
    "save names matrix": lambda: [run(R.SaveV2(prefix=text(path("n")), tensor_names=text([["a"]]),
                                               shape_and_slices=text([""]), tensors=[f32(1)]))],
    "save two prefixes": lambda: [run(R.SaveV2(prefix=text([path("n")] * 2),
                                               tensor_names=text(["a"]),
                                               shape_and_slices=text([""]), tensors=[f32(1)]))],
    "save into a file": lambda: (_fixture(), [run(save(path("text.txt", "x"), ["a"], [f32(1)]))])[
        1],
    "save new directory": lambda: [run(save(path("new", "m"), ["a"], [f32(1)])),
                                   run(*restore(path("new", "m"), ["a"], ["float32"]))],
    "save over": lambda: [run(save(path("over"), ["a"], [f32(2)])),
                          run(save(path("over"), ["a", "b"], [f32(3), f32(1)])),
                          run(*restore(path("over"), ["a", "b"], ["float32"] * 2)),
                          run(R.MatchingFiles(pattern=text(path("over.index"))))],
    # merging
    "merge": _sharded(),
    "merge keep": _sharded(delete=False, destination="merged-keep"),
    "merge again": _sharded(),
    "merge missing": _sharded(missing=True),
    "merge missing allowed": _sharded(missing=True, allow_missing=True),
    "merge elsewhere": _sharded(destination="elsewhere/merged"),
    "merge slices": _merged_slices,
    "merge nothing": _merge([path("m", "none")], path("m2")),
    "merge scalar": _merge(path("m", "none"), path("m2")),
    "merge two destinations": _merge([path("m", "none")], [path("m2"), path("m3")]),
    # V1
    "v1 restore": _v1("w"),
    "v1 restore words": _v1("words", "string"),
    "v1 missing": _v1("none"),
    "v1 dtype": _v1("w", "int32"),
    "v1 nowhere": _v1("w", pattern="nowhere*"),
    "v1 not one": _v1("w", pattern="text.txt"),
    "v1 sharded": _v1("part", pattern="fixture-shard-?????-of-00002"),
    "v1 half": _v1("part", pattern="fixture-shard-00000-of-00002"),
    "v1 half slice": _v1("part", pattern="fixture-shard-00000-of-00002", spec="4 5 0,2:-"),
    "v1 slice": _v1("w", spec="4 5 1,2:1,3"),
    "v1 slice all": _v1("w", spec=""),
    "v1 slice shape": _v1("w", spec="4 6 1,2:-"),
    "v1 slice bad": _v1("w", spec="4 5 1:-"),
    "v1 large": _v1("mixed", "int64", "large-v1"),
    "v1 zeros": _v1("zeros", "float32", "large-v1"),
    "v1 save slices": _save_slices(["4 3 0,2:-", "4 3 2,2:-"], [numbers(2, 3), numbers(2, 3)]),
    "v1 save hole": _save_slices(["4 3 0,1:-", "4 3 2,2:-"], [numbers(1, 3), numbers(2, 3)]),
    "v1 save shape": _save_slices(["4 3 0,1:-"], [numbers(2, 3)]),
    "v1 save other shape": _save_slices(["4 3 0,1:-", "5 3 1,1:-"], [numbers(1, 3)] * 2),
    "v1 save fewer": lambda: [run(R.Save(filename=text(path("f")), tensor_names=text(["a"]),
                                         data=[f32(1), f32(2)]))],
    "v1 save two files": lambda: [run(R.Save(filename=text([path("f")] * 2),
                                             tensor_names=text(["a"]), data=[f32(1)]))],
    "v1 save overlap": _save_slices(["4 3 0,2:-", "4 3 1,2:-"], [numbers(2, 3), numbers(2, 3)]),
    "v1 save nowhere": lambda: [run(R.Save(filename=text(path("no", "such", "dir", "f")),
                                           tensor_names=text(["a"]), data=[f32(1)]))],
    # files
    "read": _read("text.txt"),
    "read empty": _read("empty.txt"),
    "read nowhere": _read("none.txt"),
    "read directory": _read("dir"),
    "read two": _read([path("text.txt")] * 2),
    "read url": lambda: (_fixture(),
                         [run(R.ReadFile(filename=text("file://" + path("text.txt"))))])[1],
    "read other scheme": lambda: [run(R.ReadFile(filename=text("nosuch://a/b")))],
    "write": _write("written.txt", b"a\0b"),
    "write less": _write("written.txt", b""),
    "write deep": _write("written/x/y.txt", b"deep"),
    "write matrix": lambda: [run(R.WriteFile(filename=text(path("m.txt")), contents=text([b"a"])))],
    "write over directory": lambda: (_fixture(),
                                     [run(R.WriteFile(filename=text(path("dir")),
                                             contents=text(b"a")))])[1],
    "match": _match("dir/*"),
    "match several": _match(["dir/*.dat", "dir/a*", "dir/sub/*", "dir/none"]),
    "match one": _match("dir/a.txt"),
    "match none": _match("dir/z*"),
    "match question": _match("dir/?.txt"),
    "match class": _match("dir/[bc].*"),
    "match below": _match("dir/*/a.txt"),
    "match twice": _match(["dir/a.txt", "dir/a*"]),
    "match nothing": _match([]),
    "match matrix": lambda: [run(R.MatchingFiles(pattern=text([["a"]])))],
    "sharded name": _named(R.ShardedFilename, basename="a/b", shard=3, num_shards=12),
    "sharded name large": _named(R.ShardedFilename, basename="", shard=1234567, num_shards=-1),
    "sharded name vector": _named(R.ShardedFilename, basename="a", shard=[3], num_shards=12),
    "sharded name names": _named(R.ShardedFilename, basename=["a", "b"], shard=3, num_shards=12),
    "sharded spec": _named(R.ShardedFilespec, basename="a/b", num_shards=12),
    "sharded spec vector": _named(R.ShardedFilespec, basename="a/b", num_shards=[12, 13]),
}


def v1_dtypes():
    return [d for d in V2_DTYPES if d not in ("bfloat16", "qint16", "quint16", "uint32", "uint64")
            and not d.startswith("float8")]


V2_DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
             "float16", "bfloat16", "float32", "float64", "complex64",
             "complex128", "string", "qint8", "quint8", "qint16", "quint16", "qint32"]


def cases():
    assert tf_kernels.cpu_kernels("SaveV2")
    for dtype in V2_DTYPES:
        yield f"v2/{dtype}", _round_trip(dtype), {"ignore": "shapes"}
        yield f"v1/{dtype}", _round_trip_v1(dtype), {"ignore": "shapes"}
    for name, build in PROGRAMS.items():
        yield f"program/{name}", build
