"""Sessions of graphs: ours and TensorFlow's library, each with a master of ours, and our local
sessions, against TensorFlow in process."""
import ctypes
import unittest
from concurrent.futures import ThreadPoolExecutor

from c_library import (FLOAT, INT32, Builder, Output, Refused, arrays, millrace, output, tensorflow,
                       text, types)
from compare import Compared
from local_cluster import IS_TENSORFLOW, target


class TestSessions(Compared):
    def clients(self):
        """(builder, target) of each way to run."""
        for library, where in ((tensorflow(), ""), (millrace(), target()),
                               (tensorflow(), target()), (millrace(), "")):
            builder = Builder(library)
            self.addCleanup(builder.close)
            yield builder, where

    def same(self, scenario):
        results = []
        for builder, where in self.clients():
            session = builder.session(where)
            try:
                results.append(scenario(builder, session))
            finally:
                builder.call("TF_DeleteSession", session)
        for result in results[1:]:
            self.assertEqual(result, results[0])
        return results[0]

    def test_feeds_fetches_and_targets(self):
        def run(b, session):
            x = b.placeholder("x", FLOAT, [-1, 2])
            w = b.constant("w", FLOAT, [2, 2], [1, 2, 3, 4])
            y = b.op("MatMul", "y", x, w)
            two = b.op("Split", "two", b.constant("axis", INT32, [], [1]), y, num_split=("Int", 2))
            return b.run(session, [y, Output(two, 1)], [(x, b.tensor(FLOAT, [1, 2], [5, 6]))],
                         [b.op("NoOp", "n")])
        self.assertEqual(self.same(run)[0], (FLOAT, [1, 2], [23, 34]))

    def test_the_graph_grows_between_steps(self):
        def run(b, session):
            x = b.constant("x", FLOAT, [], [2])
            out = [b.run(session, [x])]
            for i in range(3):
                x = b.op("Square", f"s{i}", x)
                out.append(b.run(session, [x]))
            b.call("TF_ExtendSession", session)
            return out
        self.assertEqual(self.same(run)[3], [(FLOAT, [], [256])])

    def test_variables(self):
        def run(b, session):
            name = f"v{id(b)}"
            v = b.op("VarHandleOp", name, dtype=("Type", FLOAT), shared_name=text(name),
                     shape=("Shape", None, 0))
            one = b.constant("one", FLOAT, [], [1])
            init = b.op("AssignVariableOp", "init", v, one)
            add = b.op("AssignAddVariableOp", "add", v, one)
            read = b.op("ReadVariableOp", "read", v, dtype=("Type", FLOAT))
            b.run(session, targets=[init])
            b.run(session, targets=[add])
            return b.run(session, [read])
        self.assertEqual(self.same(run), [(FLOAT, [], [2])])

    def test_partial_runs(self):
        def run(b, session):
            x, y = b.placeholder("x", FLOAT, []), b.placeholder("y", FLOAT, [])
            double = b.op("AddV2", "double", x, x)
            both = b.op("Mul", "both", double, y)
            handle = ctypes.c_char_p()
            inputs = (Output * 2)(output(x), output(y))
            outputs = (Output * 2)(output(double), output(both))
            b.call("TF_SessionPRunSetup", session, inputs, 2, outputs, 2, None, 0,
                   ctypes.addressof(handle))
            out = []
            for feed, value, fetch in ((x, 3, double), (y, 5, both)):
                results = (ctypes.c_void_p * 1)()
                tensor = b.tensor(FLOAT, [], [value])
                b.call("TF_SessionPRun", session, handle.value,
                       *arrays([fetch], [(feed, tensor)], [], results))
                b.c.TF_DeleteTensor(tensor)
                out.append(b.values(results[0]))
            b.c.TF_DeletePRunHandle(handle)
            return out
        self.assertEqual(self.same(run), [(FLOAT, [], [6]), (FLOAT, [], [30])])

    def test_steps_of_two_threads_overlap(self):
        """One step waits for a queue, which another thread's step fills."""
        def run(b, session):
            queue = b.op("FIFOQueueV2", "queue", component_types=types(FLOAT))
            x = b.placeholder("x", FLOAT, [])
            put = b.op("QueueEnqueueV2", "put", queue, [x], Tcomponents=types(FLOAT))
            take = b.op("QueueDequeueV2", "take", queue, component_types=types(FLOAT))
            b.call("TF_ExtendSession", session)
            other = Builder(b.c, b.graph)
            out = []
            with ThreadPoolExecutor(1) as pool:
                for value in (3, 4):
                    taken = pool.submit(other.run, session, [take])
                    b.run(session, feeds=[(x, b.tensor(FLOAT, [], [value]))], targets=[put])
                    out.append(taken.result(60))
            b.c.TF_DeleteStatus(other.status)
            return out
        self.assertEqual(self.same(run), [[(FLOAT, [], [3])], [(FLOAT, [], [4])]])

    def test_closing_ends_the_steps_of_other_threads(self):
        for where in (target(), ""):
            b = Builder(millrace())
            queue = b.op("FIFOQueueV2", "queue", component_types=types(FLOAT))
            take = b.op("QueueDequeueV2", "take", queue, component_types=types(FLOAT))
            size = b.op("QueueSizeV2", "size", queue)
            session = b.session(where)
            b.run(session, [size])
            other = Builder(b.c, b.graph)
            with ThreadPoolExecutor(1) as pool:
                taken = pool.submit(other.run, session, [take])
                # the first of the two calls to reach the master ends the step
                b.call("TF_CloseSession", session)
                with self.assertRaisesRegex(Refused, "CANCELLED|FAILED_PRECONDITION|ABORTED"):
                    taken.result(60)
            b.call("TF_DeleteSession", session)
            b.c.TF_DeleteStatus(other.status)
            b.close()

    def test_local_sessions_share_nothing(self):
        b = Builder(millrace())
        self.addCleanup(b.close)
        v = b.op("VarHandleOp", "v", dtype=("Type", FLOAT), shared_name=text("v"),
                 shape=("Shape", None, 0))
        init = b.op("AssignVariableOp", "init", v, b.constant("one", FLOAT, [], [1]))
        read = b.op("ReadVariableOp", "read", v, dtype=("Type", FLOAT))
        first, second = b.session(), b.session()
        b.run(first, targets=[init])
        self.assertEqual(b.run(first, [read]), [(FLOAT, [], [1])])
        with self.assertRaisesRegex(Refused, "FAILED_PRECONDITION|NOT_FOUND"):
            b.run(second, [read])
        b.call("TF_DeleteSession", first)
        b.run(second, targets=[init])
        self.assertEqual(b.run(second, [read]), [(FLOAT, [], [1])])
        b.call("TF_DeleteSession", second)

    def test_the_config_of_a_local_session(self):
        b = Builder(millrace())
        self.addCleanup(b.close)
        b.op("NoOp", "n")
        for config, n_devices in ((b"\x0a\x07\x0a\x03CPU\x10\x03", 3), (b"\x10\x01", 1)):
            session = b.session("", config)
            devices = b.call("TF_SessionListDevices", session)
            names = [b.call("TF_DeviceListName", devices, i)
                     for i in range(b.c.TF_DeviceListCount(devices))]
            self.assertEqual(names, [b"/job:localhost/replica:0/task:0/device:CPU:%d" % i
                                     for i in range(n_devices)])
            b.c.TF_DeleteDeviceList(devices)
            b.call("TF_DeleteSession", session)
        for config, words in ((b"\x0a\x08\x0a\x03CPU\x10\x80\x01", r'device_count\["CPU"\] is 128'),
                              (b"\x10\x80\x80\x04", "65536 threads")):
            with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: " + words):
                b.session("", config)

    def test_a_graph_outlives_its_deletion(self):
        b = Builder(millrace())
        x = b.constant("x", FLOAT, [], [7])
        session = b.session(target())
        b.c.TF_DeleteGraph(b.graph)
        self.assertEqual(b.run(session, [x]), [(FLOAT, [], [7])])
        b.call("TF_DeleteSession", session)
        b.c.TF_DeleteStatus(b.status)

    def test_devices(self):
        for b, where in self.clients():
            session = b.session(where)
            b.constant("x", FLOAT, [], [7])
            b.call("TF_ExtendSession", session)
            devices = b.call("TF_SessionListDevices", session)
            names = [b.call("TF_DeviceListName", devices, i)
                     for i in range(b.c.TF_DeviceListCount(devices))]
            self.assertIn(b"/task:0/device:CPU:0", b" ".join(names))
            b.c.TF_DeleteDeviceList(devices)
            b.call("TF_DeleteSession", session)

    def test_errors(self):
        def run(b, session):
            x = b.placeholder("x", FLOAT, [])
            y = b.op("Relu", "y", x)
            out = []
            for fetches, feeds in (([y], []), ([y], [(x, b.tensor(INT32, [], [1]))])):
                with self.assertRaises(Refused) as caught:
                    b.run(session, fetches, feeds)
                self.assertIn("x", caught.exception.message)
                # of a feed of another type TensorFlow's server says INTERNAL
                out.append("INVALID_ARGUMENT" if IS_TENSORFLOW and feeds else
                           caught.exception.code)
            return out
        self.assertEqual(self.same(run), ["INVALID_ARGUMENT", "INVALID_ARGUMENT"])

    def test_our_refusals(self):
        b = Builder(millrace())
        self.addCleanup(b.close)
        with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: target 'nowhere' is not"):
            b.session("nowhere")
        x = b.placeholder("x", FLOAT, [])
        session = b.session(target())
        for fetches, feeds, words in (
                ([Output(x, 1)], [], "TF_SessionRun: operation 'x' .* has no output 1"),
                ([Output(None, 0)], [], "TF_SessionRun: an operation is NULL"),
                ([x], [(x, None)], "TF_SessionRun: the value of input 'x:0' is NULL")):
            with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: " + words):
                b.run(session, fetches, feeds)
        b.call("TF_CloseSession", session)
        with self.assertRaisesRegex(Refused, "FAILED_PRECONDITION: .*closed"):
            b.run(session, targets=[x])
        b.call("TF_DeleteSession", session)


if __name__ == "__main__":
    unittest.main()
