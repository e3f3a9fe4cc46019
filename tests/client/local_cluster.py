"""Local clusters of ours, one of each size for all tests of a process."""
import atexit
import ctypes
import functools
import os
import signal
import subprocess

from c_library import BUILD


def _die_with_parent():
    """Also when the library under test ends the process."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@functools.lru_cache()
def target(workers=1):
    """Starts a cluster. Returns "grpc://127.0.0.1:PORT"."""
    process = subprocess.Popen(
        [os.path.join(BUILD, "bin", "tfctl"), "local", "--workers", str(workers),
         "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=_die_with_parent)

    def stop():
        process.terminate()
        process.communicate()
    atexit.register(stop)
    return process.stdout.readline().strip()
