"""Runs a step without devices whose batch has an unknown size and is much larger than estimated,
until the master has placed the step again; with --until-measured, until it has measured so much
that it would have. Prints as JSON the tasks of the nodes before and after, how many different
results came, and what the master says. With --kill, kills a worker as soon as steps alternate
between two placements, and prints how many of the next steps fail.

    replacement_program.py TARGET ADMIN_PORT chain|halves|wide [--until-measured | --kill PID]

chain    products in a row, worth a move to a faster task
halves   reductions that could run side by side, but each needs the whole batch
wide     products of known sizes that could run side by side
"""
import json
import os
import re
import signal
import sys
import urllib.request

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
WIDTH, LAYERS = 64, 3
N_STEPS_AFTER = 20  # the worker was killed
ENOUGH = 60  # measured executions after which a step would have been placed again


def page(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as reply:
        return reply.read().decode()


def results(port):
    """How often each result of placing again has come."""
    return {name: int(count) for name, count in re.findall(
        r'^millrace_replacements_total\{result="([a-z]+)"\} ([0-9]+)$', page(port, "/metrics"),
        re.M)}


def n_executions(port):
    return sum(row.get("executions", 0) for row in json.loads(page(port, "/costz")))


def task_of(metadata, name):
    for device in metadata.step_stats.dev_stats:
        if any(node.node_name == name for node in device.node_stats):
            return device.device.split("/device:")[0]
    return None


def graphs(port, old_link):
    """The pages of the signature as it is placed now, and that of a link of before."""
    rows = json.loads(page(port, "/graphz"))["signatures"]
    link = max(rows, key=lambda row: row["fetches"])["page"]
    return {name: json.loads(page(port, path)) for name, path in (("now", link),
                                                                  ("old link", old_link))}


def chain(x):
    for i in range(LAYERS):
        x = tf.matmul(x, tf.fill([WIDTH, WIDTH], 1 / WIDTH), name=f"node{i}")
    return 8192, [tf.reduce_sum(x)]


def halves(x):
    ops = [tf.reduce_max, tf.reduce_min, tf.reduce_prod]
    return 65536, [op(x, name=f"node{i}") for i, op in enumerate(ops)]


def wide(x):
    squares = [tf.ones([512, 512]) * x[0, i] for i in range(4)]
    return 1, [tf.reduce_sum(tf.matmul(square, square, name=f"node{i}"))
               for i, square in enumerate(squares)]


def placements(port):
    """What the master says about how signatures are placed."""
    signatures = json.loads(page(port, "/sessionz"))["signatures"]
    return [row["placement"] for row in signatures if "placement" in row]


def fails(run_step):
    try:
        run_step()
    except tf.errors.UnavailableError:
        return True
    return False


def kill_in_race(port, pid, run_step):
    while not any("alternate" in why for why in placements(port)):
        run_step()
    os.kill(pid, signal.SIGKILL)
    n_failed = sum(fails(run_step) for _ in range(N_STEPS_AFTER))
    print(json.dumps({"failed": n_failed, "why": placements(port), "results": results(port)}))


def main(target, port, case, until_measured, pid):
    tf1.disable_eager_execution()
    x = tf1.placeholder(tf.float32, [None, WIDTH], name="x")
    counter = tf1.get_variable("counter", [], initializer=tf1.zeros_initializer(),
                               use_resource=True)
    n_rows, fetches = {"chain": chain, "halves": halves, "wide": wide}[case](x)
    with tf1.device("/job:worker/task:0"):
        asked = tf.matmul(x[:1], x[:1], transpose_a=True, name="asked")
    fetches = [*fetches, tf.reduce_sum(asked), tf1.assign_add(counter, 1.0)]
    names = [op.name for op in x.graph.get_operations() if re.fullmatch("asked|node.", op.name)]
    feed = {x: np.random.RandomState(1).uniform(size=(n_rows, WIDTH)).astype(np.float32)}
    sums, n_steps = set(), 0
    with tf1.Session(target) as session:
        session.run(tf1.global_variables_initializer())
        if pid:
            kill_in_race(port, pid, lambda: session.run(fetches, feed))
            return

        def traced():
            metadata = tf1.RunMetadata()
            options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
            got = session.run(fetches, feed, options=options, run_metadata=metadata)
            sums.add(tuple(got[:-1]))
            return {name: task_of(metadata, name) for name in names}

        before = traced()
        old_link = max(json.loads(page(port, "/graphz"))["signatures"],
                       key=lambda row: row["fetches"])["page"]
        while not (n_executions(port) >= ENOUGH if until_measured
                   else sum(results(port).values())):
            for _ in range(10):
                got = session.run(fetches, feed)
                sums.add(tuple(got[:-1]))
                n_steps += 1
        after = traced()
        why = placements(port)
        drawn = graphs(port, old_link)
        count = float(session.run(counter))
    print(json.dumps({"before": before, "after": after, "n_sums": len(sums),
                      "counts agree": count == n_steps + 2, "results": results(port),
                      "graphs": drawn, "why": why}))


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], "--until-measured" in sys.argv,
     int(sys.argv[-1]) if "--kill" in sys.argv else None)
