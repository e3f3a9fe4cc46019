#!/usr/bin/env python3
"""Writes a C file with the source text of the ops that fused programs on a GPU are compiled from
(kernels/cuda/op_sources.h).

    tools/embed_ops.py OUTPUT COMPILER INCLUDE_FOLDER FILE

The compiler's preprocessor expands FILE, so that each op is a struct NAME_op of its own; all else
is what ops share. kernels/cuda/source_types.h replaces the headers of the C++ library and of CUDA.
It comes first, as a text of its own, because the simulated device has these headers.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

KERNEL = '#define KERNEL(name, type) extern "C" __global__ void name(type args)\n'
OP = re.compile(r"\bstruct (\w+)_op \{")


def expanded(compiler, headers, folder, path):
    command = [compiler, "-E", "-P", "-x", "c++", "-nostdinc", "-undef", "-I", headers, "-I",
               folder, "-D__cplusplus=201703L", "-D__CUDACC__", "-DKERNEL(name, type)=", path]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def texts(compiler, folder, path):
    """What replaces headers, and all of FILE behind it."""
    with tempfile.TemporaryDirectory() as headers:
        types = os.path.join(headers, "stdint.h")
        shutil.copy(os.path.join(folder, "kernels", "cuda", "source_types.h"), types)
        with open(os.path.join(headers, "type_traits"), "w", encoding="utf-8"):
            pass
        runtime, text = (expanded(compiler, headers, folder, name) for name in (types, path))
    if not text.startswith(runtime):
        sys.exit(f"embed_ops: {path} does not include stdint.h first")
    return runtime, text[len(runtime):]


def end_of(text, at):
    """Behind the braces that open before `at`, and their semicolon."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text.index(";", at) + 1


def split(text):
    """(what ops share, {name: text})"""
    shared, ops, at = [], {}, 0
    for found in OP.finditer(text):
        if found.start() < at:
            continue
        shared.append(text[at:found.start()])
        at = end_of(text, found.end())
        ops[found[1]] = " ".join(text[found.start():at].split())
    shared.append(text[at:])
    lines = "".join(shared).splitlines()
    return "\n".join(line.strip() for line in lines if line.strip()), ops


def quoted(text):
    """C's literal, in pieces that every compiler takes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(f'"{line}\\n"' for line in escaped.split("\n"))


def main():
    output, compiler, folder, path = sys.argv[1:]
    runtime, text = texts(compiler, folder, path)
    shared, ops = split(text)
    with open(output, "w", encoding="utf-8") as out:
        out.write('#include "kernels/cuda/op_sources.h"\n\n')
        out.write(f"const char gpu_ops_runtime[] = {quoted(KERNEL + runtime)};\n")
        out.write(f"const char gpu_ops_shared[] = {quoted(shared)};\n")
        out.write("const struct gpu_op_source gpu_op_sources[] = {\n")
        for name in sorted(ops):
            out.write(f'{{"{name}", {quoted(ops[name])}}},\n')
        out.write(f"}};\nconst size_t n_gpu_op_sources = {len(ops)};\n")


if __name__ == "__main__":
    main()
