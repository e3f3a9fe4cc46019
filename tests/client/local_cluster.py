"""Local clusters, one of each size for all tests of a process: ours, or TensorFlow's own servers
with MILLRACE_SERVER=tensorflow in the environment."""
import atexit
import ctypes
import functools
import os
import signal
import subprocess
import sys

from c_library import BUILD

IS_TENSORFLOW = os.environ.get("MILLRACE_SERVER") == "tensorflow"

# As many workers as the argument says, in one process. It ends with its standard input.
SERVERS = """
import os, socket, sys
import tensorflow as tf
def address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"
workers = [address() for _ in range(int(sys.argv[1]))]
servers = [tf.distribute.Server({"worker": workers}, job_name="worker", task_index=i)
           for i in range(len(workers))]
print("grpc://" + workers[0], flush=True)
sys.stdin.read()
os._exit(0)
"""


def _die_with_parent():
    """Also when the library under test ends the process."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _command(workers):
    if IS_TENSORFLOW:
        return [sys.executable, "-c", SERVERS, str(workers)]
    return [os.path.join(BUILD, "bin", "tfctl"), "local", "--workers", str(workers), "--quiet"]


_targets = []


def status():
    """What `tfctl status` says of the clusters."""
    told = [subprocess.run([os.path.join(BUILD, "bin", "tfctl"), "status", "--target", each],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False).stdout for each in _targets if not IS_TENSORFLOW]
    return "\n".join(told)


@functools.lru_cache()
def target(workers=1):
    """Starts a cluster. Returns "grpc://127.0.0.1:PORT"."""
    process = subprocess.Popen(
        _command(workers), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, preexec_fn=_die_with_parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})

    def stop():
        process.terminate()
        process.communicate()
    atexit.register(stop)
    _targets.append(process.stdout.readline().strip())
    return _targets[-1]
