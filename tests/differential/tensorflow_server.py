"""TensorFlow's own servers in a process of their own, for graphs that abort them: one ps and two
workers, as cluster.Cluster is.

    with TensorFlowServer() as server:
        Client(server.port)        # raw_clients; the master is worker 0's
        server.revive()            # starts them again where the last graph has ended them; True
        when it had
"""

import os
import subprocess
import sys

from cluster import DIES_WITH_PARENT

HERE = os.path.dirname(os.path.abspath(__file__))
SERVE = """
import os, sys
from sessions import TensorFlowCluster
print(TensorFlowCluster.target().rsplit(":", 1)[1], flush=True)
sys.stdin.read()
os._exit(0)
"""


class TensorFlowServer:
    def __init__(self):
        self.process = self.port = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.process = subprocess.Popen(
            [*DIES_WITH_PARENT, sys.executable, "-c", SERVE], cwd=HERE, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )  # fmt: skip
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.wait()

    def revive(self):
        if self.process.poll() is None:
            return False
        self.start()
        return True
