#!/usr/bin/env python3
"""What `tools/dev check` checks without building: the include table, banned calls, header guards, format, generated files, READMEs.

Each check is a function that yields the complaints it has; the last line counts checks: "N passed, N failed".
"""
import fnmatch
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The rooms, bottom first: a file includes its own room and rooms above it in this list, as far as its floor's row in FLOORS allows. So
# no arrow points up and there is no circle. A room is a folder's own files (not those of folders inside), or single files of a folder
# that stand lower or higher than the rest of it: "rpc/admin" is rpc/admin.c and rpc/admin.h.
ROOMS = (
    ("proto", ("proto/",)),
    ("common/base", ("common/base/",)),
    ("common/tensor", ("common/tensor/",)),
    ("common/signatures", ("common/signatures/",)),
    ("common/graph", ("common/graph/",)),
    ("common/io", ("common/io/",)),
    ("common/ops", ("common/ops/",)),
    ("common/gradients", ("common/gradients/",)),
    ("kernels", ("kernels/",)),
    ("kernels/support", ("kernels/support/",)),
    ("kernels/cpu/libraries", ("kernels/cpu/blas", "kernels/cpu/onednn")),
    ("kernels/cpu/array", ("kernels/cpu/array/",)),
    ("kernels/cpu/matmul", ("kernels/cpu/matmul/",)),
    ("kernels/cpu/math", ("kernels/cpu/math/",)),
    ("kernels/cpu/linalg", ("kernels/cpu/linalg/",)),
    ("kernels/cpu/random", ("kernels/cpu/random/",)),
    ("kernels/cpu/nn", ("kernels/cpu/nn/",)),
    ("kernels/cpu/sparse", ("kernels/cpu/sparse/",)),
    ("kernels/cpu/media", ("kernels/cpu/media/",)),
    ("kernels/cpu/quant", ("kernels/cpu/quant/",)),
    ("kernels/cpu/state", ("kernels/cpu/state/",)),
    ("kernels/host", ("kernels/host/",)),
    ("kernels/host/text", ("kernels/host/text/",)),
    ("kernels/host/resources", ("kernels/host/resources/",)),
    ("kernels/host/files", ("kernels/host/files/",)),
    ("kernels/host/data", ("kernels/host/data/",)),
    ("kernels/cpu", ("kernels/cpu/",)),
    ("kernels/infer_eval", ("kernels/infer_eval",)),
    ("rpc", ("rpc/",)),
    ("rpc/tls", ("rpc/tls/",)),
    ("rpc/grpc", ("rpc/grpc/",)),
    ("rpc/rdma", ("rpc/rdma/",)),
    ("rpc/shm", ("rpc/shm/",)),
    ("rpc/wire", ("rpc/wire/",)),
    ("rpc/membership", ("rpc/membership/",)),
    ("rpc/relay", ("rpc/relay/",)),
    ("rpc/admin, daemon", ("rpc/admin", "rpc/daemon")),
    ("worker/state", ("worker/container", "worker/session_state")),
    ("worker/plan", ("worker/plan/",)),
    ("worker/exchange", ("worker/exchange/",)),
    ("worker/executor", ("worker/executor/",)),
    ("worker/service", ("worker/service/",)),
    ("worker", ("worker/",)),
    ("master/request", ("master/request/",)),
    ("master/compile", ("master/compile/",)),
    ("master/cluster", ("master/cluster/",)),
    ("master/session", ("master/session/",)),
    ("master/step", ("master/step/",)),
    ("master/service", ("master/service/",)),
    ("master", ("master/",)),
    ("client", ("client/",)),
    ("tfctl", ("tfctl/",)),
)
FLOORS = {
    "proto": set(),
    "common": {"proto"},
    "kernels": {"common"},
    "rpc": {"common", "proto"},
    "master": {"kernels", "rpc", "common", "proto"},
    "worker": {"kernels", "rpc", "common", "proto"},
    "client": {"rpc", "common", "proto"},
    "tfctl": {"client", "rpc", "common", "proto"},
}
# Each library has one home.
LIBRARY_HOMES = {
    "uv.h": {"rpc"}, "nghttp2/": {"rpc"}, "curl/": {"rpc"}, "openssl/": {"rpc"}, "infiniband/": {"rpc"}, "microhttpd.h": {"rpc"},
    "cblas.h": {"kernels/cpu"}, "dnnl": {"kernels/cpu"}, "cuda": {"kernels/cuda"}, "ini.h": {"common/base"}, "jansson.h": {"rpc", "kernels/host/text"},
    "zlib.h": {"rpc", "common/io"}, "pcre2.h": {"kernels/host/text"}, "unicode/": {"kernels/host/text"},
}
BANNED = re.compile(r"(?<![\w.>])(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|alloca)\s*\(")
SOURCE_FOLDERS = (*FLOORS, "bench", "tests")


def sources(endings=(".c", ".h", ".inc")):
    for folder in SOURCE_FOLDERS:
        for directory, _, files in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(files):
                if name.endswith(endings):
                    path = os.path.join(directory, name)
                    yield os.path.relpath(path, ROOT), open(path, encoding="utf-8").read()


def room_of(path):
    """The room's index in ROOMS: of a file that is named, else of its folder. None: the folder has no room."""
    names = (path, os.path.splitext(path)[0], os.path.dirname(path) + "/")
    for name in names:
        for index, (_, members) in enumerate(ROOMS):
            if name in members:
                return index
    return None


def includes(path, text):
    for line, code in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', code)
        if match:
            yield line, match.group(1)


def check_include_table():
    for path, text in sources():
        floor, room = path.split("/")[0], room_of(path)
        if floor not in FLOORS:
            continue
        if room is None:
            yield f"{path}: its folder has no room in ROOMS"
            continue
        for line, target in includes(path, text):
            target_room = room_of(target)
            if "/" not in target:
                yield f'{path}:{line}: #include "{target}": give the path from the root'
            elif target.split("/")[0] not in FLOORS[floor] | {floor}:
                yield f"{path}:{line}: {floor}/ may not include {target}"
            elif target_room is None or target_room > room:
                yield f"{path}:{line}: {ROOMS[room][0]} stands below {target}"
            elif target.endswith("_internal.h") and os.path.dirname(target) != os.path.dirname(path):
                yield f"{path}:{line}: {target} is for its own room only"


def check_library_homes():
    for path, text in sources():
        if path.split("/")[0] in ("tests", "bench"):
            continue
        for line, include in enumerate(text.splitlines(), 1):
            match = re.match(r"\s*#\s*include\s+<([^>]+)>", include)
            if not match:
                continue
            for library, homes in LIBRARY_HOMES.items():
                if match.group(1).startswith(library) and not any(path.startswith(home + "/") for home in homes):
                    yield f"{path}:{line}: <{match.group(1)}> belongs to {', '.join(sorted(homes))}"


def strip_comments_and_strings(text):
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def check_banned_calls():
    for path, text in sources():
        for line, code in enumerate(strip_comments_and_strings(text).splitlines(), 1):
            match = BANNED.search(code)
            if match:
                yield f"{path}:{line}: {match.group(1)} is banned"


def check_header_guards():
    for path, text in sources((".h",)):
        guard = "MILLRACE_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper()
        if not re.search(rf"^#ifndef {guard}$", text, re.M):
            yield f"{path}: its guard should be {guard}"


def check_own_header_first():
    for path, text in sources((".c",)):
        header = path[:-2] + ".h"
        first = re.search(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', text, re.M)
        is_template = first and first.group(1).endswith(".inc")  # a build of a template includes nothing else
        if os.path.exists(os.path.join(ROOT, header)) and first and not is_template and first.group(1) != header:
            yield f"{path}: should include {header} first"


def check_opening_comment():
    for path, text in sources((".c", ".h")):
        has_header = path.endswith(".c") and os.path.exists(os.path.join(ROOT, path[:-2] + ".h"))
        if not text.startswith(("/*", "//")) and not has_header:
            yield f"{path}: opens without saying what it is"


def check_folder_readmes():
    """Each source file of a folder is named in the folder's README, or in that of the folder above, alone or by a pattern; `x.h` stands
    for x.c, too. What they name is there."""
    folders, everywhere = {}, set()
    for path, _ in sources():
        everywhere.add(os.path.basename(path))
        if path.split("/")[0] in FLOORS or path.startswith("tests/sim/"):
            folders.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    for folder, files in folders.items():
        places = (folder + "/README.md", os.path.dirname(folder) + "/README.md")
        readme = next((path for path in places if os.path.exists(os.path.join(ROOT, path))), None)
        if readme is None:
            yield f"{folder}/: neither it nor the folder above has a README.md"
            continue
        with open(os.path.join(ROOT, readme), encoding="utf-8") as f:
            words = [os.path.basename(word) for word in re.findall(r"`([\w./*]+)`", f.read())]
        exact = {os.path.splitext(word)[0] for word in words if "*" not in word}
        patterns = [word for word in words if "*" in word]
        for word in sorted(set(words)):
            if word.endswith((".c", ".h", ".inc")) and "*" not in word and not re.search("[A-Z]", word) and word not in everywhere:
                yield f"{readme}: names {word}, which is not there"
        for name in files:
            if os.path.splitext(name)[0] not in exact and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                yield f"{readme}: does not name {folder}/{name}"


def check_format():
    if not shutil.which("clang-format"):
        yield "clang-format is missing: tools/setup build"
        return
    files = [path for path, _ in sources((".c", ".h")) if not path.endswith("op_signatures.c")]
    for at in range(0, len(files), 100):
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=1"] + files[at:at + 100], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for line in done.stderr.splitlines():
            if "error:" in line:
                yield line


def check_generated_files():
    """Each generator compares what it would write; what it needs (.venv, a build) may be missing, then it is left out."""
    venv = os.path.join(ROOT, ".venv", "bin", "python")
    for python, generator in ((venv, "tools/gen_op_signatures.py"), (sys.executable, "tools/gen_docs.py")):
        if not os.path.exists(python):
            continue
        done = subprocess.run([python, generator, "--check"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode != 0:
            yield f"{generator} --check: its output is out of date"


def main():
    checks = [value for name, value in sorted(globals().items()) if name.startswith("check_")]
    n_failed = 0
    for check in checks:
        complaints = list(check())
        for complaint in complaints[:40]:
            print(complaint)
        if complaints:
            print(f"{check.__name__}: {len(complaints)} complaints")
            n_failed += 1
    print(f"{len(checks) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
