#!/usr/bin/env python3
"""Runs the code blocks of README.md and docs/, and the tests of tools/check.py, of the list of
ops on GPUs, and of tools/setup; ends with "N passed, N failed[, N skipped]".

    tests/docs/run.py [PAGE...]     PAGE: README.md, docs/security.md, ...; default: all pages

Each page runs in network, mount and process namespaces of its own, as root. Without the right to
make them, its blocks are skipped. README.md of this folder says how a page tells what a block
needs.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
PAGE_TIMEOUT_S = 120
TESTS = ("test_checks.py", "test_gpu_ops.py", "test_planted_bugs.py", "test_setup.py")


def pages():
    docs = os.path.join(ROOT, "docs")
    return ["README.md"] + [f"docs/{name}" for name in sorted(os.listdir(docs))
                            if name.endswith(".md")]


def can_make_namespaces():
    try:
        return subprocess.run([*NAMESPACES, "ip", "link", "set", "lo", "up"],
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def run_page(page, has_namespaces):
    """(page, its output): lines "ok NAME", "FAILED NAME: ..." or "skipped NAME: REASON", and what
    explains them."""
    command = [sys.executable, os.path.join(HERE, "page_test.py"), page]
    try:
        done = subprocess.run(NAMESPACES + command if has_namespaces else command
                              + ["--no-namespaces"], cwd=ROOT,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=PAGE_TIMEOUT_S)
    except subprocess.TimeoutExpired as e:
        return (page,
                f"{(e.stdout or b'').decode(errors='replace')}\nFAILED {page}: not done after "
                f"{PAGE_TIMEOUT_S} s")
    output = done.stdout
    if done.returncode != 0 and not re.search(r"^FAILED ", output, re.M):
        output += f"\nFAILED {page}: exit status {done.returncode}"
    return page, output


def run_tests(name):
    """(passed, failed) of the tests of a file of this folder."""
    done = subprocess.run([sys.executable, os.path.join(HERE, name)],
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    n_run = int(re.search(r"^Ran (\d+) test", done.stdout, re.M).group(1))
    n_failed = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", done.stdout))
    if done.returncode != 0:
        print(done.stdout)
        n_failed = max(n_failed, 1)
    return n_run - n_failed, n_failed


def main():
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")] or pages()
    has_namespaces = can_make_namespaces()
    passed, failed, skipped = 0, 0, 0
    for name in TESTS:
        n_passed, n_failed = run_tests(name)
        passed, failed = passed + n_passed, failed + n_failed
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for page, output in pool.map(lambda page: run_page(page, has_namespaces), wanted):
            passed += len(re.findall(r"^ok ", output, re.M))
            n_failed, n_skipped = len(re.findall(r"^FAILED ", output, re.M)), len(
                re.findall(r"^skipped ", output, re.M))
            if n_failed:
                print(output, flush=True)
            for line in re.findall(r"^skipped .*", output,
                                   re.M) if n_skipped and not n_failed else ():
                print(line, flush=True)
            failed += n_failed
            skipped += n_skipped
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
