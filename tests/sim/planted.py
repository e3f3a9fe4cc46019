#!/usr/bin/env python3
"""Plants bugs in a copy of the source, one at a time, and checks that the simulator finds each.

    tests/sim/planted.py --check                every patch still applies to the source (a second)
    tests/sim/planted.py [--jobs N] [NAME...]   builds cluster_sim with each patch and runs seeds
                                                until one fails

A bug is a patch in tests/sim/planted/, with a sentence that says what is wrong. The copy and its
build are in build-planted/ and are kept, so the next run compiles only what has changed. Ends with
"N passed, N failed".
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATCHES = os.path.join(ROOT, "tests", "sim", "planted")
WORK = os.path.join(ROOT, "build-planted")
COPY, BUILD = os.path.join(WORK, "source"), os.path.join(WORK, "build")
SEEDS = 1000  # a bug that survives this many runs counts as not found


def names():
    return sorted(name[:-len(".patch")] for name in os.listdir(PATCHES) if name.endswith(".patch"))


def patch_of(name):
    return os.path.join(PATCHES, name + ".patch")


def files_of(name):
    """The files that a patch changes."""
    with open(patch_of(name), encoding="utf-8") as f:
        return re.findall(r"^\+\+\+ b/(\S+)$", f.read(), re.M)


def apply_patch(name, directory, *options):
    """Returns None, or why the patch does not apply. Without fuzz: elsewhere it is another bug."""
    with open(patch_of(name), encoding="utf-8") as f:
        done = subprocess.run(["patch",
    "-p1",
    "--fuzz=0",
    "--no-backup-if-mismatch",
    *options],
    cwd=directory,
    stdin=f,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
     text=True)
    return None if done.returncode == 0 else done.stdout.strip()


def check():
    """Yields a complaint for each patch that does not apply to the source."""
    for name in names():
        why = apply_patch(name, ROOT, "--dry-run")
        if why:
            yield f"tests/sim/planted/{name}.patch does not apply: {why}"


def copy_file(path):
    """Copies a file of the source unless the copy is the same, so that ninja leaves it alone."""
    source, copy = os.path.join(ROOT, path), os.path.join(COPY, path)
    with open(source, "rb") as f:
        data = f.read()
    if os.path.exists(copy):
        with open(copy, "rb") as f:
            if f.read() == data:
                return
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    shutil.copyfile(source, copy)
    shutil.copymode(source, copy)


def copy_source():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"],
                            cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    paths = {path for path in listed.stdout.splitlines()
             if os.path.isfile(os.path.join(ROOT, path))}
    for path in paths:
        copy_file(path)
    for directory, _, files in os.walk(COPY):
        for name in files:
            if os.path.relpath(os.path.join(directory, name), COPY) not in paths:
                os.remove(os.path.join(directory, name))


def build():
    """Returns None, or the end of what the build says."""
    commands = [] if os.path.exists(os.path.join(BUILD, "build.ninja")) else [
                                    ["meson", "setup", BUILD, COPY]]
    for command in [*commands, ["ninja", "-C", BUILD, "tests/sim/cluster_sim"]]:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return "\n".join(done.stdout.splitlines()[-30:])
    return None


def find(name, n_jobs):
    """Returns whether a seed finds the bug, and the line that says so, or what went wrong."""
    why = apply_patch(name, COPY)
    try:
        why = why or build()
        if why:
            return False, why
        done = subprocess.run([os.path.join(BUILD,
    "tests",
    "sim",
    "cluster_sim"),
    "--seeds",
    str(SEEDS),
    "--until-failure",
    "--jobs",
    str(n_jobs)],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
     text=True)
        found = re.findall(r"^seed .*", done.stdout, re.M)
        return (
    True,
    found[0]) if done.returncode == 1 and found else (
        False,
         f"not found by {SEEDS} seeds")
    finally:
        for path in files_of(name):
            copy_file(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only see that every patch applies")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument(
    "names",
    nargs="*",
     help="which bugs, by name or by its beginning; default: all")
    options = parser.parse_args()
    n_failed = 0
    if options.check:
        for complaint in check():
            print(complaint)
            n_failed += 1
        print(f"{len(names()) - n_failed} passed, {n_failed} failed")
        return 1 if n_failed else 0
    chosen = [name for name in names() if not options.names or any(name.startswith(start)
                                     for start in options.names)]
    copy_source()
    for name in chosen:
        is_found, line = find(name, options.jobs)
        print(f"{name}: {line}", flush=True)
        n_failed += not is_found
    print(f"{len(chosen) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
