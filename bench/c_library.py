#!/usr/bin/env python3
"""How large is the C client, how soon is it ready, and what does a no-op step through it cost,
beside TensorFlow's C API?

    bench/c_library.py [--rounds N] [--steps N] [--json FILE]

Each row is measured in turn with both libraries, in fresh processes, by the same C program: it
loads the library with dlopen and calls the functions of TensorFlow's C API by name.

    size        bytes of the shared objects that a program needs, without those of the system
    symbols     functions that are exported
    load        from before dlopen until the graph has one operation
    no-op step  of a session with one NoOp: ours on a local cluster of one worker (a remote step),
                ours in process where this build can (target ""), TensorFlow's in process

The medians of the rounds are printed."""
import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import daemons

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define CALL(type, name, ...) ((type (*)())dlsym(library, name))(__VA_ARGS__)

/* program TARGET STEPS LIBRARY... : prints the time to load, and the median of a step, in us */
int main(int argc, char **argv) {
    void *library = NULL;
    double begin = now_us();
    for (int i = 3; i < argc; i++) {
        library = dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL);
        if (!library)
            return fprintf(stderr, "%s\n", dlerror()), 1;
    }
    void *status = CALL(void *, "TF_NewStatus");
    void *graph = CALL(void *, "TF_NewGraph");
    void *description = CALL(void *, "TF_NewOperation", graph, "NoOp", "n");
    const void *node = CALL(void *, "TF_FinishOperation", description, status);
    double loaded = now_us() - begin;
    void *options = CALL(void *, "TF_NewSessionOptions");
    CALL(void, "TF_SetTarget", options, argv[1]);
    void *session = CALL(void *, "TF_NewSession", graph, options, status);
    int n = atoi(argv[2]), code = CALL(int, "TF_GetCode", status);
    double *times = calloc(n, sizeof *times);
    for (int i = -200; i < n && !code; i++) {
        double start = now_us();
        CALL(void, "TF_SessionRun", session, NULL, NULL, NULL, 0, NULL, NULL, 0, &node, 1, NULL,
             status);
        if (i >= 0)
            times[i] = now_us() - start;
        code = CALL(int, "TF_GetCode", status);
    }
    if (code)
        return fprintf(stderr, "%s\n", CALL(char *, "TF_Message", status)), 2;
    qsort(times, n, sizeof *times, by_size);
    printf("%.1f %.2f\n", loaded, times[n / 2]);
    return 0;
}
"""


def tensorflow_libraries():
    folder = os.path.dirname(importlib.util.find_spec("tensorflow").origin)
    return [os.path.join(folder, name)
            for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")]


def exported(path):
    listing = subprocess.run(["nm", "-D", "--defined-only", path], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    return sum(line.split()[1] in "TW" for line in listing.splitlines() if len(line.split()) > 2)


def measure(program, target, steps, libraries):
    """(µs to load, µs of a step), or None and what the library said."""
    run = subprocess.run([program, target, str(steps), *libraries], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3",
                              "CUDA_VISIBLE_DEVICES": ""})
    if run.returncode:
        return None, run.stderr.strip().splitlines()[-1:]
    return tuple(map(float, run.stdout.split())), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5000, help="steps of a round")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    arguments = parser.parse_args()
    ours, theirs = [os.path.join(BUILD, "client", "libmillrace.so.0")], tensorflow_libraries()
    sizes = {name: (sum(os.path.getsize(p) for p in paths), sum(map(exported, paths)))
             for name, paths in (("millrace", ours), ("TensorFlow", theirs))}
    cluster = daemons.start([os.path.join(BUILD, "bin", "tfctl"), "local", "--workers", "1",
                             "--quiet"], stdout=subprocess.PIPE, text=True)
    figures = {}
    try:
        target = cluster.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "p.c"), os.path.join(folder, "p")
            with open(source, "w", encoding="utf-8") as f:
                f.write(PROGRAM)
            subprocess.run([shutil.which("cc") or "gcc", "-O2", "-std=gnu11", source, "-o", program,
                            "-ldl"], check=True)
            rows = {"millrace, remote": (target, ours), "millrace, in process": ("", ours),
                    "TensorFlow, in process": ("", theirs)}
            for _ in range(arguments.rounds):
                for name, (where, libraries) in rows.items():
                    found, why = measure(program, where, arguments.steps, libraries)
                    figures.setdefault(name, []).append(found or why)
    finally:
        cluster.terminate()
        cluster.communicate()
    print(f"{'library':24} {'MB':>8} {'symbols':>8}")
    for name, (size, symbols) in sizes.items():
        print(f"{name:24} {size / 1e6:8.1f} {symbols:8}")
    print(f"\n{'session':24} {'load ms':>8} {'step µs':>8}")
    report = {"libraries": sizes, "sessions": {}}
    for name, found in figures.items():
        if not all(isinstance(f, tuple) for f in found):
            print(f"{name:24} not there: {' '.join(next(f for f in found if isinstance(f, list)))}")
            continue
        load, step = (statistics.median(column) for column in zip(*found))
        report["sessions"][name] = {"load_ms": load / 1e3, "step_us": step}
        print(f"{name:24} {load / 1e3:8.1f} {step:8.1f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    main()
