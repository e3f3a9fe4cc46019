"""Tests the blocks of one page, in the namespaces that run.py made. A line a block: "ok", "FAILED"
or "skipped"."""
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import hosts
import pages

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import help_text  # noqa: E402

BIN = os.environ.get("MILLRACE_BIN", os.path.join(ROOT, "build", "bin"))
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
BLOCK_TIMEOUT_S = 60
OURS = ("tf-master", "tf-worker", "tfctl")
# Names under which the pages speak of a host besides its own.
ALIASES = {"master.example": "master", "10.0.0.10": "ps0"}
CLUSTER_ADDRESS = "127.0.0.1:2222"


class Failure(Exception):
    """A block does not do what it says."""


def make_reader_folder():
    """A folder that looks like the tree to a reader: links to what is in it, so that new files stay
    outside of the tree."""
    folder = tempfile.mkdtemp(prefix="millrace-docs-")
    for name in os.listdir(ROOT):
        if not name.startswith((".git", "build")):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    os.mkdir(os.path.join(folder, "build"))
    for name in os.listdir(os.path.dirname(BIN)):
        os.symlink(os.path.join(os.path.dirname(BIN), name), os.path.join(folder, "build", name))
    return folder


def cover_system_folders():
    """What a block writes below /etc and /usr goes into memory and is gone with the page's mount
    namespace."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=True)
    for name in ("etc", "usr"):
        os.makedirs(f"/mnt/{name}/upper")
        os.makedirs(f"/mnt/{name}/work")
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir=/{name},upperdir=/mnt/{name}/upper,workdir=/mnt/{name}/work",
                        f"/{name}"], check=True)


class Reader:
    """Does what a page says, from its first block to its last."""

    def __init__(self, has_namespaces):
        self.has_namespaces = has_namespaces
        self.folder = make_reader_folder()
        self.hosts = hosts.Hosts(ALIASES)
        self.running = []  # (name, process, log), in the order of their starts
        path = [os.path.join(HERE, "stand_ins"), BIN, os.path.dirname(PYTHON), os.environ["PATH"]]
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("MILLRACE_", "TF_CONFIG"))}
        self.env.update(PATH=":".join(path), HOME=self.folder, TF_CPP_MIN_LOG_LEVEL="3")

    def fini(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def shell(self, text, host=None):
        """The command line of a strict shell that knows what earlier blocks have exported."""
        script = (f"set -euo pipefail\n[ ! -f .exports ] || . ./.exports\n{text}\nexport -p "
                  ">.exports\n")
        command = ["bash", "-c", script]
        return self.hosts.command(host, command) if host else command

    def start(self, name, command):
        log = open(os.path.join(self.folder, f"log-{len(self.running)}"), "w+", encoding="utf-8",
                   errors="replace")
        process = subprocess.Popen(command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        self.running.append((name, process, log))
        return process

    def logs(self):
        out = []
        for name, _, log in self.running:
            log.flush()
            log.seek(0)
            out.append(f"--- {name}:\n{log.read()[-3000:]}")
        return "\n".join(out)

    def run(self, command, timeout_s=BLOCK_TIMEOUT_S):
        """The output of a command that has to succeed."""
        try:
            done = subprocess.run(command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=timeout_s, text=True,
                                  errors="replace")
        except subprocess.TimeoutExpired as e:
            raise Failure(f"not done after {timeout_s} "
                          f"s\n{(e.stdout or b'').decode(errors='replace')}\n{self.logs()}")
        if done.returncode != 0:
            raise Failure(f"exit status {done.returncode}\n{done.stdout}\n{self.logs()}")
        return done.stdout

    def wait_until(self, text, host, processes):
        """Repeats a command until it succeeds. Fails when one of the processes fails first, or time
        is up."""
        deadline = time.monotonic() + BLOCK_TIMEOUT_S
        while True:
            try:
                self.run(self.shell(text, host), 15)
                return
            except Failure as failure:
                for process in processes:
                    try:  # the pause between two looks ends early with the process
                        status = process.wait(timeout=0.1)
                    except subprocess.TimeoutExpired:
                        continue
                    if status != 0:
                        raise Failure(f"exit status {status} before `{text}` "
                                      f"succeeded\n{self.logs()}")
                if time.monotonic() > deadline:
                    raise Failure(f"`{text}` does not succeed: {failure}")

    def stop_all(self):
        """Ends what blocks have left running, the last first; everything has to end well."""
        wrong = []
        for name, process, _ in reversed(self.running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            try:
                status = process.wait(timeout=BLOCK_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                status = "none: it does not end"
            if status not in (0, -signal.SIGINT, 130):
                wrong.append(f"{name}: exit status {status}")
        if wrong:
            raise Failure("\n".join(wrong) + "\n" + self.logs())

    # ---- one block ----

    def test(self, block):
        """None when the block was tested, else why not. Raises Failure."""
        if block.mistake:
            raise Failure(block.mistake)
        if block.values.get("from"):
            return check_excerpt(block)
        if block.mode == "syntax":
            return check_syntax(block)
        if not self.has_namespaces:
            return "needs root and namespaces"
        if block.values.get("setup"):
            self.run(self.shell(block.values["setup"]))
        return getattr(self, f"test_{block.language}")(block)

    def test_sh(self, block):
        if block.mode == "hosts":
            return self.test_hosts(block)
        if block.mode == "serve":
            process = self.start(block.name, self.shell(block.text))
            return self.wait_until(block.values["until"], None, [process])
        if block.text.startswith("# on "):
            for host, text in pages.split_hosts(block.text):
                self.hosts.add([host])
                self.run(self.shell(text, host))
            return None
        self.run(self.shell(block.text))
        return None

    def test_hosts(self, block):
        sections = pages.split_hosts(block.text)
        self.hosts.add([host for host, _ in sections])
        processes = [self.start(f"{block.name} on {host}", self.shell(text, host)) for host,
                     text in sections]
        return self.wait_until(block.values["until"], sections[-1][0], processes)

    def test_console(self, block):
        for command, expected in pages.split_console(block.text):
            output = self.run(self.shell(command)).splitlines()
            if not pages.output_matches(expected, output):
                raise Failure(f"$ {command}\nprints\n" + "\n".join(output))
        return None

    def test_c(self, block):
        """Later blocks compile and run what these have written."""
        with open(os.path.join(self.folder, block.values["adds-to"]), "a", encoding="utf-8") as f:
            f.write(block.text)

    def test_python(self, block):
        if not os.path.exists(PYTHON):
            return "no .venv with TensorFlow: tools/setup client"
        script = os.path.join(self.folder, f"block_{block.line}.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write(block.text)
        cluster = block.values.get("cluster")
        words = ["tfctl", "local", *cluster.split(), "--listen", CLUSTER_ADDRESS, "--quiet",
                 "--"] if cluster else []
        self.run([*words, PYTHON, script])
        return None

    def test_ini(self, block):
        file = os.path.join(self.folder, f"block_{block.line}.ini")
        with open(file, "w", encoding="utf-8") as f:
            f.write(block.text)
        for daemon in ("tf-master", "tf-worker"):
            self.run([daemon, "--config", file, "--check-config"])
        return None


def check_excerpt(block):
    """Each line of an excerpt is in the file that it is taken from, but for spaces and for "...".
    """
    with open(os.path.join(ROOT, block.values["from"]), encoding="utf-8") as f:
        source = re.sub(r"\s+", "", f.read())
    for line in block.text.splitlines():
        code = re.sub(r"\s+", "", re.sub(r"/\*.*?\*/|#.*", "", line) if block.language != "c"
                      else re.sub(r"/\*.*?\*/", "", line))
        if code and code != "..." and code not in source:
            raise Failure(f"{block.values['from']} has no line `{line.strip()}`")


def help_of(program, words):
    """What a program says of its flags; None where the program is not here."""
    name = os.path.basename(program)
    if name in OURS:
        subcommand = words[1:2] if name == "tfctl" and words[1:2] and words[
            1] in help_text.subcommands(BIN) else []
        return help_text.run_help(BIN, name, *subcommand)
    if name in ("python", "python3"):
        with open(os.path.join(ROOT, words[1]), encoding="utf-8") as f:
            return f.read()
    if os.path.exists(os.path.join(ROOT, program)):
        script = {"test": "tests/run.py", "tools/dev": "tools/dev"}.get(
            program.removeprefix("./"), program)
        with open(os.path.join(ROOT, script), encoding="utf-8", errors="replace") as f:
            return f.read()
    if not shutil.which(program):
        return None
    before_flags = list(itertools.takewhile(lambda word: not word.startswith("-"), words[1:]))
    subcommand = {"docker": before_flags[:1], "kubectl": before_flags,
                  "etcdctl": before_flags[:2]}.get(name, [])
    done = subprocess.run([program, *subcommand, "--help"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "ETCDCTL_API": "3"})  # version 3.3 asks for it
    return done.stdout


def check_syntax(block):
    """The shell reads the block, its programs exist, and they know the flags. A reason when a
    program is missing here."""
    done = subprocess.run(["bash", "-n"], input=block.text, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failure(done.stderr)
    missing = []
    for words in pages.simple_commands(block.text):
        if "/" in words[0] and not shutil.which(os.path.join(ROOT, words[0])) and not words[
            0].startswith(("build/", ".venv/")):
            raise Failure(f"{words[0]} is not in the tree, or cannot be run")
        text = help_of(words[0], words)
        if text is None:
            missing.append(words[0])
            continue
        for flag in pages.flags_of(words):
            if flag not in text:
                raise Failure(f"{words[0]} has no flag {flag}")
    return f"no {', '.join(missing)} here" if missing else None


def known_flags():
    """All text that may introduce a flag: what our programs say of themselves, and the scripts."""
    out = [help_text.run_help(BIN, *words) for words in
           [(name,) for name in OURS] + [("tfctl", name) for name in help_text.subcommands(BIN)]]
    for folder in ("tests", "tools", "bench", "examples"):
        for directory, _, files in os.walk(os.path.join(ROOT, folder)):
            for name in files:
                if name.endswith((".py", ".c")) or name == "dev":
                    with open(os.path.join(directory, name), encoding="utf-8",
                              errors="replace") as f:
                        out.append(f.read())
    return set(re.findall(r"--[a-z][\w-]+", "\n".join(out).replace("--[no-]", "--")))


def check_flags_in_prose(page, text):
    """Every flag that the page names in backticks is a flag of one of our programs or scripts."""
    known = known_flags()
    for match in re.finditer(r"`[^`\n]*`", text):
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*\w(?![\w-]*…)", match.group()):
            if flag not in known and flag.replace("--no-", "--") not in known:
                raise Failure(f"{page}:{text.count(chr(10), 0, match.start()) + 1}: no program of "
                              f"ours has {flag}")


def report(name, function, *args):
    try:
        reason = function(*args)
        print(f"skipped {name}: {reason}" if reason else f"ok {name}", flush=True)
        return True
    except (Failure, ValueError, OSError, subprocess.SubprocessError) as failure:
        print(f"FAILED {name}: {failure}", flush=True)
        return False


def main():
    page, has_namespaces = sys.argv[1], "--no-namespaces" not in sys.argv
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        text = f.read()
    blocks = pages.read_blocks(page, text)
    good = report(f"{page} flags", check_flags_in_prose, page, text)
    if not blocks:
        return 0 if good else 1
    if has_namespaces:
        hosts.prepare()
        cover_system_folders()
    reader = Reader(has_namespaces)
    try:
        for block in blocks:
            if block.mistake or block.language not in ("text", "mermaid"):
                good = report(block.name, reader.test, block) and good
        if reader.running:
            good = report(f"{page} end", reader.stop_all) and good
    finally:
        reader.fini()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
