"""Steps that do not block their caller (client/c_run_async.h), with remote and local sessions."""
import contextlib
import ctypes
import select
import threading
import unittest

from c_library import FLOAT, Builder, Output, Refused, arrays, millrace, types
from local_cluster import IS_TENSORFLOW, target

DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
WAIT_S = 60


class Model:
    """y = x * x, and a queue of floats."""

    def __init__(self, where):
        self.b = b = Builder(millrace())
        self.x = b.placeholder("x", FLOAT, [])
        self.y = b.op("Square", "y", self.x)
        queue = b.op("FIFOQueueV2", "queue", component_types=types(FLOAT))
        self.put = b.op("QueueEnqueueV2", "put", queue, [self.x], Tcomponents=types(FLOAT))
        self.take = b.op("QueueDequeueV2", "take", queue, component_types=types(FLOAT))
        self.size = b.op("QueueSizeV2", "size", queue)
        self.session, self.is_remote = b.session(where), where != ""

    def start(self, fetches=(), value=None, targets=(), on_done=None):
        feeds = [] if value is None else [(self.x, self.b.tensor(FLOAT, [], [value]))]
        inputs, values, n_inputs, outputs, _, n_outputs, names, n_names = arrays(
            fetches, feeds, targets, None)
        try:
            return self.b.call("MR_SessionRunAsync", self.session, None, inputs, values, n_inputs,
                               outputs, n_outputs, names, n_names, on_done, None)
        finally:
            for _, tensor in feeds:
                self.b.c.TF_DeleteTensor(tensor)

    def result(self, run, n=1):
        results = (ctypes.c_void_p * max(n, 1))()
        self.b.call("MR_RunResult", run, results, None)
        return [self.b.values(results[i])[2][0] for i in range(n)]

    def close(self):
        self.b.call("TF_DeleteSession", self.session)
        self.b.close()


class TestEnd(unittest.TestCase):
    def test_a_session_that_nobody_used_ends(self):
        for where in (target(), ""):
            for _ in range(20):
                b = Builder(millrace())
                b.call("TF_DeleteSession", b.session(where))
                b.close()


class TestRunAsync(unittest.TestCase):
    def models(self):
        for where in (target(), ""):
            with self.subTest(target=where):
                model = Model(where)
                try:
                    yield model
                finally:
                    model.close()

    def test_results_without_a_callback(self):
        for m in self.models():
            runs = [m.start([m.y], i) for i in range(50)]
            for i, run in enumerate(runs):
                self.assertEqual(m.result(run), [i * i])
                self.assertTrue(m.b.c.MR_RunHasEnded(run))
                with self.assertRaisesRegex(Refused, "FAILED_PRECONDITION: MR_RunResult"):
                    m.result(run)
                m.b.c.MR_DeleteRun(run)

    def test_a_thread_of_the_session_calls_back(self):
        for m in self.models():
            seen, all_done = [], threading.Event()

            @DONE
            def on_done(_, run):
                seen.append(m.result(run))
                m.b.c.MR_DeleteRun(run)  # a later run may get its address
                if len(seen) == 20:
                    all_done.set()
            for i in range(20):
                m.start([m.y], i, on_done=on_done)
            self.assertTrue(all_done.wait(WAIT_S))
            self.assertEqual(sorted(seen), [[i * i] for i in range(20)])

    def test_a_callback_may_run_steps(self):
        for m in self.models():
            values, end = [], threading.Event()

            @DONE
            def on_done(_, run):
                values.extend(m.result(run))
                m.b.c.MR_DeleteRun(run)
                if len(values) < 5:
                    values.append(Builder(m.b.c, m.b.graph).run(
                        m.session, [m.y], [(m.x, m.b.tensor(FLOAT, [], [len(values)]))])[0][2][0])
                    m.start([m.y], len(values), on_done=on_done)
                else:
                    end.set()
            m.start([m.y], 9, on_done=on_done)
            self.assertTrue(end.wait(WAIT_S))
            self.assertEqual(values, [81, 1, 4, 9, 16])

    def test_a_program_with_a_loop_of_its_own(self):
        for m in self.models():
            seen = []

            @DONE
            def on_done(_, run):
                seen.append((threading.get_ident(), m.result(run)))
                m.b.c.MR_DeleteRun(run)
            fd = m.b.call("MR_SessionEventFd", m.session)
            for i in range(10):
                m.start([m.y], i, on_done=on_done)
            while len(seen) < 10:
                ready, _, _ = select.select([fd], [], [], WAIT_S)
                self.assertEqual(ready, [fd])
                before = len(seen)
                self.assertEqual(m.b.c.MR_SessionDispatch(m.session), len(seen) - before)
            self.assertEqual({thread for thread, _ in seen}, {threading.get_ident()})
            self.assertEqual(sorted(value for _, [value] in seen), [i * i for i in range(10)])
            self.assertEqual(m.b.c.MR_SessionDispatch(m.session), 0)

    def test_an_event_fd_must_come_first(self):
        for m in self.models():
            end = threading.Event()

            @DONE
            def on_done(_, run):
                m.b.c.MR_DeleteRun(run)
                end.set()
            m.start([m.y], 1, on_done=on_done)
            self.assertTrue(end.wait(WAIT_S))
            with self.assertRaisesRegex(Refused, "FAILED_PRECONDITION: MR_SessionEventFd"):
                m.b.call("MR_SessionEventFd", m.session)

    def test_a_waiting_step_blocks_no_other(self):
        for m in self.models():
            taken = m.start([m.take])
            self.assertEqual(m.b.run(m.session, [m.y], [(m.x, m.b.tensor(FLOAT, [], [3]))])[0][2],
                             [9])
            self.assertFalse(m.b.c.MR_RunHasEnded(taken))
            m.result(m.start(value=5, targets=[m.put]), 0)
            self.assertEqual(m.result(taken), [5])
            m.b.c.MR_DeleteRun(taken)

    def test_cancelling(self):
        for m in self.models():
            run = m.start([m.take])
            m.b.c.MR_CancelRun(run)
            with self.assertRaisesRegex(Refused, "CANCELLED"):
                m.result(run)
            m.b.c.MR_CancelRun(run)  # it has ended
            m.b.c.MR_DeleteRun(run)
            # A step that nobody waits for any more takes nothing from the queue. TensorFlow's
            # server ends a step some time after its call has ended, so there each of the two may
            # still take something.
            m.b.c.MR_DeleteRun(m.start([m.take]))
            n = 3 if IS_TENSORFLOW and m.is_remote else 1
            for _ in range(n):
                m.result(m.start(value=5, targets=[m.put]), 0)
            self.assertIn(m.b.run(m.session, [m.size])[0][2][0], range(1, n + 1))

    def test_errors_name_their_cause(self):
        for m in self.models():
            with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: MR_SessionRunAsync: operation "
                                                 "'x' .* has no output 7"):
                m.start([Output(m.x, 7)])
            run = m.start([m.y])
            with self.assertRaisesRegex(Refused, "(?s)INVALID_ARGUMENT: .*'x'"):
                m.result(run)
            m.b.c.MR_DeleteRun(run)
            with self.assertRaisesRegex(Refused, "INVALID_ARGUMENT: MR_RunResult: run"):
                m.result(None)
            m.b.c.MR_DeleteRun(None)
            m.b.c.MR_CancelRun(None)

    def test_a_callback_may_delete_its_session(self):
        for where in (target(), ""):
            m, seen, end = Model(where), [], threading.Event()

            @DONE
            def on_done(_, run):
                with contextlib.suppress(Refused):
                    m.result(run)
                m.b.c.MR_DeleteRun(run)
                seen.append(run)
                if len(seen) == 1:
                    m.b.call("TF_DeleteSession", m.session)
                if len(seen) == 4:
                    end.set()
            for _ in range(3):
                m.start([m.take], on_done=on_done)
            m.start([m.y], 3, on_done=on_done)
            self.assertTrue(end.wait(WAIT_S))
            m.b.close()

    def test_a_deleted_session_starts_no_further_run(self):
        for where in (target(), ""):
            m, refused = Model(where), []

            @DONE
            def on_done(_, run):
                m.b.c.MR_DeleteRun(run)
                try:
                    m.start([m.take], on_done=on_done)
                except Refused as why:
                    refused.append(why.code)
            for _ in range(3):
                m.start([m.take], on_done=on_done)
            m.b.call("TF_DeleteSession", m.session)
            self.assertEqual(refused, ["CANCELLED"] * 3)
            m.b.close()

    def test_a_session_that_ends_ends_its_runs(self):
        for where in (target(), ""):
            m = Model(where)
            ended = []

            @DONE
            def on_done(_, run):
                with self.assertRaisesRegex(Refused, "CANCELLED"):
                    m.result(run)
                ended.append(run)
            runs = [m.start([m.take], on_done=on_done) for _ in range(3)]
            kept = m.start([m.take])
            m.b.call("TF_DeleteSession", m.session)
            self.assertEqual(sorted(ended), sorted(runs))
            with self.assertRaisesRegex(Refused, "CANCELLED"):
                m.result(kept)
            for run in [*runs, kept]:
                m.b.c.MR_DeleteRun(run)
            m.b.close()


if __name__ == "__main__":
    unittest.main()
