#!/usr/bin/env python3
"""What does it cost to see into a cluster? Steps with pages and the ring of recorded steps as they
are by default while /metrics of each daemon is read ten times a second ("read"), the same while
nobody reads ("on"), and without both, `--admin off --step-ring 0` ("off"), on three clusters that
run at once, in alternating rounds: a null step, one of a value between two tasks, and one of 20,000
scalar ops. Prints the processor time of the daemons and of the client per step, which other load
changes less than the time that passes, the medians of the ratios of a round, and whether they are
within the aim.

    bench/step_ring.py [--rounds N] [--bin DIR]

The aim is a ratio of at most 1.02 while nobody reads; exit status 1: it is missed. Prometheus reads
every 15 s by default."""
import argparse
import json
import os
import statistics
import subprocess
import sys

import daemons
from cost_sampling import ROOT, processor_s

AIM = 1.02
STEPS = {"null step": 400, "a value between tasks": 400, "20,000 scalar ops": 26}


def callables(tf1, target):
    """Each kind of step, as a function of one session."""
    import tensorflow as tf
    with tf.Graph().as_default():
        with tf.device("/job:worker"):
            nothing = tf.no_op()
        with tf.device("/job:ps"):
            there = tf1.placeholder(tf.float32, [])
        with tf.device("/job:worker"):
            here = tf.negative(there)
            x = tf1.placeholder(tf.float32, [])
            values = [x + float(i) for i in range(100)]
            while len(values) < 20000:
                values.append(values[-100] * values[-37])
            last = tf.stack(values[-100:])
        with tf.device("/job:ps"):
            crossed = tf.identity(here)
        session = tf1.Session(target)
        null, cross, ops = (session.make_callable(nothing), session.make_callable(crossed, [there]),
                            session.make_callable(last, [x]))
    return {"null step": null, "a value between tasks": lambda: cross(1.0),
            "20,000 scalar ops": lambda: ops(0.5)}


def start(binaries, *flags):
    process = daemons.start(
        [os.path.join(binaries, "tfctl"), "local", "--ps", "1", "--workers", "1", "--quiet",
         "--master-flag", "--disable-passes", "--master-flag", "fuse,simplify", *flags, "--", "sh",
         "-c", "echo $MILLRACE_TARGET; echo $MILLRACE_PIDS; echo $MILLRACE_ADMIN; "
               "exec sleep 3600"],
        stdout=subprocess.PIPE, text=True)
    target = process.stdout.readline().strip()
    pids = list(json.loads(process.stdout.readline()).values())
    return process, target, pids, list(json.loads(process.stdout.readline()).values())


READER = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
while True:
    for address in sys.argv[1:]:
        opener.open(f"http://{address}/metrics").read()
    time.sleep(0.1)
"""


def measure(step, n, pids):
    """Microseconds of processor time per step."""
    before = processor_s(pids)
    for _ in range(n):
        step()
    return (processor_s(pids) - before) / n * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    arguments = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    clusters = {"on": start(arguments.bin), "read": start(arguments.bin), "off": start(
        arguments.bin, "--master-flag=--admin=off", "--worker-flag=--admin=off",
        "--worker-flag=--step-ring=0")}
    reader = daemons.start([sys.executable, "-c", READER, *clusters["read"][3]])
    steps = {name: callables(tf1, target) for name, (_, target, _, _) in clusters.items()}
    took = {kind: {name: [] for name in clusters} for kind in STEPS}
    for i in range(arguments.rounds + 1):
        for kind, n in STEPS.items():
            for name in list(clusters) if i % 2 else reversed(clusters):
                us = measure(steps[name][kind], n, [*clusters[name][2], os.getpid()])
                if i > 0:  # the first round warms up
                    took[kind][name].append(us)
    for process in (reader, *(cluster[0] for cluster in clusters.values())):
        process.terminate()
        process.wait()
    print(f"{'':24}{'read':>10}{'on':>10}{'off':>10}{'read/off':>10}{'on/off':>10}"
          "   us of processor time per step")
    is_missed = False
    for kind, by_name in took.items():
        ratios = [statistics.median(a / b for a, b in zip(by_name[name], by_name["off"]))
                  for name in ("read", "on")]
        print(f"{kind:24}" + "".join(f"{statistics.median(by_name[name]):10.2f}"
                                     for name in ("read", "on", "off"))
              + "".join(f"{ratio:10.3f}" for ratio in ratios))
        is_missed |= ratios[1] > AIM
    print(f"pages and ring cost at most {100 * (AIM - 1):.0f} %: {'no' if is_missed else 'yes'}")
    return 1 if is_missed else 0


if __name__ == "__main__":
    sys.exit(main())
