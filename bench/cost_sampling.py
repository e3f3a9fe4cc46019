#!/usr/bin/env python3
"""What does measuring costs cost? Steps of 20,000 live scalar ops on one worker, with and without
`tf-master --cost-file`, in alternating rounds. Prints the processor time of the daemons per step
(it is less noisy than the time that passes), the ratio, and how many rows were measured.

    bench/cost_sampling.py [--rounds N] [--steps N] [--ops N] [--bin DIR]

The aim is a ratio of at most 1.01."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def processor_s(pid):
    """The processor time of a process' threads so far."""
    total_ns = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
            total_ns += int(f.read().split()[0])
    return total_ns / 1e9


def client(ops, steps, pids):
    """Inside the cluster: runs the steps, prints the processor time of the daemons per step."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    x = tf1.placeholder(tf.float32, [])
    values = [x + float(i) for i in range(100)]
    while len(values) < ops:
        values.append(values[-100] * values[-37])
    last = tf.stack(values[-100:])
    with tf1.Session(os.environ["MILLRACE_TARGET"]) as session:
        step = session.make_callable(last, [x])
        for _ in range(20):
            step(0.5)
        before = sum(processor_s(pid) for pid in pids)
        for _ in range(steps):
            step(0.5)
        step_s = (sum(processor_s(pid) for pid in pids) - before) / steps
    admin = json.loads(os.environ["MILLRACE_ADMIN"])["master"]
    with urllib.request.urlopen(f"http://{admin}/costz") as page:
        rows = json.load(page)
    print(json.dumps({"step_s": step_s, "rows": len(rows),
                      "executions": sum(row["executions"] for row in rows)}))


def run(arguments, cost_file):
    flags = ["--master-flag", "--cost-file", "--master-flag", cost_file] if cost_file else []
    command = [os.path.join(arguments.bin, "tfctl"), "local", "--workers", "1", "--quiet", *flags,
               "--master-flag", "--disable-passes", "--master-flag", "fuse,simplify",
               "--", sys.executable, os.path.abspath(__file__), "--inside",
               "--ops", str(arguments.ops), "--steps", str(arguments.steps)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--ops", type=int, default=20000)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        pids = json.loads(os.environ["MILLRACE_PIDS"]).values()
        client(arguments.ops, arguments.steps, pids)
        return
    without, measured, ratios = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        for n in range(arguments.rounds):
            without.append(run(arguments, None))
            measured.append(run(arguments, os.path.join(directory, f"costs-{n}")))
            ratios.append(measured[-1]["step_s"] / without[-1]["step_s"])
            print(f"round {n + 1}: {without[-1]['step_s'] * 1e6:.1f} us a step, measured "
                  f"{measured[-1]['step_s'] * 1e6:.1f} us, ratio {ratios[-1]:.4f}, "
                  f"{measured[-1]['rows']} rows of {measured[-1]['executions']} executions",
                  flush=True)
    medians = [statistics.median(r["step_s"] for r in results) for results in (measured, without)]
    print(f"median ratio {statistics.median(ratios):.4f}, of the medians "
          f"{medians[0] / medians[1]:.4f} (aim 1.01)")


if __name__ == "__main__":
    main()
