"""A local cluster of ours, one for all tests of a process."""
import atexit
import functools
import os
import subprocess

from c_library import BUILD


@functools.lru_cache()
def target():
    """Starts the cluster. Returns "grpc://127.0.0.1:PORT"."""
    process = subprocess.Popen(
        [os.path.join(BUILD, "bin", "tfctl"), "local", "--workers", "1", "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def stop():
        process.terminate()
        process.communicate()
    atexit.register(stop)
    return process.stdout.readline().strip()
