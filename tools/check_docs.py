"""The checks of tools/check.py that read pages and words: links, paths, line lengths, retired
words."""
import glob
import os
import re

import check

# Pages that a program writes, and which.
GENERATED_PAGES = {
    "docs/flags.md": "tools/gen_docs.py",
    "docs/gpu-ops.md": "tools/gen_docs.py",
    "docs/metrics.md": "tools/gen_docs.py",
    "docs/ops.md": "tools/gen_docs.py",
    "docs/paper-map.md": "tools/gen_docs.py",
    "docs/op_report.md": "run_kernels.py --report",
}
SKIPPED_FOLDERS = {".git", ".venv", ".venv-tools", "__pycache__", "corpus", "out"}
TEXT = (".c", ".h", ".inc", ".py", ".md", ".proto", ".build", ".ini", ".env", ".service", ".yaml",
        ".txt")

# Files of our workplace that are not in the tree. Nothing in the tree may send a reader to them.
ABSENT_FILES = re.compile(
    r"\bDESIGN\.md|\bTF_PROTOCOL\.md|\bSTYLE\.md|\.\./shared/|(?<![\w/])shared/[A-Z]")

GLOSSARY = "docs/glossary.md"


def tree(endings=TEXT):
    """(path, text) of every file of the tree that people write."""
    for directory, folders, files in os.walk(check.ROOT):
        folders[:] = sorted(name for name in folders
                            if name not in SKIPPED_FOLDERS and not name.startswith("build"))
        for name in sorted(files):
            path = os.path.relpath(os.path.join(directory, name), check.ROOT)
            if name.endswith(endings):
                with open(os.path.join(check.ROOT, path), encoding="utf-8", errors="replace") as f:
                    yield path, f.read()


def pages():
    return [(path, text) for path, text in tree((".md",))]


def without_code(page):
    """The page with its code blocks blanked, line by line."""
    return re.sub(r"^```.*?^```", lambda match: re.sub(r"[^\n]", "", match.group()), page,
                  flags=re.S | re.M)


def check_page_line_length():
    """Prose wraps at the limit. Rows of tables, code blocks and links cannot."""
    for path, text in pages():
        if path in GENERATED_PAGES:
            continue
        for number, line in enumerate(without_code(text).splitlines(), 1):
            if len(line) > check.LINE_LIMIT and not line.startswith(
                ("|", "<!--")) and "](" not in line:
                yield f"{path}:{number}: {len(line)} columns, the limit is {check.LINE_LIMIT}"


def check_absent_files():
    for path, text in tree():
        if path.startswith("tools/check"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = ABSENT_FILES.search(line)
            if match:
                yield f"{path}:{number}: refers to {match.group()}, which is not in the tree"


def anchors(text):
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", without_code(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
            for heading in headings}


def links(text):
    """(line, target) of the links of a page to files of the tree and to headings."""
    for number, line in enumerate(without_code(text).splitlines(), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if not re.match(r"[a-z+]+:", target):
                yield number, target


def check_links():
    for path, text in pages():
        for line, target in links(text):
            name, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(check.ROOT, os.path.dirname(path),
                    name)) if name else \
                os.path.join(check.ROOT, path)
            if not os.path.exists(full):
                yield f"{path}:{line}: links to {target}, which does not exist"
            elif anchor and full.endswith(".md"):
                with open(full, encoding="utf-8") as f:
                    if anchor not in anchors(f.read()):
                        yield f"{path}:{line}: {target} has no such heading"


def check_readmes_are_linked():
    """A reader who starts at README.md and follows links gets to every README and every page of
    docs/."""
    texts, seen, todo = dict(pages()), set(), ["README.md"]
    while todo:
        path = todo.pop()
        if path in seen or path not in texts:
            continue
        seen.add(path)
        for _, target in links(texts[path]):
            name = os.path.normpath(os.path.join(os.path.dirname(path), target.partition("#")[0]))
            todo.append(os.path.join(name, "README.md")
                        if os.path.isdir(os.path.join(check.ROOT, name)) else name)
    for path in sorted(set(texts) - seen):
        yield f"{path}: no link leads to it from README.md"


def exists(page, name):
    """Whether a path that a page names matches a file, from the root or from the page's folder."""
    return any(glob.glob(os.path.join(folder, name + ending)) for ending in ("", ".*")
               for folder in (check.ROOT, os.path.join(check.ROOT, os.path.dirname(page))))


def check_paths_in_pages():
    """A path in backticks exists when its first folder is one of ours. A pattern matches; x stands
    for x.c, too."""
    rooms = {name for name, _ in check.ROOMS}
    folders = "|".join(sorted(name for name in os.listdir(check.ROOT)
                              if os.path.isdir(os.path.join(check.ROOT, name))
                              and not name.startswith((".", "build"))))
    for path, text in pages():
        if path == "CHANGELOG.md":
            continue  # says what was, in the words of its day
        for number, line in enumerate(without_code(text).splitlines(), 1):
            for name in re.findall(rf"`((?:{folders})/[\w./*-]+)`", line):
                if "FAMILY" not in name and name not in rooms and not exists(path, name):
                    yield f"{path}:{number}: {name} does not exist"


def comments(text):
    """C source with everything but its comments blanked."""
    out, at = [], 0
    for match in re.finditer(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', text,
                             re.S):
        out.append(re.sub(r"[^\n]", " ", text[at:match.start()]))
        is_comment = match.group()[0] == "/"
        out.append(match.group() if is_comment else re.sub(r"[^\n]", " ", match.group()))
        at = match.end()
    return "".join(out) + re.sub(r"[^\n]", " ", text[at:])


def retired_rows(glossary):
    """[(pattern, literal, where, instead, kept)] of the glossary's table of retired words. A text
    without the literal, which is in lower case, does not match.

    A row is | `word` | where | write | why | kept in |. Where is "code" (identifiers of C
    files) or "prose" (comments, pages and READMEs). `*` in a word stands for letters. "kept in"
    names files and folders.
    """
    rows = []
    table = glossary.partition("## Retired words")[2]
    for words, where, instead, why, kept in re.findall(
        r"^\| (`.*?`) \| (code|prose) \| (.*?) \| (.*?) \| (.*?) ?\|$", table, re.M):
        for word in re.findall(r"`([^`]+)`", words):
            pattern = re.escape(word).replace(r"\*", r"\w*").replace(r"\ ", r"\s+(?:\*\s+)?")
            literal = max(re.split(r"[* ]", word.lower()), key=len)
            rows.append((rf"(?<![\w.])(?:{pattern})(?!\w)", literal, where,
                         f"write {instead} ({why})", tuple(re.findall(r"`([^`]+)`", kept))))
    return rows


def retired_words_of(path, text, rows):
    """Complaints about the retired words in one file."""
    is_c = path.endswith((".c", ".h", ".inc"))
    searched = {"prose": comments(text) if is_c else without_code(text)}
    if is_c:
        searched["code"] = check.strip_comments_and_strings(text)
    lowered = {where: words.lower() for where, words in searched.items()}
    for pattern, literal, where, instead, kept in rows:
        if literal not in lowered.get(where, ""):
            continue
        if path in kept or path.startswith(tuple(name for name in kept if name.endswith("/"))
                                           or ("\0",)):
            continue
        words = searched[where]
        for match in re.finditer(pattern, words, re.I if where == "prose" else 0):
            line = words.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {' '.join(match.group().split())!r} is retired: {instead}"


def check_retired_words():
    with open(os.path.join(check.ROOT, GLOSSARY), encoding="utf-8") as f:
        rows = retired_rows(f.read())
    if not rows:
        yield f"{GLOSSARY}: has no table of retired words"
    for path, text in tree((".c", ".h", ".inc", ".md")):
        if path not in ("CHANGELOG.md", GLOSSARY,
                        "docs/past-bugs.md") and path not in GENERATED_PAGES:
            yield from retired_words_of(path, text, rows)
