#!/usr/bin/env python3
"""Sends wrong requests, byte by byte, to TensorFlow's own servers and to a cluster of ours, and
compares the answers.

    run_wrong.py [--long] [--only TEXT] [--seed N] [--bin DIR] [--messages]
    tools/dev gpu-sim 1 -- .venv/bin/python tests/differential/run_wrong.py --gpus

wrong_requests.py has the cases. Codes must be equal, and so must the nodes that messages name in
[[{{node NAME}}]]; a case may ask for words in both. INTERNAL is never right
(tools/internal_errors.py). What is explained instead is counted apart.
Without --long a seeded sample of those that TensorFlow answers at once. With --gpus our tasks have
simulated GPUs (gpu_differences.py). After each case all daemons must live and no step may be left.
The last line is "N passed, N failed[, N skipped]".
"""

import contextlib
import os
import random
import re
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

import gpu_differences  # noqa: E402
import wrong_requests as wrong  # noqa: E402
from cluster import Cluster, ClusterError, argument_parser  # noqa: E402
from raw_clients import Client, Refused, data, first, number, run_request  # noqa: E402
from tensorflow_server import TensorFlowServer  # noqa: E402

SAMPLE = 80
STEP_MS = 3000
CALL_S = 10
INTERNAL, UNAVAILABLE = 13, 14
# ConfigProto.graph_options: no rewriting, no folding: what runs is the graph as it is
AS_IT_IS = data(10, data(10, number(19, 1)) + data(3, number(3, -1)))


class Outcome:
    def __init__(self, code=0, message="", values=None):
        self.code, self.message, self.values = code, message, values

    @property
    def node(self):
        """As TensorFlow's client finds it, which shows where the node was made. A message of
        several tasks' errors, which TensorFlow's master makes or not as they come, also names nodes
        that were only cancelled for the others: not those."""
        own = "\n".join(part for part in re.split(r"\n(?=[A-Z_]+: From )", self.message)
                        if not part.startswith("CANCELLED: "))
        return re.findall(r"\[\[\{\{node ([^}]*)\}\}", own)[:1]

    def __str__(self):
        return f"{self.code} {self.message[:500]!r}" if self.code else f"ok {self.values}"


class Peer:
    """One session on one of the two, and the calls of a case on it."""

    def __init__(self, port, config=AS_IT_IS):
        self.client, self.config, self.handle, self.version, self.part = Client(
            port), config, b"", 1, b""

    def close(self):
        if self.handle:
            with contextlib.suppress(Refused):
                self.client.close(self.handle)
        self.client.channel.close()

    def reset(self):
        self.client.call("Reset", b"", CALL_S)  # another case's variables and queues are gone

    def make(self, call):
        try:
            return Outcome(values=getattr(self, type(call).__name__)(*call))
        except Refused as refused:
            return Outcome(refused.code, refused.message or "")
        except (ValueError, UnicodeDecodeError) as error:
            return Outcome(-1, str(error))

    def Create(self, graph, config):  # noqa: N802 (they are named as the calls are)
        reply = self.client.call("CreateSession", data(1, graph) + data(2, self.config + config)
                                 + data(3, f"grpc://{wrong.TARGET}"), CALL_S)
        self.handle = first(reply, 1)
        self.version = first(reply, 2, 0)

    def Extend(self, graph, version):  # noqa: N802
        reply = self.client.call("ExtendSession", data(1, self.handle) + data(2, graph)
                                 + number(3, self.version if version is None else version), CALL_S)
        self.version = first(reply, 4, 0)

    def Run(self, fetches, feeds, targets):  # noqa: N802
        return sorted(self.client.run(self.handle, CALL_S, feeds=feeds, fetches=fetches,
                                      targets=targets, timeout_ms=STEP_MS))

    def Setup(self, feeds, fetches, targets):  # noqa: N802
        request = data(1, self.handle) + b"".join(data(2, f) for f in feeds) + b"".join(
            data(3, f) for f in fetches) + b"".join(data(4, t) for t in targets)
        self.part = first(self.client.call("PartialRunSetup",
                                           request + number(5, struct.unpack("<Q", os.urandom(8))[
                                               0] >> 1), CALL_S), 1)

    def Part(self, fetches, feeds):  # noqa: N802
        request = run_request(self.handle, feeds=feeds, fetches=fetches,
                              errors_in_body=False) + data(6, self.part or b"no such run")
        self.client.call("RunStep", request, CALL_S)

    def Callable(self, feeds, fetches, targets):  # noqa: N802
        options = b"".join(data(1, f) for f in feeds) + b"".join(
            data(2, f) for f in fetches) + b"".join(data(3, t) for t in targets)
        self.client.call("MakeCallable", data(1, self.handle) + data(2, options), CALL_S)


def run_case(port, calls):
    peer = Peer(port)
    outcomes = []
    try:
        peer.reset()
        for call in calls:
            outcomes.append(peer.make(call))
            if outcomes[-1].code and isinstance(call, wrong.Create):
                break
    except Refused as refused:  # it has died
        outcomes.append(Outcome(refused.code, refused.message))
    finally:
        peer.close()
    return outcomes


class Unchecked(Exception):
    """TensorFlow's CPU reports a bad element, and a GPU does not."""


class Earlier(Exception):
    """Both refuse the graph, with one code: ours when it comes, TensorFlow in the step that needs
    the node."""


def difference(ours, theirs, options, has_gpus):
    """None, or what differs between the outcomes of a case's calls."""
    failed = [(a, b) for a, b in zip(ours, theirs) if b.code]
    # TensorFlow refuses the graph later, when a step needs it
    if ours[0].code and len(ours) == 1 < len(theirs):
        first_failure = next((outcome for outcome in theirs if outcome.code), Outcome())
        if first_failure.code == ours[0].code:
            raise Earlier
    for k, (our, their) in enumerate(zip(ours, theirs)):
        if our.code == INTERNAL:
            return f"call {k}: a client provokes INTERNAL: {our}\n    TensorFlow has {their}"
        if has_gpus and gpu_differences.is_unchecked(our, their):
            raise Unchecked
        if our.code != their.code:
            return f"call {k}: {our}\n    TensorFlow has {their}"
        if their.node and our.node != their.node:
            return f"call {k}: another node: {our}\n    TensorFlow has {their}"
        if not their.code and our.values != their.values:
            return f"call {k}: {our}\n    TensorFlow has {their}"
    if len(ours) != len(theirs):
        return f"{len(ours)} calls, TensorFlow has {len(theirs)}"
    if "words" in options:
        if not failed:
            return "nothing fails"
        for whose, outcome in zip(("ours", "TensorFlow's"), failed[-1]):
            if not re.search(options["words"], outcome.message):
                return f"{whose} lacks the words {options['words']!r}: {outcome}"
    return None


class Runner:
    def __init__(self, arguments, report=None):
        """report: a gpu_differences.DeviceReport."""
        self.arguments, self.report = arguments, report
        self.cluster = Cluster(bin_dir=arguments.bin, master_flags=["--session-clusters=any"],
                               worker_flags=["--gpu=require"] if arguments.gpus else ())
        self.passed, self.failed, self.explained, self.aborted, self.earlier = 0, 0, {}, 0, 0
        self.skipped = 0

    def case(self, server, name, calls, options):
        if self.arguments.gpus and gpu_differences.why_left_out(name):
            self.skipped += 1
            return
        if not self.cluster.daemons:
            self.cluster.start()
        server.revive()  # the last case may have ended it late
        theirs = run_case(server.port, calls)
        if any(outcome.code == UNAVAILABLE for outcome in theirs):
            server.process.wait()
        if server.revive():
            theirs = None
            self.aborted += 1
        ours = run_case(self.cluster.master.port, calls)
        problem = None
        if theirs is None:
            if self.arguments.messages:
                print(f"  {name}: TensorFlow's server aborts; ours {'; '.join(map(str, ours))}")
        else:
            try:
                problem = difference(ours, theirs, options, self.arguments.gpus)
            except Earlier:
                self.earlier += 1
            except Unchecked:
                self.skipped, self.passed = self.skipped + 1, self.passed - 1
            for our, their in zip(ours, theirs) if self.arguments.messages else ():
                if their.code:
                    print(f"  {name}\n    ours {our}\n    tf   {their}")
        if problem and "ours" in options:
            codes, words, why = options["ours"]
            is_so = tuple(o.code for o in ours) == codes and re.search(
                words, " ".join(o.message for o in ours))
            problem = None if is_so else f"not as explained: {problem}"
            self.explained[name] = why
        try:
            if self.report and (found := self.report.take()):
                raise ClusterError(f"the simulated device reports: {found}")
            self.cluster.check()
        except (ClusterError, OSError) as error:
            problem = f"{problem or ''}\n  {error}"
            self.cluster.stop()
        if problem:
            self.failed += 1
            print(f"FAIL {name}: {problem}\n    codes {tuple(o.code for o in ours)}, TensorFlow's "
                  f"{tuple(o.code for o in theirs or ())}", flush=True)
        else:
            self.passed += 1

    def chosen(self):
        found = [case for case in wrong.cases() if not self.arguments.only
                 or self.arguments.only in case[0]]
        if self.arguments.long or self.arguments.only:
            return found
        found = [case for case in found if case[0] not in wrong.EXPLAINED]
        return random.Random(self.arguments.seed).sample(found, SAMPLE)

    def run(self):
        with TensorFlowServer() as server:
            for name, calls, options in self.chosen():
                self.case(server, name, calls, options)
        for complaint in self.cluster.stop():
            self.failed += 1
            print("FAIL stopping:", complaint)
        for name, why in self.explained.items():
            print(f"explained {name}: {why}")
        print(f"{len(self.explained)} explained, {self.earlier} refused when the graph comes, in "
              f"{self.aborted} TensorFlow's server aborts")
        print(f"{self.passed} passed, {self.failed} failed"
              + (f", {self.skipped} skipped" if self.skipped else ""), flush=True)
        return 1 if self.failed or not self.passed else 0


def main():
    parser = argument_parser("wrong requests, to a cluster and to TensorFlow")
    parser.add_argument("--messages", action="store_true",
                        help="show both messages where calls fail")
    parser.add_argument("--gpus", action="store_true",
                        help="our tasks have GPUs: run it under tools/dev gpu-sim 1 --")
    arguments = parser.parse_args()
    gpu_differences.run_and_exit(Runner, arguments)


if __name__ == "__main__":
    main()
