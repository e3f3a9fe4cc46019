#!/usr/bin/env python3
"""Writes what is installed and comes from the tables of flags: man pages, and completions of bash,
zsh and fish.

    tools/gen_install.py BIN_DIR VERSION OUTPUT...      (deploy/meson.build runs it)

BIN_DIR holds the built programs, whose --help is read (help_text.py). Each OUTPUT is a path; its
name says what it is: tfctl-job.1, tfctl.bash, _tfctl, tfctl.fish. It is an error when the OUTPUTs
are not all that there is to write.
"""
import os
import re
import sys

import help_text

ONE_LINE = {"tf-master": "the master of a Millrace cluster",
            "tf-worker": "a task of a Millrace cluster",
            "tfctl": "the command line client of Millrace"}
EXIT_CODES = "0 as asked, 64 usage, 70 a failed cluster or step, 74 input or output, " \
             "78 configuration, 134 a broken invariant, 138 restart it (docs/operations.md)."


def roff(text):
    """Text for a man page: hyphens stay hyphens, and no line is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text)


# ---- man pages ----


def write_man(page, version, all_pages):
    name = page.command.replace(" ", "-")
    summary = ONE_LINE.get(page.command) or dict(all_pages["tfctl"].subcommands)[name[6:]]
    out = [f'.TH {roff(name.upper())} 1 "" "Millrace {version}" "Millrace"',
           ".SH NAME", f"{roff(name)} \\- {roff(summary)}",
           ".SH SYNOPSIS", roff(page.usage), ".SH DESCRIPTION", roff(page.summary)]
    if page.subcommands:
        out.append(".SH SUBCOMMANDS")
        for subcommand, text in page.subcommands:
            out += [".TP", f"\\fB{roff(subcommand)}\\fR", roff(text)]
    if page.flags:
        out.append(".SH OPTIONS")
    for flag in page.flags:
        label = ("\\-\\-[no\\-]" if flag.is_negatable else "\\-\\-") + roff(flag.name)
        value = f" \\fI{roff(flag.value)}\\fR" if flag.value else ""
        out += [".TP", f"\\fB{label}\\fR{value}", roff(flag.text)]
    if page.rest:
        out += [".SH NOTES", ".nf", re.sub(r"(?m)^$", ".sp", roff(page.rest)), ".fi"]
    others = [other for other in all_pages if other != page.command]
    out += [".SH EXIT STATUS", roff(EXIT_CODES), ".SH SEE ALSO",
            ",\n".join(f".BR {roff(other.replace(' ', '-'))} (1)" for other in others)]
    return "\n".join(out) + "\n"


# ---- completions ----


def flag_words(page):
    """--name, and --no-name of booleans that may be switched off."""
    return [f"--{prefix}{flag.name}" for flag in page.flags
            for prefix in (("", "no-") if flag.is_negatable else ("",))]


def flags_of_kind(pages, kind):
    return sorted({f"--{flag.name}" for page in pages for flag in page.flags if kind(flag)})


def is_file(flag):
    return flag.value in help_text.FILES


def is_directory(flag):
    return flag.value in help_text.DIRECTORIES


def bash_values(page):
    """The cases for the word after a flag that takes a value."""
    out = []
    for names, reply in ((flags_of_kind([page], is_file), "compgen -f"),
                         (flags_of_kind([page], is_directory), "compgen -d")):
        if names:
            out.append(f"        {'|'.join(names)}) mapfile -t COMPREPLY < "
                       f"<({reply} -- \"$word\"); return ;;\n")
    for flag in page.flags:
        if flag.choices:
            out.append(f"        --{flag.name}) mapfile -t COMPREPLY < <(compgen -W "
                       f"'{' '.join(flag.choices)}' -- \"$word\"); return ;;\n")
    other = flags_of_kind([page], lambda f: f.value and not f.choices and not is_file(f)
                          and not is_directory(f))
    if other:
        out.append(f"        {'|'.join(other)}) return ;;\n")
    return "".join(out)


def bash_page(page):
    words = " ".join(page.verbs + flag_words(page))
    values = bash_values(page)
    cases = f"    case $before in\n{values}    esac\n" if values else ""
    return (f"{cases}    mapfile -t COMPREPLY < <(compgen -W '{words}' -- \"$word\")\n"
            "    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n")


def write_bash(program, all_pages):
    function = "_" + program.replace("-", "_")
    pages = [page for name, page in all_pages.items() if name.split()[0] == program]
    out = [f"# Completes {program} in bash.\n"]
    for page in pages[1:]:
        out.append(f"{function}_{page.command.split()[1]}() {{\n{bash_page(page)}}}\n")
    out.append(f"{function}() {{\n    local word=$2 before=$3\n    COMPREPLY=()\n")
    if pages[0].subcommands:
        names = " ".join(name for name, _ in pages[0].subcommands)
        out.append("    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                   f"        mapfile -t COMPREPLY < <(compgen -W '{names} --help --version' -- "
                   "\"$word\")\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n")
        out += [f"        {name}) {function}_{name} ;;\n" for name, _ in pages[0].subcommands]
        out.append("    esac\n")
    else:
        out.append(bash_page(pages[0]))
    out.append(f"}}\ncomplete -o filenames -F {function} {program}\n")
    return "".join(out)


def zsh_quote(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", text.replace("'", "’"))


def zsh_arguments(page):
    lines = []
    for flag in page.flags:
        action = ("_files" if is_file(flag) else "_files -/" if is_directory(flag)
                  else f"({' '.join(flag.choices)})" if flag.choices else " ")
        value = f":{zsh_quote(flag.value)}:{action}" if flag.value else ""
        lines.append(f"'*--{flag.name}[{zsh_quote(flag.text)}]{value}'")
        if flag.is_negatable:
            lines.append(f"'*--no-{flag.name}[not\\: {zsh_quote(flag.text)}]'")
    if page.verbs:
        lines.append(f"'1:what:({' '.join(page.verbs)})'")
    lines.append("'*:file:_files'")
    return "_arguments \\\n    " + " \\\n    ".join(lines) + "\n"


def write_zsh(program, all_pages):
    function = "_" + program.replace("-", "_")
    pages = [page for name, page in all_pages.items() if name.split()[0] == program]
    out = [f"#compdef {program}\n"]
    for page in pages[1:]:
        out.append(f"{function}_{page.command.split()[1]}() {{\n  {zsh_arguments(page)}}}\n")
    if pages[0].subcommands:
        rows = " ".join(f"'{name}:{zsh_quote(text)}'" for name, text in pages[0].subcommands)
        out.append(f"if (( CURRENT == 2 )); then\n  local -a subcommands=({rows})\n"
                   "  _describe subcommand subcommands\n"
                   f"elif (( $+functions[{function}_$words[2]] )); then\n"
                   f"  local name=$words[2]\n  shift words\n  (( CURRENT-- ))\n"
                   f"  {function}_$name\nfi\n")
    else:
        out.append(zsh_arguments(pages[0]))
    return "".join(out)


def fish_quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_page(program, page):
    subcommand = page.command.partition(" ")[2]
    where = f" -n '__fish_seen_subcommand_from {subcommand}'" if subcommand else ""
    out = []
    for verb in page.verbs:
        out.append(f"complete -c {program}{where} -a {verb}\n")
    for flag in page.flags:
        value = ""
        if flag.choices:
            value = f" -x -a {fish_quote(' '.join(flag.choices))}"
        elif is_file(flag) or is_directory(flag):
            value = " -r -F"
        elif flag.value:
            value = " -x"
        out.append(f"complete -c {program}{where} -l {flag.name}{value} -d "
                   f"{fish_quote(flag.text)}\n")
        if flag.is_negatable:
            out.append(f"complete -c {program}{where} -l no-{flag.name} -d "
                       f"{fish_quote('not: ' + flag.text)}\n")
    return "".join(out)


def write_fish(program, all_pages):
    pages = [page for name, page in all_pages.items() if name.split()[0] == program]
    out = [f"# Completes {program} in fish.\n"]
    names = [name for name, _ in pages[0].subcommands]
    for name, text in pages[0].subcommands:
        out.append(f"complete -c {program} -f -n 'not __fish_seen_subcommand_from "
                   f"{' '.join(names)}' -a {name} -d {fish_quote(text)}\n")
    return "".join(out) + "".join(fish_page(program, page) for page in pages)


# ---- all of it ----


def write_all(bin_directory, version):
    """{file name: text}"""
    pages = {page.command: page for page in help_text.pages(bin_directory)}
    files = {f"{name.replace(' ', '-')}.1": write_man(page, version, pages)
             for name, page in pages.items()}
    for program in help_text.PROGRAMS:
        files[f"{program}.bash"] = write_bash(program, pages)
        files[f"_{program}"] = write_zsh(program, pages)
        files[f"{program}.fish"] = write_fish(program, pages)
    return files


def main():
    bin_directory, version, *outputs = sys.argv[1:]
    files = write_all(bin_directory, version)
    wanted = {os.path.basename(path) for path in outputs}
    if wanted != set(files):
        raise SystemExit("gen_install: deploy/meson.build must name exactly these files: "
                         f"{' '.join(sorted(files))}; different: "
                         f"{' '.join(sorted(wanted ^ set(files)))}")
    for path in outputs:
        with open(path, "w", encoding="utf-8") as f:
            f.write(files[os.path.basename(path)])


if __name__ == "__main__":
    main()
