"""A folder that pack.py has written, where it is run."""
import glob
import json
import os
import sys
import tarfile

SIMULATED = "MILLRACE_SIM_DEVICES" in os.environ


def cuda_library_folders():
    """Where Python's packages keep NVIDIA's libraries."""
    found = []
    for place in sys.path:
        found += sorted(glob.glob(os.path.join(place, "nvidia", "*", "lib")))
    return found


class Pack:
    """The programs, the graphs, and what pack.json says of them."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "pack.json"), encoding="utf-8") as file:
            self.manifest = json.load(file)
        if not os.path.exists(os.path.join(folder, "bin")):
            with tarfile.open(os.path.join(folder, "payload.tar.xz")) as payload:
                payload.extractall(folder)
        before = os.environ.get("LD_LIBRARY_PATH")
        path = [*([before] if before else []), os.path.join(folder, "lib"),
                *cuda_library_folders()]
        self.env = {**os.environ, "LD_LIBRARY_PATH": ":".join(path),
                    "GRAPH_EVAL_GPU": os.path.join(folder, "lib", "millrace", "millrace-cuda.so")}

    def program(self, name):
        return os.path.join(self.folder, "bin", name)

    def graph(self, name):
        return os.path.join(self.folder, "graphs", name + ".pb")
