#!/usr/bin/env python3
"""Does a heavy step of one session hold up the small steps of another?

    bench/isolation.py [--rounds N] [--seconds S] [--only TEXT] [--bin DIR] [--json FILE]

One session runs small steps on a worker and notes how long each takes: alone; beside as many idle
loops (other processes) as there are cores, which is what sharing the cores costs anybody; and
beside another session's heavy step on the same worker, of several kinds. All in alternating rounds,
so that the machine's noise falls on each alike. "more" is p99 beside the heavy step - p99 alone: at
most 20 ms is the aim where a core is left for the small steps. The last column is p99 beside the
heavy step ÷ p99 beside the idle loops: what is above 1 the cores do not explain.

    bench/isolation.py --cancel

Gives steps that each run one long kernel (tests/differential/long_kernels.py) a deadline of half a
second. "answered" is how much later
the client hears of it, "gone" how much later the worker has ended the step: at most 100 ms is the
aim, whatever the kernel."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

import daemons  # noqa: E402
import long_kernels  # noqa: E402
import numpy as np  # noqa: E402
import raw_clients as rc  # noqa: E402
from cluster import Cluster  # noqa: E402
from programs import WORKER0, WORKER1, tf, tf1  # noqa: E402


def _matmuls():
    x = tf.random.uniform([1000, 1000], seed=1)
    for _ in range(20):
        x = tf.matmul(x, x) * 1e-3
    return x[0, 0]


def _long_loop():
    return tf1.while_loop(lambda i: i < 2_000_000, lambda i: i + 1, [0])


def _wide():
    x = tf.random.uniform([200_000], seed=1)
    return tf.add_n([tf.reduce_sum(tf.exp(x * k)) for k in np.linspace(0, 1, 200)])


def _many_small():
    x = tf.random.uniform([], seed=1)
    return tf.add_n([tf.sin(x + k) for k in range(20_000)])


def _fetched_strings():
    return tf.strings.as_string(tf.range(1_000_000))


def _between_tasks(make):
    """A value that another task makes and the small steps' task receives."""
    with tf.device(WORKER1):
        value = make()
    return tf.size(tf.identity(value))


def _sent_strings():
    return _between_tasks(lambda: tf.strings.as_string(tf.range(1_000_000)))


def _sent_long_string():
    return _between_tasks(lambda: tf.strings.reduce_join(tf.fill([2_000_000], "a" * 100)))


def _broadcast():
    return tf.reduce_sum(tf.random.uniform([20_000, 1], seed=1) *
                         tf.random.uniform([1, 20_000], seed=2))


def _sorted():
    return tf.reduce_sum(tf.math.top_k(tf.random.uniform([8_000_000], seed=1), 4_000_000)[0])


def _picture(encode, decode, side):
    picture = tf.cast(tf.random.uniform([side, side, 3], 0, 256, tf.int32, seed=1), tf.uint8)
    return tf.reduce_sum(tf.cast(decode(encode(picture)), tf.int32))


def _png():
    return _picture(tf.io.encode_png, tf.io.decode_png, 4000)


def _jpeg():
    return _picture(tf.io.encode_jpeg, tf.io.decode_jpeg, 8000)


HEAVY = {"matrix products": _matmuls, "one long loop": _long_loop, "200 large nodes": _wide,
         "20,000 small nodes": _many_small, "a million strings fetched": _fetched_strings,
         "a million strings received": _sent_strings,
         "a string of 200 MB received": _sent_long_string,
         "a huge broadcast": _broadcast, "a long sort": _sorted, "a PNG": _png, "a JPEG": _jpeg}


def _fed_strings(target):
    """A step that is fed a million strings: the master passes them on, the worker decodes them."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER0):
        strings = tf1.placeholder(tf.string, [None])
        count = tf.size(strings)
    session = tf1.Session(target, graph=graph)
    values = np.array([b"%d" % i for i in range(1_000_000)], object)
    return lambda: session.run(count, {strings: values})


def _long_string(target):
    """A step that is fed one string of 490 MB."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER0):
        text = tf1.placeholder(tf.string, [])
        length = tf.strings.length(text)
    session = tf1.Session(target, graph=graph)
    value = b"x" * 490_000_000
    return lambda: session.run(length, {text: value})


def _traced(target):
    """A traced step over 200,000 nodes."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER0):
        x = tf1.placeholder(tf.float32, [])
        sums = [tf.add_n([x + float(k) for k in range(2_000)]) for _ in range(100)]
        fetch = tf.add_n(sums)
    session = tf1.Session(target, graph=graph)
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    return lambda: session.run(fetch, {x: 1.0}, options=options, run_metadata=tf1.RunMetadata())


def _listed_numbers(target):
    """A step that is fed 50 million numbers as a list. TensorFlow's client sends none."""
    graph = rc.graph(rc.node("x", "Placeholder", (), WORKER0, dtype=rc.type_attr(3)),
                     rc.node("y", "Size", ("x",), WORKER0, T=rc.type_attr(3),
                             out_type=rc.type_attr(3)))
    client = rc.Client(int(target.rsplit(":", 1)[1]))
    handle = client.create(graph)
    n = 50_000_000
    dims = rc.data(2, rc.number(1, n))
    feed = rc.number(1, 3) + rc.data(2, dims) + rc.data(7, b"\x07" * n)
    return lambda: client.run(handle, feeds=[("x:0", feed)], fetches=["y:0"])


def _graphs_asked_for(target):
    """A step over 200,000 nodes whose graphs are asked for."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER0):
        x = tf1.placeholder(tf.float32, [])
        sums = [tf.add_n([x + float(k) for k in range(2_000)]) for _ in range(100)]
        fetch = tf.add_n(sums)
    session = tf1.Session(target, graph=graph)
    options = tf1.RunOptions(output_partition_graphs=True)
    return lambda: session.run(fetch, {x: 1.0}, options=options, run_metadata=tf1.RunMetadata())


FED = {"a million strings fed": _fed_strings, "a string of 490 MB fed": _long_string,
       "a list of 50 million fed": _listed_numbers, "200,000 nodes traced": _traced,
       "graphs of 200,000 nodes": _graphs_asked_for}


# ---- steps that are cut short: each runs one kernel for a second or so (long_kernels.py) ----

LONG_DEADLINE_MS = 500


def _cut_short(cluster, build):
    """Answered and gone: how many seconds after the deadline; None: the step ended before it."""
    session = tf1.Session(cluster.target, graph=tf.Graph())
    with session.graph.as_default(), tf.device(WORKER0):
        made = build()
        fetch = tf.group(made) if isinstance(made, tf.Tensor) else tf.group(*made)
    worker = next(task for task in cluster.tasks if task.name == "worker0")
    options = tf1.RunOptions(timeout_in_ms=LONG_DEADLINE_MS)
    begin = time.perf_counter()
    try:
        session.run(fetch, options=options)
        ended = True
    except tf.errors.DeadlineExceededError:
        ended = False
    answered = time.perf_counter() - begin
    while worker.metric("millrace_worker_steps_live") > 0:
        time.sleep(0.002)
    gone = time.perf_counter() - begin
    session.close()
    late_s = LONG_DEADLINE_MS / 1000
    return None if ended else (answered - late_s, gone - late_s)


def cancel_all(arguments):
    print(f"{'kernel':36} {'answered':>10} {'gone':>10}")
    with Cluster(bin_dir=arguments.bin) as cluster:
        for name, build in long_kernels.CASES.items():
            if arguments.only not in name:
                continue
            took = [_cut_short(cluster, build) for _ in range(arguments.rounds)]
            late = [one for one in took if one]
            text = "ended before its deadline" if not late else (
                f"{max(a for a, _ in late) * 1e3:7.0f} ms {max(g for _, g in late) * 1e3:7.0f} ms")
            print(f"{name:36} {text}", flush=True)
    os._exit(0)


def _session(target, build):
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER0):
        fetch = build()
    session = tf1.Session(target, graph=graph,
                          config=tf1.ConfigProto(
                              graph_options=tf1.GraphOptions(
                                  optimizer_options=tf1.OptimizerOptions(opt_level=-1))))
    session.run(fetch)
    return session.make_callable(fetch)


class Beside:
    """Something that goes on while the small steps run."""

    def __init__(self, run=None, n_idle_loops=0):
        self.run, self.n_idle_loops, self.n_runs = run, n_idle_loops, 0

    def __enter__(self):
        self.loops = [daemons.start(["sh", "-c", "while :; do :; done"])
                      for _ in range(self.n_idle_loops)]
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._go_on)
        self.thread.start()
        return self

    def _go_on(self):
        while self.run and not self.is_over.is_set():
            self.run()
            self.n_runs += 1

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        for process in self.loops:
            process.kill()
            process.wait()


def _small_steps(step, seconds):
    took, until = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < until:
        step()
        took.append(time.perf_counter() - begin)
    return took


def main():
    parser = argparse.ArgumentParser(description="small steps beside heavy ones")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--only", default="", help="heavy steps whose name holds this text")
    parser.add_argument("--bin",
                        help="where tf-master and tf-worker are; default $MILLRACE_BIN or "
                             "build/bin")
    parser.add_argument("--json", help="a report")
    parser.add_argument("--cancel", action="store_true", help="steps that are cut short")
    arguments = parser.parse_args()
    if arguments.cancel:
        cancel_all(arguments)
    report = []
    with Cluster(bin_dir=arguments.bin) as cluster:
        small = _session(cluster.target, lambda: tf.random.uniform([], seed=1) + 1)
        kinds = {"alone": Beside(), "idle loops on all cores": Beside(n_idle_loops=os.cpu_count())}
        kinds.update({name: Beside(_session(cluster.target, build)) for name, build in HEAVY.items()
                      if arguments.only in name})
        kinds.update({name: Beside(build(cluster.target)) for name, build in FED.items()
                      if arguments.only in name})
        took = {name: [] for name in kinds}
        for _ in range(arguments.rounds):
            for name, beside in kinds.items():
                with beside:
                    took[name] += _small_steps(small, arguments.seconds)
    p99 = {name: np.percentile(times, 99) for name, times in took.items()}
    print(f"{'beside':28} {'steps':>8} {'median':>10} {'p99':>10} {'more':>10} {'÷ alone':>8} "
          f"{'÷ idle loops':>12}")
    for name, times in took.items():
        median, ratios = np.median(times), (p99[name] / p99["alone"],
                                            p99[name] / p99["idle loops on all cores"])
        print(f"{name:28} {len(times):8} {median * 1e6:7.0f} µs {p99[name] * 1e6:7.0f} µs "
              f"{(p99[name] - p99['alone']) * 1e3:7.1f} ms {ratios[0]:8.2f} {ratios[1]:12.2f}")
        report.append({"beside": name, "steps": len(times), "median_s": median, "p99_s": p99[name],
                       "p99_by_idle_loops": ratios[1]})
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's client may hang at exit


if __name__ == "__main__":
    main()
