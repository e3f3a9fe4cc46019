"""Reads what --help prints: the flags of the programs, as their tables have them."""
import functools
import os
import re
import subprocess
from dataclasses import dataclass, field

PROGRAMS = ("tf-master", "tf-worker", "tfctl")
# VALUEs that name a file or a directory, for shells.
FILES = {"PATH", "FILE"}
DIRECTORIES = {"DIR"}


@dataclass
class Flag:
    name: str
    is_negatable: bool
    value: str  # "" for a boolean
    choices: list
    text: str


@dataclass
class Page:
    command: str  # "tfctl job"
    usage: str
    summary: str
    flags: list = field(default_factory=list)
    verbs: list = field(default_factory=list)  # "end", "begin"
    subcommands: list = field(default_factory=list)  # [(name, summary)] of tfctl
    rest: str = ""


def run_help(bin_directory, *command):
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith("MILLRACE_") and k != "TF_CONFIG"}
    return subprocess.run([os.path.join(bin_directory, command[0]), *command[1:], "--help"],
                          env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


def parse_flag(line):
    """The Flag of a line, or None. One space leads to a value, more lead to the help of a boolean.
    """
    match = re.match(r"  --(\[no-\])([a-z0-9-]+)() +(.*)$|  --()([a-z0-9-]+)(?: (\S+))? +(.*)$",
                     line)
    if not match:
        return None
    negatable, name, value, text = [group or "" for group in match.groups()[
        0 if match.group(2) else 4:]][:4]
    choices = value.split("|") if re.fullmatch(r"[a-z0-9]+(\|[a-z0-9]+)+", value) else []
    return Flag(name, bool(negatable), value, choices, text)


def parse(command, text):
    """The Page of one --help."""
    lines = text.splitlines()
    page = Page(command, lines[0].removeprefix("Usage: "), lines[1])
    verbs = re.match(rf"{command} ([a-z]+(?:\|[a-z]+)+)\b", page.usage)
    page.verbs = verbs.group(1).split("|") if verbs else []
    rest, part = [], None
    for line in lines[2:]:
        if line in ("Options:", "Subcommands:"):
            part = line
        elif line == "":
            part = None
            rest.append(line)
        elif part == "Options:":
            page.flags.append(parse_flag(line))
        elif part == "Subcommands:":
            page.subcommands.append(tuple(line.split(None, 1)))
        else:
            rest.append(line)
    if None in page.flags:
        raise SystemExit(f"{command} --help has an option that cannot be read")
    page.rest = "\n".join(rest).strip("\n")
    return page


@functools.lru_cache
def subcommands(bin_directory):
    """The names of tfctl's."""
    return [name for name, _ in parse("tfctl", run_help(bin_directory, "tfctl")).subcommands]


def pages(bin_directory):
    """The Pages of all programs and of tfctl's subcommands, in their order."""
    commands = [*PROGRAMS, *(f"tfctl {name}" for name in subcommands(bin_directory))]
    return [parse(command, run_help(bin_directory, *command.split())) for command in commands]
