"""Starts the processes that a benchmark needs beside itself: daemons, other systems' servers, load.

The kernel kills them when the benchmark ends, also where it fails while it starts them, is killed,
or leaves by os._exit. A benchmark still stops what it has started, where it can: daemons that end
by themselves remove their sockets."""
import ctypes
import os
import signal
import subprocess

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def start(command, **options):
    """Starts a process that does not outlive the calling thread. `options` are Popen's."""
    parent = os.getpid()

    def die_with_parent():
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before
            os._exit(1)

    return subprocess.Popen(command, preexec_fn=die_with_parent, **options)  # noqa: PLW1509
