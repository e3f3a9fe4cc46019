#!/usr/bin/env python3
"""What does measuring costs cost? Steps of 20,000 live scalar ops on one worker, with
`tf-master --cost-file`, in blocks of some steps each.

    bench/cost_sampling.py [--samples N] [--block N] [--ops N] [--bin DIR]

Few blocks have a sampled step. What such a block and the next one (the trace is read later) took
of the daemons' processor time beyond the median block is what the sample cost; nothing else is
different for a session that is measured. So the figure does not compare two runs, and other work
on the machine, which changes what steps take by far more than a hundredth, hardly matters. Prints
the cost of a sample, in all and for each op, and its part of all processor time. The aim is at most
1 %."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def processor_s(pids):
    """The processor time of the threads of processes so far."""
    total_ns = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
                total_ns += int(f.read().split()[0])
    return total_ns / 1e9


def client(arguments):
    """Inside the cluster: runs blocks until there were enough samples."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    pids = json.loads(os.environ["MILLRACE_PIDS"]).values()
    page = f"http://{json.loads(os.environ['MILLRACE_ADMIN'])['master']}/costz"

    def n_executions():
        with urllib.request.urlopen(page) as reply:
            return sum(row.get("executions", 0) for row in json.load(reply))

    x = tf1.placeholder(tf.float32, [])
    values = [x + float(i) for i in range(100)]
    while len(values) < arguments.ops:
        values.append(values[-100] * values[-37])
    last = tf.stack(values[-100:])
    block_s, sampled = [], []
    with tf1.Session(os.environ["MILLRACE_TARGET"]) as session:
        step = session.make_callable(last, [x])
        for _ in range(20):
            step(0.5)
        seen, before_s = n_executions(), processor_s(pids)
        while len(sampled) < arguments.samples or len(block_s) <= sampled[-1] + 1:
            for _ in range(arguments.block):
                step(0.5)
            n, now_s = n_executions(), processor_s(pids)
            if n > seen and not (sampled and sampled[-1] == len(block_s) - 1):
                sampled.append(len(block_s))
            block_s.append(now_s - before_s)
            seen, before_s = n, now_s
    usual_s = statistics.median(block_s)
    sample_s = [block_s[i] + block_s[i + 1] - 2 * usual_s for i in sampled]
    # from the first sample to before the last one, which are as many periods as samples but one
    in_between_s = sum(block_s[sampled[0]:sampled[-1]])
    part = sum(sample_s[:-1]) / in_between_s
    print(f"{usual_s / arguments.block * 1e6:.0f} us of processor time a step, {len(sampled)} "
          f"samples in {len(block_s) * arguments.block} steps\n"
          f"a sample: median {statistics.median(sample_s) * 1e3:.1f} ms more, "
          f"{statistics.median(sample_s) / arguments.ops * 1e9:.0f} ns an op\n"
          f"measuring: {part:.2%} of the processor time (aim 1 %)")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--block", type=int, default=25)
    parser.add_argument("--ops", type=int, default=20000)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        client(arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([os.path.join(arguments.bin, "tfctl"), "local", "--workers", "1", "--quiet",
                        "--master-flag", "--cost-file", "--master-flag",
                        os.path.join(directory, "costs"), "--master-flag", "--disable-passes",
                        "--master-flag", "fuse,simplify", "--", sys.executable,
                        os.path.abspath(__file__), "--inside", "--samples", str(arguments.samples),
                        "--block", str(arguments.block), "--ops", str(arguments.ops)], check=True)


if __name__ == "__main__":
    main()
