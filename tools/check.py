#!/usr/bin/env python3
"""Checks the sources without building them: `tools/dev check`.

    tools/check.py                           run every check; the last line is "N passed, N failed"
    tools/check.py --include-graph           print the rooms and their includes as a Mermaid drawing
    tools/check.py --include-graph --write   write the drawing into docs/architecture.md
    tools/check.py --report                  list long files and long functions; this never fails

A check is a function named check_*. It yields one complaint a line. Checks of pages and of words
are in check_docs.py.
"""
import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The rooms, bottom first. A file may include files of its own room and of rooms that are listed
# before it, as far as the row of its top folder in FLOORS allows. So no include points upwards,
# and there is no circle. A room is a folder's own files, without those of the folders inside it.
# A room may also be single files that are lower or higher than the rest of their folder:
# "kernels/infer_eval" is kernels/infer_eval.c and kernels/infer_eval.h.
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
    ("kernels/cuda/rows", ("kernels/cuda/rows/",)),
    ("kernels/support", ("kernels/support/",)),
    ("kernels/cpu/libraries", ("kernels/cpu/blas", "kernels/cpu/onednn")),
    ("kernels/cpu/emit", ("kernels/cpu/emit/",)),
    ("kernels/cpu/array", ("kernels/cpu/array/",)),
    ("kernels/cpu/matmul", ("kernels/cpu/matmul/",)),
    ("kernels/cpu/math", ("kernels/cpu/math/",)),
    ("kernels/cpu/linalg", ("kernels/cpu/linalg/",)),
    ("kernels/cpu/random", ("kernels/cpu/random/",)),
    ("kernels/cpu/nn", ("kernels/cpu/nn/",)),
    ("kernels/cpu/fused", ("kernels/cpu/fused/",)),
    ("kernels/cpu/sparse", ("kernels/cpu/sparse/",)),
    ("kernels/cpu/media", ("kernels/cpu/media/",)),
    ("kernels/cpu/quant", ("kernels/cpu/quant/",)),
    ("kernels/cpu/state", ("kernels/cpu/state/",)),
    ("kernels/host", ("kernels/host/",)),
    ("kernels/host/text", ("kernels/host/text/",)),
    ("kernels/host/debug", ("kernels/host/debug/",)),
    ("kernels/host/resources", ("kernels/host/resources/",)),
    ("kernels/host/files", ("kernels/host/files/",)),
    ("kernels/host/data", ("kernels/host/data/",)),
    ("kernels/host/calls", ("kernels/host/calls/",)),
    ("kernels/cpu", ("kernels/cpu/",)),
    ("kernels/cuda", ("kernels/cuda/",)),
    ("kernels/cuda/ops", ("kernels/cuda/ops/",)),
    ("kernels/cuda/plugin", ("kernels/cuda/plugin",)),
    ("kernels/infer_eval", ("kernels/infer_eval",)),
    ("rpc", ("rpc/",)),
    ("rpc/tls", ("rpc/tls/",)),
    ("rpc/grpc", ("rpc/grpc/",)),
    ("rpc/rdma", ("rpc/rdma/",)),
    ("rpc/shm", ("rpc/shm/",)),
    ("rpc/wire", ("rpc/wire/",)),
    ("rpc/membership", ("rpc/membership/",)),
    ("rpc/relay", ("rpc/relay/",)),
    ("rpc/daemon", ("rpc/daemon/",)),
    ("worker/state", ("worker/client_state", "worker/container", "worker/session_state")),
    ("worker/plan", ("worker/plan/",)),
    ("worker/exchange", ("worker/exchange/",)),
    ("worker/executor", ("worker/executor/",)),
    ("worker/service", ("worker/service/",)),
    ("worker", ("worker/",)),
    ("master/request", ("master/request/",)),
    ("master/compile", ("master/compile/",)),
    ("master/compile/inline", ("master/compile/inline/",)),
    ("master/compile/rewrite", ("master/compile/rewrite/",)),
    ("master/compile/cost", ("master/compile/cost/",)),
    ("master/compile/place", ("master/compile/place/",)),
    ("master/compile/fuse", ("master/compile/fuse/",)),
    ("master/compile/partition", ("master/compile/partition/",)),
    ("master/cluster", ("master/cluster/",)),
    ("master/session", ("master/session/",)),
    ("master/step", ("master/step/",)),
    ("master/service", ("master/service/",)),
    ("master", ("master/",)),
    ("client/local", ("client/local/",)),
    ("client", ("client/", "client/training/")),
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
# These put a master and a worker into one process, so they may include floors beside theirs.
JOINS = {"master/main.c": {"worker"}, "client/local/local.c": {"master", "worker"}}
# Each library has one home.
LIBRARY_HOMES = {
    "uv.h": {"rpc"}, "nghttp2/": {"rpc"}, "curl/": {"rpc"}, "openssl/": {"rpc"},
    "infiniband/": {"rpc"}, "microhttpd.h": {"rpc"},
    "cblas.h": {"kernels/cpu"}, "dnnl": {"kernels/cpu"}, "cuda": {"kernels/cuda"},
    "ini.h": {"common/base"}, "jansson.h": {"rpc", "kernels/host/text"},
    "zlib.h": {"rpc", "common/io"}, "pcre2.h": {"kernels/host/text"},
    "unicode/": {"kernels/host/text"},
}
BANNED = re.compile(
    r"(?<![\w.>])(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|alloca)\s*\(")
SOURCE_FOLDERS = (*FLOORS, "bench", "tests")


def sources(endings=(".c", ".h", ".inc")):
    for folder in SOURCE_FOLDERS:
        for directory, _, files in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(files):
                if name.endswith(endings):
                    path = os.path.join(directory, name)
                    with open(path, encoding="utf-8") as f:
                        yield os.path.relpath(path, ROOT), f.read()


def room_of(path):
    """The room's index in ROOMS: of a file that is named, else of its folder. None: the folder has
    no room."""
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
            elif target.split("/")[0] not in FLOORS[floor] | {floor} | JOINS.get(path, set()):
                yield f"{path}:{line}: {floor}/ may not include {target}"
            elif target_room is None or target_room > room:
                yield f"{path}:{line}: {ROOMS[room][0]} stands below {target}"
            elif target.endswith("_internal.h") and os.path.dirname(target) != os.path.dirname(
                path):
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
                if match.group(1).startswith(library) and not any(
                    path.startswith(home + "/") for home in homes):
                    yield f"{path}:{line}: <{match.group(1)}> belongs to {', '.join(sorted(homes))}"


def strip_comments_and_strings(text):
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"',
                  lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def check_banned_calls():
    for path, text in sources():
        for line, code in enumerate(strip_comments_and_strings(text).splitlines(), 1):
            match = BANNED.search(code)
            if match:
                yield f"{path}:{line}: {match.group(1)} is banned"


def check_internal_errors():
    """INTERNAL is for broken invariants: every place that says it has been reviewed."""
    import internal_errors
    found = {}
    for path, text in sources():
        if path.split("/")[0] in internal_errors.FOLDERS and not path.startswith(
            "common/base/status."):
            n = len(re.findall(r"\bstatus_internal\(|\bSTATUS_INTERNAL\b",
                               strip_comments_and_strings(text)))
            if n:
                found[path] = n
    for path in sorted({*found, *internal_errors.REVIEWED}):
        listed = internal_errors.REVIEWED.get(path, (0,))[0]
        if found.get(path, 0) != listed and os.path.exists(os.path.join(ROOT, path)):
            yield (f"{path}: says INTERNAL {found.get(path, 0)} times, reviewed are {listed}: "
                   "can a client provoke it? (tools/internal_errors.py)")


def check_header_guards():
    for path, text in sources((".h",)):
        guard = "MILLRACE_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper()
        if not re.search(rf"^#ifndef {guard}$", text, re.M):
            yield f"{path}: its guard should be {guard}"


def check_own_header_first():
    for path, text in sources((".c",)):
        header = path[:-2] + ".h"
        first = re.search(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', text, re.M)
        # a build of a template includes nothing else
        is_template = first and first.group(1).endswith(".inc")
        if os.path.exists(os.path.join(ROOT, header)) and first and not is_template and first.group(
            1) != header:
            yield f"{path}: should include {header} first"


def opening_comment(text):
    """The text of the comment at the top of a C file, on one line; "" when there is none."""
    match = re.match(r"/\*(.*?)\*/|((?://[^\n]*\n)+)", text, re.S)
    if not match:
        return ""
    body = match.group(1) if match.group(1) is not None else match.group(2)
    return " ".join(re.sub(r"^\s*(\*|//)", "", line).strip() for line in body.splitlines()).strip()


def check_opening_comment():
    """Every file opens with a sentence: at least three words, and a full stop, a colon or a
    semicolon after them."""
    for path, text in sources((".c", ".h", ".inc")):
        if path in GENERATED:
            continue
        opening = opening_comment(text)
        if not opening:
            yield f"{path}: opens without a sentence that says what the file does"
        elif not re.match(r"[^.:;]*\w+\W+\w+\W+\w.*?[.:;]", opening):
            yield f"{path}: its opening comment is no sentence: {opening[:60]!r}"


# ---- layout ----

LINE_LIMIT = 100
MACRO_LIMIT = 15
# Files that no person edits line by line, and why.
GENERATED = {
    "common/signatures/op_signatures.c": "tools/gen_op_signatures.py",
    "kernels/cuda/rows/gpu_rows.c": "tools/gen_gpu_rows.py",
    "kernels/host/text/unicode_case.c": "tools/gen_unicode_case.py",
    "kernels/support/unicode_case.c": "tools/gen_unicode_case.py",
}
LIMITED_FOLDERS = (*SOURCE_FOLDERS, "tools", "examples", "configs", "deploy")
LIMITED = (".c", ".h", ".inc", ".py", ".proto", ".build", ".ini", ".env", ".sh")
LIMITED_FILES = ("quickstart", "test", "tools/dev", "tools/setup", "meson.build",
                 "meson_options.txt")


def limited_files():
    for folder in LIMITED_FOLDERS:
        for directory, _, files in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(files):
                if name.endswith(LIMITED):
                    yield os.path.relpath(os.path.join(directory, name), ROOT)
    for path in LIMITED_FILES:
        if os.path.exists(os.path.join(ROOT, path)):
            yield path


def check_line_length():
    for path in limited_files():
        if path in GENERATED:
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                if len(line.rstrip("\n")) > LINE_LIMIT:
                    yield (f"{path}:{number}: {len(line.rstrip())} columns, the limit is "
                           f"{LINE_LIMIT}")


def macros(text):
    """(line, number of lines) of each #define."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        start = at
        if re.match(r"\s*#\s*define\b", lines[at]):
            while at + 1 < len(lines) and lines[at].rstrip().endswith("\\"):
                at += 1
            yield start + 1, at - start + 1
        at += 1


def check_macro_length():
    for path, text in sources((".c", ".h", ".inc")):
        for line, length in macros(text):
            if length > MACRO_LIMIT:
                yield (f"{path}:{line}: a macro of {length} lines; past {MACRO_LIMIT} it becomes "
                       "an .inc template")


# ---- commits ----

FIRST_CHECKED_COMMIT = "all: lines end at column 100"
NO_IMPERATIVES = frozenset(
    "a an the this that these those what who which where when how why no not none all each every "
    "some it its his "
    "their there here one two three four five is are was were has have had can could may might "
    "must of in on at by "
    "for from to with and or but if as than then more most less new old also only".split())


def subject_complaint(subject):
    """What is wrong with a commit's subject; None when nothing is."""
    if len(subject) > 72:
        return f"{len(subject)} characters, the limit is 72"
    if ";" in subject:
        return 'has a ";"'
    match = re.match(r"[\w./*{}-]+(?:, [\w./*{}-]+)*: (\S+)", subject)
    if not match:
        return 'is not "folder: imperative"'
    word = match.group(1).lower()
    is_third_person = re.search(r"[^su]s$", word) and word not in ("focus", "bias", "alias")
    if word in NO_IMPERATIVES or not re.fullmatch(r"[a-z][a-z-]*", word) or is_third_person or \
            re.search(r"(?<!e)ed$|ing$", word) and word not in (
                "bring", "embed", "shed", "string", "ping", "wed"):
        return f'"{match.group(1)}" is no imperative'
    return None


def commits_to_check():
    """[(hash, number of parents, subject)] after FIRST_CHECKED_COMMIT, newest first. Empty without
    git."""
    log = subprocess.run(["git", "log", "--format=%h%x09%p%x09%s"], cwd=ROOT, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    rows = [line.split("\t", 2) for line in log.stdout.splitlines()]
    subjects = [subject for _, _, subject in rows]
    if FIRST_CHECKED_COMMIT not in subjects:
        return []
    return [(name, len(parents.split()), subject)
            for name, parents, subject in rows[:subjects.index(FIRST_CHECKED_COMMIT)]]


def check_commit_subjects():
    for name, n_parents, subject in commits_to_check():
        complaint = subject_complaint(subject)
        if n_parents > 1:
            yield f"{name}: is a merge commit: rebase instead"
        elif complaint:
            yield f"{name}: {complaint}: {subject}"


# ---- the drawing of the rooms ----

DRAWING_PAGE = "docs/architecture.md"
DRAWING_BEGIN = "<!-- The next block is written by tools/check.py --include-graph --write. -->\n"
DRAWING_END = "<!-- The end of what tools/check.py writes. -->\n"


def room_includes():
    """{room: rooms whose files it includes}, both as indices into ROOMS."""
    edges = {index: set() for index in range(len(ROOMS))}
    for path, text in sources():
        room = room_of(path) if path.split("/")[0] in FLOORS else None
        if room is None:
            continue
        for _, target in includes(path, text):
            other = room_of(target)
            if other is not None and other != room:
                edges[room].add(other)
    return edges


def reachable(edges, start):
    """The rooms that can be reached from start by one arrow or more."""
    found, todo = set(), list(edges[start])
    while todo:
        room = todo.pop()
        if room not in found:
            found.add(room)
            todo.extend(edges[room])
    return found


def wrong_arrows(edges):
    """Complaints about arrows that point upwards and rooms on a circle."""
    for room, others in edges.items():
        for other in others:
            if other > room:
                yield f"{ROOMS[room][0]} -> {ROOMS[other][0]} points upwards"
    for room in edges:
        if room in reachable(edges, room):
            yield f"{ROOMS[room][0]} is on a circle"


def reduced(edges):
    """The arrows that do not follow from others: what is left out can be reached in two arrows or
    more."""
    below = {room: reachable(edges, room) for room in edges}
    return {room: {other for other in others
                   if not any(other in below[middle] for middle in others if middle != other)}
            for room, others in edges.items()}


def include_drawing():
    """The rooms as a Mermaid flowchart, a box per top folder, the highest room first."""
    arrows = reduced(room_includes())
    ids = [re.sub(r"\W+", "_", name) for name, _ in ROOMS]
    out = ["```mermaid\n", "flowchart TD\n"]
    for floor in dict.fromkeys(name.split("/")[0] for name, _ in reversed(ROOMS)):
        out.append(f"  subgraph {floor}_rooms [{floor}]\n")
        out += [f'    {ids[index]}["{name}"]\n' for index,
                (name, _) in reversed(list(enumerate(ROOMS)))
                if name.split("/")[0] == floor]
        out.append("  end\n")
    for room in reversed(range(len(ROOMS))):
        out += [f"  {ids[room]} --> {ids[other]}\n" for other in sorted(arrows[room], reverse=True)]
    return "".join(out) + "```\n"


def first_sentence(page):
    """What a page says first: the title after its colon, or the first sentence below the title."""
    title, _, rest = page.lstrip("# ").partition("\n")
    if ": " in title:
        return title.partition(": ")[2]
    paragraph = " ".join(rest.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`\]])[.:](?= |$)", paragraph)[0].replace("|", "\\|")


def room_table():
    """The rooms, the lowest first, each with the first sentence of its README."""
    out = ["| room | what it holds |\n", "|---|---|\n"]
    for name, members in ROOMS:
        readme = members[0] + "README.md" if members[0].endswith("/") else None
        if readme is None or not os.path.exists(os.path.join(ROOT, readme)):
            files = ", ".join(f"`{member}`" for member in members)
            out.append(f"| {name} | {'files: ' + files if readme is None else ''} |\n")
            continue
        with open(os.path.join(ROOT, readme), encoding="utf-8") as f:
            out.append(f"| [{name}](../{readme}) | {first_sentence(f.read())} |\n")
    return "".join(out) + "\n"


def generated_rooms():
    """What tools/check.py writes into the page: the drawing, and the table of rooms."""
    return include_drawing() + "\n" + room_table()


def page_with_drawing(page, drawing):
    """The page with the drawing between its two markers; None when a marker is missing."""
    if DRAWING_BEGIN not in page or DRAWING_END not in page:
        return None
    before, rest = page.split(DRAWING_BEGIN, 1)
    return before + DRAWING_BEGIN + drawing + DRAWING_END + rest.split(DRAWING_END, 1)[1]


def check_include_drawing():
    yield from wrong_arrows(room_includes())
    with open(os.path.join(ROOT, DRAWING_PAGE), encoding="utf-8") as f:
        page = f.read()
    wanted = page_with_drawing(page, generated_rooms())
    if wanted is None:
        yield f"{DRAWING_PAGE}: has no place for the drawing of the rooms"
    elif wanted != page:
        yield (f"{DRAWING_PAGE}: the drawing of the rooms is out of date: tools/check.py "
               "--include-graph --write")


def show_include_graph(write):
    complaints = list(wrong_arrows(room_includes()))
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not write:
        print(include_drawing(), end="")
        return 1 if complaints else 0
    path = os.path.join(ROOT, DRAWING_PAGE)
    with open(path, encoding="utf-8") as f:
        page = page_with_drawing(f.read(), generated_rooms())
    if page is None:
        print(f"{DRAWING_PAGE} has no place for the drawing", file=sys.stderr)
        return 1
    with open(path, "w", encoding="utf-8") as f:
        f.write(page)
    return 1 if complaints else 0


# ---- the report ----

FILE_AIM, FUNCTION_AIM = 400, 50


def functions(text):
    """(name, line, number of lines) of each function of a formatted C file: it ends with a "}" in
    column 1."""
    start = name = None
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"(?!typedef|#)[A-Za-z_][\w\s*]*?(\w+)\(", line)
        if start is None and head:
            start, name = number, head.group(1)
        if start is not None and line.rstrip().endswith(";") and not line.startswith(
            (" ", "\t", "}")):
            start = None  # a declaration
        elif start is not None and line.startswith("}"):
            if line.rstrip() == "}":
                yield name, start, number - start + 1
            start = None


def report():
    long_files, long_functions = [], []
    for path, text in sources((".c", ".h", ".inc")):
        if path in GENERATED or path.startswith(("tests/", "bench/")):
            continue
        n_lines = text.count("\n")
        if n_lines > FILE_AIM:
            long_files.append((n_lines, path))
        if path.endswith((".c", ".inc")):
            long_functions += [(length, f"{path}:{line} {name}") for name, line,
                               length in functions(text)
                               if length > FUNCTION_AIM]
    for what, aim, rows in (("files", FILE_AIM, long_files),
                            ("functions", FUNCTION_AIM, long_functions)):
        print(f"{len(rows)} {what} are longer than {aim} lines:")
        for length, where in sorted(rows, reverse=True):
            print(f"{length:6} {where}")
    print(f"{'files':>6} {'lines':>7}  room")
    for index, (name, _) in enumerate(ROOMS):
        texts = [text for path, text in sources() if path.split("/")[0] in FLOORS and room_of(path)
                 == index]
        print(f"{len(texts):6} {sum(text.count(chr(10)) for text in texts):7}  {name}")


def check_folder_readmes():
    """The README of a folder, or of the folder above, names each source file of the folder, alone
    or by a pattern. `x.h` counts for x.c as well. Files that a README names exist."""
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
            if word.endswith((".c", ".h", ".inc")) and "*" not in word and not re.search(
                "[A-Z]", word) and word not in everywhere:
                yield f"{readme}: names {word}, which is not there"
        for name in files:
            if os.path.splitext(name)[0] not in exact and not any(
                fnmatch.fnmatch(name, pattern) for pattern in patterns):
                yield f"{readme}: does not name {folder}/{name}"


class FormattedFiles:
    """Which contents clang-format has found in order before: their hashes, in build/formatted. It
    is slow, and most files are as they were at the last check."""

    def __init__(self):
        self.path = os.path.join(ROOT, "build", "formatted")
        version = subprocess.run(["clang-format", "--version"], stdout=subprocess.PIPE).stdout
        with open(os.path.join(ROOT, ".clang-format"), "rb") as f:
            self.style = hashlib.sha256(version + f.read())
        self.known = set()
        if os.path.exists(self.path):
            with open(self.path) as f:
                self.known = set(f.read().split())

    def hash(self, path):
        both = self.style.copy()
        with open(os.path.join(ROOT, path), "rb") as f:
            both.update(f.read())
        return both.hexdigest()

    def keep(self, paths):
        if os.path.isdir(os.path.dirname(self.path)):
            with open(self.path, "w") as f:
                f.write("\n".join(sorted(map(self.hash, paths))))


def check_format():
    if not shutil.which("clang-format"):
        yield "clang-format is missing: tools/setup build"
        return
    formatted = FormattedFiles()
    files = [path for path, _ in sources((".c", ".h"))
             if not path.endswith(("op_signatures.c", "/rows/gpu_rows.c"))]
    unknown = [path for path in files if formatted.hash(path) not in formatted.known]
    wrong = set()
    for at in range(0, len(unknown), 100):
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=1"]
                              + unknown[at:at + 100], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for line in done.stderr.splitlines():
            if "error:" in line:
                wrong.add(line.split(":")[0])
                yield line
        if done.returncode != 0 and not wrong:
            yield f"clang-format: {done.stderr.strip() or 'failed'}"
            return
    formatted.keep(path for path in files if path not in wrong)


def check_scripts_can_run():
    """A file whose first line names its interpreter is called by its name, in pages and by hand."""
    for path in limited_files():
        full = os.path.join(ROOT, path)
        with open(full, "rb") as f:
            is_script = f.read(2) == b"#!"
        if is_script and not os.access(full, os.X_OK):
            yield f"{path}: begins with #!, but is not executable"


def shell_scripts():
    """Every file of the tree whose first line names a shell."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for path in listed.stdout.split("\n"):
        if not os.path.isfile(os.path.join(ROOT, path)):
            continue
        with open(os.path.join(ROOT, path), "rb") as f:
            if re.match(rb"#!.*[/ ](ba|da)?sh\b", f.readline(80)):
                yield path


def check_shell_scripts():
    if not shutil.which("shellcheck"):
        yield "shellcheck is missing: tools/setup all"
        return
    done = subprocess.run(["shellcheck", "-S", "warning", "-f", "gcc", *shell_scripts()],
                          cwd=ROOT, stdout=subprocess.PIPE, text=True)
    yield from done.stdout.splitlines()


def check_planted_bugs():
    """Each patch in tests/sim/planted/ and tests/cuda/planted/ still applies to the source that it
    plants a bug in."""
    for script in ("tests/sim/planted.py", "tests/cuda/planted_bugs.py"):
        done = subprocess.run([sys.executable, script, "--check"], cwd=ROOT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            yield from done.stdout.splitlines()[:-1] or [done.stdout]


def check_generated_files():
    """Each generator compares what it would write. A generator that lacks what it needs (.venv, a
    build) is left out."""
    venv = os.path.join(ROOT, ".venv", "bin", "python")
    for python, generator in ((venv, "tools/gen_op_signatures.py"),
                              (sys.executable, "tools/gen_docs.py")):
        if not os.path.exists(python):
            continue
        done = subprocess.run([python, generator, "--check"], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
        if done.returncode != 0:
            yield f"{generator} --check: its output is out of date"


def all_checks():
    """Every check of this file and of check_docs.py, by name."""
    import check_docs  # imports this module
    checks = {name: value for module in (sys.modules[__name__], check_docs)
              for name, value in vars(module).items() if name.startswith("check_")
              and callable(value)}
    return [checks[name] for name in sorted(checks)]


def main(arguments):
    if "--include-graph" in arguments:
        return show_include_graph("--write" in arguments)
    if "--report" in arguments:
        report()
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 64
    n_failed = 0
    checks = all_checks()
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
    sys.modules["check"] = sys.modules["__main__"]
    sys.exit(main(sys.argv[1:]))
