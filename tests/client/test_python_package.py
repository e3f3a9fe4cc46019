"""The Python package: its wheel, sessions, arrays, asynchronous runs (client/python)."""
import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from c_library import BUILD, ROOT, SHARED_OBJECT
from local_cluster import target

os.environ["MILLRACE_LIBRARY"] = SHARED_OBJECT
sys.path.insert(0, os.path.join(ROOT, "client", "python"))
import millrace  # noqa: E402
import numpy as np  # noqa: E402

WAIT_S = 60


def graph(build):
    """The GraphDef that a function builds with TensorFlow."""
    import tensorflow as tf
    with tf.Graph().as_default() as made:
        build(tf, tf.compat.v1)
        return made.as_graph_def()


def model(tf, tf1):
    x = tf1.placeholder(tf.float32, [None, 2], name="x")
    tf.reduce_sum(x * x, 1, name="y")
    tf.add(x, 1.0, name="z")
    v = tf1.get_variable("python_v", initializer=np.float32(3), use_resource=True)
    tf.identity(v, name="value")
    with tf.control_dependencies([v.assign_add(1.0)]):
        tf.no_op(name="add")
    tf1.global_variables_initializer()
    queue = tf1.FIFOQueue(10, tf.int64, shapes=[[]], shared_name="python_queue", name="queue")
    queue.enqueue(tf1.placeholder(tf.int64, [], name="item"), name="put")
    tf.identity(queue.dequeue(), name="taken")


class TestSessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.graph_def = graph(model)

    def sessions(self, **options):
        for where in (target(), ""):
            with self.subTest(target=where), millrace.Session(where, self.graph_def,
                                                              **options) as session:
                yield session

    def test_feeds_and_fetches(self):
        for s in self.sessions():
            y = s.run("y", {"x": [[1, 2], [3, 4]]})
            self.assertEqual((y.tolist(), y.dtype), ([5, 25], np.float32))
            y, z = s.run(["y:0", "z"], {"x:0": np.ones((1, 2), np.float32)})
            self.assertEqual((y.tolist(), z.tolist()), ([2], [[2, 2]]))
            self.assertEqual(s.run("y", {"x": np.empty((0, 2), np.float32)}).shape, (0,))
            self.assertEqual(s.run(targets="init"), [])
            self.assertEqual(s.run("value"), np.float32(3))
            s.run(targets=["add"])
            self.assertEqual(s.run("value"), 4)

    def test_large_arrays_are_not_copied(self):
        array = np.arange(1 << 20, dtype=np.float32).reshape(-1, 2)
        for s in self.sessions():
            held = sys.getrefcount(array)
            z = s.run("z", {"x": array})
            np.testing.assert_array_equal(z, array + 1)
            self.assertEqual(sys.getrefcount(array), held)
            self.assertFalse(z.flags.owndata)
            z[0, 0] = 7  # it is the caller's
            transposed = np.asfortranarray(array)
            np.testing.assert_array_equal(s.run("z", {"x": transposed}), array + 1)
            kept = s.run(["y", "z"], {"x": array})[1][1:]
        np.testing.assert_array_equal(kept, array[1:] + 1)  # after the end of its session

    def test_the_graph_grows(self):
        def more(tf, tf1):
            tf.constant(5, name="five")
        for s in self.sessions():
            s.run(targets="init")
            s.extend(graph(more).SerializeToString())
            self.assertEqual(s.run("five"), 5)
            with self.assertRaisesRegex(millrace.Error, "INVALID_ARGUMENT: .*five"):
                s.extend(graph(more))

    def test_dtypes(self):
        import ml_dtypes
        kinds = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64,
                 np.uint8, np.uint16, np.uint32, np.uint64, np.bool_, np.complex64,
                 np.complex128, ml_dtypes.bfloat16]

        def build(tf, tf1):
            for i, kind in enumerate(kinds):
                tf.identity(tf1.placeholder(tf.as_dtype(kind), name=f"x{i}"), name=f"y{i}")
            tf.identity(tf1.placeholder(tf.string, name="s"), name="t")
        for where in (target(), ""):
            with millrace.Session(where, graph(build)) as s:
                for i, kind in enumerate(kinds):
                    for shape in ((), (3,), (2, 0, 4), (1500, 3)):
                        value = np.ones(shape, kind)
                        got = s.run(f"y{i}", {f"x{i}": value})
                        self.assertEqual(got.dtype, value.dtype)
                        np.testing.assert_array_equal(got, value)
                self.assertEqual(s.run("t", {"s": "caf\u00e9"}), "caf\u00e9".encode())
                self.assertEqual(s.run("t", {"s": [["a\0b", b""]]}).tolist(), [[b"a\0b", b""]])
                self.assertEqual(s.run("t", {"s": np.array(["x", "yz"])}).tolist(), [b"x", b"yz"])

    def test_errors(self):
        for s in self.sessions():
            with self.assertRaisesRegex(KeyError, "no operation 'nowhere'"):
                s.run("nowhere")
            with self.assertRaisesRegex(KeyError, "operation 'y' has 1 outputs, none is number 3"):
                s.run("y:3")
            with self.assertRaisesRegex(KeyError, "operation 'init' has 0 outputs.*`targets`"):
                s.run("init")
            with self.assertRaisesRegex(ValueError, "'y:a' is not the name of an output"):
                s.run("y:a")
            with self.assertRaisesRegex(TypeError, "dtype complex128, and the graph takes float32"):
                s.run("y", {"x": np.ones((1, 2), complex)})
            with self.assertRaisesRegex(TypeError, "float64, and the graph takes int64"):
                s.run(targets="put", feeds={"item": 1.5})
            with self.assertRaisesRegex(TypeError, "uint64, .*: its numbers do not fit"):
                s.run(targets="put", feeds={"item": np.uint64(1 << 63)})
            with self.assertRaises(millrace.Error) as caught:
                s.run("y")
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
            self.assertIn("x", caught.exception.message)
            s.close()
            with self.assertRaisesRegex(millrace.Error,
                                        "FAILED_PRECONDITION: the session is closed"):
                s.run("y")
        with self.assertRaisesRegex(millrace.Error, "UNAVAILABLE"):
            millrace.Session("grpc://127.0.0.1:1", self.graph_def).run("value")
        with self.assertRaisesRegex(millrace.Error, "INVALID_ARGUMENT: target 'nowhere'"):
            millrace.Session("nowhere")
        with self.assertRaisesRegex(TypeError, "tls has no 'password'"):
            millrace.Session("grpcs://127.0.0.1:1", tls={"password": "x"})

    def test_closing_ends_the_calls_of_other_threads(self):
        for s in self.sessions():
            with ThreadPoolExecutor(4) as pool:
                calls = [pool.submit(s.run, "taken") for _ in range(4)]
                s.run(targets="put", feeds={"item": 3})
                while not any(call.done() for call in calls):
                    pass
                s.close()
                results = [call.exception(WAIT_S) or call.result() for call in calls]
            self.assertEqual(sorted(str(getattr(r, "code", r)) for r in results)[0], "3")
            self.assertEqual(sum(isinstance(r, millrace.Error) for r in results), 3)

    def test_a_callback_may_close_the_session(self):
        for s in self.sessions():
            closed = threading.Event()

            def close(_):
                s.close()
                closed.set()
            run = s.run_async("y", {"x": [[1, 1]]})
            run.add_done_callback(lambda _: 1 / 0)  # logged
            run.add_done_callback(close)
            self.assertTrue(closed.wait(WAIT_S))
            self.assertEqual(run.result(WAIT_S).tolist(), [2])

    def test_forgotten_sessions_and_runs(self):
        for where in (target(), ""):
            s = millrace.Session(where, self.graph_def)
            ended = threading.Event()
            s.run_async("taken").add_done_callback(lambda _: ended.set())
            del s
            gc.collect()
            self.assertFalse(ended.is_set())  # the run keeps its session
            [run] = [r for r in millrace._session._running]
            run.cancel()
            self.assertTrue(ended.wait(WAIT_S))

    def test_a_child_process_leaves_its_parents_sessions_alone(self):
        for s in self.sessions():
            pid = os.fork()
            if pid == 0:
                status = 1
                with contextlib.suppress(BaseException):
                    with self.assertRaisesRegex(millrace.Error, "parent of this process"):
                        s.run("value")
                    s.close()
                    status = 0
                os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            self.assertEqual(s.run("y", {"x": [[1, 2]]}).tolist(), [5])

    def test_a_timeout(self):
        for s in self.sessions(timeout=0.2):
            with self.assertRaisesRegex(millrace.Error, "DEADLINE_EXCEEDED"):
                s.run("taken")

    def test_runs(self):
        for s in self.sessions():
            runs = [s.run_async("y", {"x": [[i, 0]]}) for i in range(20)]
            self.assertEqual([run.result(WAIT_S).tolist() for run in runs],
                             [[i * i] for i in range(20)])
            waiting = s.run_async("taken")
            self.assertFalse(waiting.done())
            with self.assertRaises(TimeoutError):
                waiting.result(0)
            told = threading.Event()
            waiting.add_done_callback(lambda run: told.set())
            s.run(targets="put", feeds={"item": 9})
            self.assertEqual(waiting.result(WAIT_S), 9)
            self.assertTrue(told.wait(WAIT_S))
            cancelled = s.run_async("taken")
            cancelled.cancel()
            self.assertEqual(cancelled.exception(WAIT_S).code, "CANCELLED")
            failed = s.run_async("y")
            self.assertEqual(failed.exception(WAIT_S).code, "INVALID_ARGUMENT")
            lost = s.run_async("taken")
            s.close()
            self.assertEqual(lost.exception(WAIT_S).code, "CANCELLED")

    def test_awaited_runs(self):
        async def main(s):
            taken = asyncio.ensure_future(wait(s.run_async("taken")))
            ys = await asyncio.gather(*(wait(s.run_async("y", {"x": [[i, 1]]})) for i in range(5)))
            await s.run_async(targets="put", feeds={"item": 4})
            with self.assertRaisesRegex(millrace.Error, "INVALID_ARGUMENT"):
                await s.run_async("y")
            return [y.tolist() for y in ys], await taken

        async def wait(run):
            return await run
        for s in self.sessions():
            self.assertEqual(asyncio.run(main(s)), ([[i * i + 1] for i in range(5)], 4))

    def test_metadata_and_config(self):
        from tensorflow.core.protobuf import config_pb2
        config = config_pb2.ConfigProto(device_count={"CPU": 2})
        with millrace.Session("", self.graph_def, config=config) as s:
            self.assertEqual(s.devices(), [f"/job:localhost/replica:0/task:0/device:CPU:{i}"
                                           for i in range(2)])
            metadata = bytearray()
            s.run("y", {"x": [[1, 2]]}, run_metadata=metadata, run_options=config_pb2.RunOptions(
                trace_level=config_pb2.RunOptions.FULL_TRACE))
            stats = config_pb2.RunMetadata.FromString(bytes(metadata)).step_stats
            names = [node.node_name for device in stats.dev_stats for node in device.node_stats]
            self.assertTrue(any("y" in name for name in names), names)

    def test_a_saved_model(self):
        import tensorflow as tf
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "model")
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
                v = tf.compat.v1.get_variable("v", initializer=4.0)
                session.run(v.initializer)
                tf.compat.v1.saved_model.simple_save(session, path, {"x": x},
                                                     {"y": tf.multiply(x, v, name="y")})
            for where in ("",):
                with millrace.load_saved_model(path, where) as s:
                    self.assertEqual(s.run("y", {"x": [2]}).tolist(), [8])
                    self.assertIn(b"serving_default", s.meta_graph_def)


class TestWheel(unittest.TestCase):
    def test_it_installs_and_imports_little(self):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([os.path.join(ROOT, "tools", "wheel"), "--build", BUILD, directory],
                           check=True)
            [wheel] = os.listdir(directory)
            self.assertRegex(wheel, r"^millrace-[\d.]+-py3-none-linux_\w+\.whl$")
            site = os.path.join(directory, "site")
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                            "--no-index", "--disable-pip-version-check", "--target", site,
                            os.path.join(directory, wheel)], check=True)
            program = ("import sys, millrace\n"
                       "heavy = {'numpy', 'tensorflow', 'ctypes'} & set(sys.modules)\n"
                       "assert not heavy, heavy\n"
                       "with open(sys.argv[1], 'rb') as f:\n"
                       "    graph_def = f.read()\n"
                       "with millrace.Session('', graph_def) as s:\n"
                       "    print(s.run('y', {'x': [[3, 4]]}).tolist())\n"
                       "assert 'tensorflow' not in sys.modules\n")
            path = os.path.join(directory, "graph.pb")
            with open(path, "wb") as f:
                f.write(graph(model).SerializeToString())
            env = {k: v for k, v in os.environ.items() if k != "MILLRACE_LIBRARY"}
            out = subprocess.run([sys.executable, "-c", program, path], check=True, cwd=directory,
                                 env={**env, "PYTHONPATH": site}, stdout=subprocess.PIPE, text=True)
            self.assertEqual(out.stdout, "[25.0]\n")


if __name__ == "__main__":
    unittest.main()
