"""Compiles parts of the plugin with a bug, which the cases have to find. A patch of planted/
changes one file. A kernel (.cu) becomes a library for the simulated device, and a C file becomes a
plugin.

    tests/cuda/planted_bugs.py --check    whether each patch fits its file
"""
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MILLRACE_BUILD", "build"))
PLUGIN = "kernels/cuda/millrace-cuda.so"  # a target of the build
# By name, the cases of run_ops.py that find its bugs.
CASES = {"lstm": "LSTM", "gru": "GRU", "direct": r"Conv/\w+/int32", "pooling": "qint8",
         "packs": r"Conv/first/float32", "products": r"MatMul/(slices|stack|one|adjoint).*/float32",
         "images": r"(Image\w+|AvgPoolGrad/image)/(half|float32)",
         "norms": "BatchNorm/last/(half|float32)", "lrn": "LRN"}


def patches(name):
    """The bugs of NAME, in their order."""
    found = glob.glob(os.path.join(ROOT, "tests", "cuda", "planted", f"{name}-*.patch"))
    return sorted(found, key=lambda path: int(os.path.basename(path).split("-")[1]))


def commands_of(target):
    text = subprocess.check_output(["ninja", "-C", BUILD, "-t", "commands", target], text=True)
    return [shlex.split(line) for line in text.splitlines()
            if not line.startswith("ninja: Entering")]


def run_with(words, places):
    """Runs a command of the build with other paths."""
    subprocess.run([places.get(word, word) for word in words], check=True, cwd=BUILD)


def patched(patch, work):
    """(the path of the file that a patch changes, the changed file)."""
    with open(patch, encoding="utf-8") as lines:
        path = re.search(r"^\+\+\+ b/(\S+)$", lines.read(), re.M)[1]
    made = os.path.join(work, os.path.basename(path))
    subprocess.run(["patch", "--quiet", "--fuzz=0", "-o", made, os.path.join(ROOT, path), patch],
                   check=True)
    return path, made


def kernels_with(patch, kernels, work):
    """The libraries of kernels, with the changed one in the place of its own."""
    path, source = patched(patch, work)
    library = "gpu_" + os.path.basename(path).replace(".cu", ".so")
    made, target = os.path.join(work, library), "tests/cuda/" + library
    words = commands_of(target)[-1]
    places = {target: made, target.replace(".so", ".d"): made + ".d"}
    places.update({word: source for word in words if word.endswith("/" + path)})
    run_with(words, places)
    return [kernel for kernel in kernels if os.path.basename(kernel) != library] + [made]


def plugin_with(patch, work):
    """A plugin with the changed C file, whose object is linked by itself or in an archive."""
    path, source = patched(patch, work)
    archive = "kernels/cuda/libcuda.a"
    *before, link = commands_of(PLUGIN)
    words = next(words for words in before if words[-1].endswith("/" + path))
    old = words[words.index("-o") + 1]
    new, plugin = os.path.join(work, os.path.basename(old)), os.path.join(work, "millrace-cuda.so")
    run_with(words, {words[-1]: source, old: new, old + ".d": new + ".d"})
    places = {PLUGIN: plugin, old: new}
    if old not in link:
        objects = next([word for word in words if word.endswith(".o")]
                       for words in before if archive in words)
        places[archive] = os.path.join(work, os.path.basename(archive))
        run_with(["ar", "crs", archive, *objects], places)
    run_with(link, places)
    return plugin


def variant(patch, kernels, plugin, work):
    """(the kernels, the plugin), one of them with the bug."""
    with open(patch, encoding="utf-8") as lines:
        is_kernel = re.search(r"^\+\+\+ b/\S+\.cu$", lines.read(), re.M)
    if is_kernel:
        return kernels_with(patch, kernels, work), plugin
    return kernels, plugin_with(patch, work)


def main():
    if sys.argv[1:] != ["--check"]:
        sys.exit("usage: tests/cuda/planted_bugs.py --check")
    failed = 0
    for patch in sorted(glob.glob(os.path.join(ROOT, "tests", "cuda", "planted", "*.patch"))):
        with tempfile.TemporaryDirectory() as work:
            try:
                patched(patch, work)
            except subprocess.CalledProcessError:
                failed += 1
                print(f"{os.path.relpath(patch, ROOT)} does not fit its file", flush=True)
    print(f"{failed} of the planted bugs do not apply")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
