#!/usr/bin/env python3
"""Trains published networks (tools/gpu/networks.py) for three steps on a simulated GPU, and
compares the losses with those of TensorFlow's CPU.

    tests/cuda/run_networks.py [--long] [--only TEXT] [--seed N] [--size small|thin|whole]

For each network it also looks at the plan of a step (tests/tools/graph_plan): the GPU computes each
node that TensorFlow computes there, so that no value is copied between memories that TensorFlow
would not copy. The copies are counted by their reason.

Without --long two small networks are trained, drawn by the seed. With --long all are, with all
their layers ("thin": fewer channels and smaller images). "whole" has all channels, too, but small
images and batches: a network with large fully connected layers takes ten minutes. Ends with
"N passed, N failed[, N skipped]".
"""
import argparse
import collections
import glob
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MILLRACE_BUILD", "build"))
sys.path[:0] = [os.path.join(ROOT, "tests", "differential"), os.path.join(ROOT, "tools", "gpu")]

import networks  # noqa: E402
import tensorflow as tf  # noqa: E402
from cluster import Cluster  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
N_STEPS, N_SAMPLED = 3, 2
TOLERANCE = 2e-4  # sums are in another order, and a normalisation of few pixels makes that larger
# Noise of 2e-6 in the images moves TensorFlow's own third loss by 1e-2.
LATER_TOLERANCE = {"inception_v3": 1.5e-2}
SLOW = "inception_v3"  # TensorFlow takes long to make its graph
TESTS = os.path.join(BUILD, "tests", "cuda")
# A sanitized build has no kernels of its own: the device process is not sanitized.
TOOLS = os.path.join(ROOT, os.environ.get("MILLRACE_KERNELS_BUILD", BUILD), "tests")


def sizes(name, which):
    """The Size of a network."""
    whole, small = networks.NETWORKS[name][1:]
    if which == "small":
        return small
    share = whole.share if which == "whole" else small.share
    return whole._replace(share=share, image=small.image, batch=small.batch,
                          classes=whole.classes if which == "whole" else small.classes)


def losses(target, graph):
    """The losses of the first steps, and how many nodes ran on a GPU in the last one."""
    metadata, found = tf1.RunMetadata(), []
    with tf1.Session(target, graph=graph) as session:
        session.run("init")
        for step in range(N_STEPS):
            trace = tf1.RunOptions(trace_level=3) if target and step == N_STEPS - 1 else None
            found.append(float(session.run(["loss:0", "step"], options=trace,
                                           run_metadata=metadata if trace else None)[0]))
    return found, sum(len(device.node_stats) for device in metadata.step_stats.dev_stats
                      if device.device.endswith("GPU:0"))


def plan(graph):
    """What graph_plan prints, counted by line."""
    with tempfile.NamedTemporaryFile(suffix=".pb") as file:
        file.write(graph.as_graph_def().SerializeToString())
        file.flush()
        done = subprocess.run([os.path.join(TOOLS, "tools", "graph_plan"), file.name],
                              stdout=subprocess.PIPE, check=True, text=True)
    return collections.Counter(done.stdout.splitlines())


def failure(name, size, cluster):
    """None, or what is wrong with a network."""
    with tf.Graph().as_default() as graph:
        networks.build(name, size)
    lines = plan(graph)
    begin = time.time()
    expected, _ = losses("", graph)
    middle = time.time()
    found, n_on_gpu = losses(cluster.target, graph)
    copies = ", ".join(f"{n} {line[5:]}" for line, n in sorted(lines.items())
                       if line.startswith("copy "))
    print(f"{name}: losses {' '.join(f'{x:.6g}' for x in found)}, {n_on_gpu} nodes on the GPU, "
          f"{middle - begin:.1f} s and {time.time() - middle:.1f} s; copies: {copies}", flush=True)
    missing = [line for line in lines if line.endswith(" missing")]
    if missing:
        return f"TensorFlow computes these on a GPU: {missing}"
    if n_on_gpu < 10:
        return f"{n_on_gpu} nodes on the GPU"
    if found[0] == found[-1]:
        return "nothing is learned"
    for step, (mine, theirs) in enumerate(zip(found, expected)):
        tolerance = LATER_TOLERANCE.get(name, TOLERANCE) if step else TOLERANCE
        if not abs(mine - theirs) <= tolerance * max(1, abs(theirs)):
            return f"losses {found}, TensorFlow's CPU has {expected}"
    return None


def simulate(seed, report):
    """The environment of daemons that find a simulated GPU."""
    path = os.environ.get("LD_LIBRARY_PATH", "")
    os.environ.update({
        "LD_LIBRARY_PATH": os.path.join(TESTS, "sim") + (":" + path if path else ""),
        "MILLRACE_SIM_DEVICES": "1", "MILLRACE_SIM_SEED": str(seed), "MILLRACE_SIM_REPORT": report,
        "MILLRACE_SIM_KERNELS": ":".join(glob.glob(os.path.join(TOOLS, "cuda", "gpu_*.so")))})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="all networks, with all layers")
    parser.add_argument("--only", help="networks whose name holds this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", choices=("small", "thin", "whole"))
    options = parser.parse_args()
    if not os.path.exists(os.path.join(TESTS, "sim", "sim_device")):
        print("0 passed, 0 failed, 1 skipped")
        return 0
    names = [name for name in networks.NETWORKS if not options.only or options.only in name]
    if not options.long and not options.only:
        names = random.Random(options.seed).sample([n for n in names if n != SLOW], N_SAMPLED)
    which = options.size or ("thin" if options.long else "small")
    n_failed = 0
    plugin = os.path.join(BUILD, "kernels", "cuda", "millrace-cuda.so")
    with tempfile.NamedTemporaryFile() as report:
        simulate(options.seed, report.name)
        with Cluster(n_ps=0, n_workers=1,
                     worker_flags=["--gpu", "require", "--gpu-plugin", plugin]) as cluster:
            for name in names:
                problem = failure(name, sizes(name, which), cluster)
                if problem:
                    n_failed += 1
                    print(f"{name}: {problem}", flush=True)
            cluster.check()
        reported = report.read().decode(errors="replace")
        if reported:
            n_failed = max(n_failed, 1)
            print(f"the simulated device reports: {reported}")
    print(f"{len(names) - n_failed} passed, {n_failed} failed")
    return bool(n_failed)


if __name__ == "__main__":
    sys.exit(main())
