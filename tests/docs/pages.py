"""Reads the code blocks of a page, and the comments that say how each of them is tested.

A comment `<!-- docs: WORDS -->` on the line before a block belongs to the block. README.md of this
folder lists the words.
"""
import re
import shlex

LANGUAGES = ("sh", "console", "python", "ini", "c", "text", "mermaid")
MODES = ("run", "serve", "hosts", "syntax")
VALUES = ("until", "setup", "from", "adds-to", "cluster", "reason")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
MARKER = re.compile(r"<!-- docs: ((?:(?!-->).)*?) -->\n$", re.S)


class Block:
    """One code block: its page, the line of its fence, its language, its text, and what its marker
    says."""

    def __init__(self, page, line, language, text, marker):
        self.page, self.line, self.language, self.text = page, line, language, text
        self.mode, self.values, self.mistake = "run", {}, None
        for word in shlex.split(marker):
            name, is_value, value = word.partition("=")
            if is_value and name in VALUES:
                self.values[name] = value
            elif not is_value and name in MODES:
                self.mode = name
            else:
                self.mistake = f"the marker's word {word!r} is unknown"
        if language not in LANGUAGES:
            self.mistake = f"the language {language!r} is none of {', '.join(LANGUAGES)}"
        elif language == "c" and not ("from" in self.values or "adds-to" in self.values):
            self.mistake = "a block of C says from=FILE or adds-to=FILE"
        elif self.mode == "syntax" and not self.values.get("reason"):
            self.mistake = "a block that is not run gives a reason"
        elif self.mode in ("serve", "hosts") and not self.values.get("until"):
            self.mistake = "a block that leaves programs running says until=COMMAND"

    @property
    def name(self):
        return f"{self.page}:{self.line}"


def read_blocks(page, text):
    """The blocks of a page, in order. Blocks inside of comments are none."""
    blocks = []
    for match in FENCE.finditer(text):
        marker = MARKER.search(text[:match.start()])
        blocks.append(Block(page, text.count("\n", 0, match.start()) + 1, match.group(1),
                            match.group(2),
                            marker.group(1) if marker else ""))
    return blocks


def split_hosts(text):
    """[(host, commands)] of a block whose sections begin with `# on HOST`. Raises ValueError when
    it has none."""
    parts = re.split(r"^# on ([\w-]+).*\n", text, flags=re.M)
    if parts[0].strip() or len(parts) < 3:
        raise ValueError('a block with hosts begins with "# on HOST"')
    return list(zip(parts[1::2], parts[2::2]))


def split_console(text):
    """[(command, lines of its output)] of a block of commands behind "$ ", each with the output
    under it."""
    steps = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif steps:
            steps[-1][1].append(line)
        else:
            raise ValueError('a console block begins with "$ COMMAND"')
    return steps


def output_matches(expected, actual):
    """True when the lines of `expected` are the output; a line "..." stands for any number of
    lines."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(output_matches(expected[1:], actual[at:]) for at in range(len(actual) + 1))
    return bool(actual) and expected[0].rstrip() == actual[0].rstrip() and output_matches(
        expected[1:], actual[1:])


def simple_commands(text):
    """[[word, ...]] of a shell text: its simple commands, good enough to find programs and their
    flags."""
    commands = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        words = []
        for word in lexer:
            if re.fullmatch(r"[;&|()]+", word):
                commands.append(words)
                words = []
            elif words or not re.fullmatch(r"\w+=.*", word):
                words.append(word)
        commands.append(words)
    return [words for words in commands if words]


def flags_of(words):
    """The long flags among the words of a command, up to a bare "--", without values."""
    words = words[:words.index("--")] if "--" in words else words
    return [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]
