"""What run_cluster.py and run_wrong.py --gpus expect to differ where every task has a GPU:
TensorFlow, which is the oracle, has none."""

import os
import re
import sys
import tempfile

# Cases about clusters without GPUs.
OF_A_CLUSTER_WITHOUT_GPUS = {
    "error/no_such_device": "a GPU is such a device",
    "device_of_no_type": "a GPU is such a device",
    "session/gpu_without_soft_placement": "there is a GPU",
    "client/unknown_devices": "a GPU is a known device",
    "resource/shared_with_another_type": "a variable of int32 is on the CPU, one of float on the "
                                         "GPU: two of one name",
    "resource/ref_shared_with_another_type": "likewise",
    "session/partition_graphs": "a task has a graph for each device",
    "session/full_trace": "a GPU's rows are devices of a trace",
}
# A GPU does not report a bad element (docs/gpu.md).
UNCHECKED = re.compile(
    r"is not in \[0, \d+\)|segment ids are not increasing|does not index into shape|"
    r"Received a label value of|seq_lens\(\d+\) > input.dims")
# Scripts that expect such a report; their notes are codes, without a message.
UNCHECKED_SCRIPTS = {"session/sixteen_threads", "client/partial_runs", "client/control_flow",
                     "client/names_of_errors"}


def why_left_out(name):
    """Why a case says nothing with GPUs; None: it does."""
    if name in UNCHECKED_SCRIPTS:
        return "a GPU does not report a bad element"
    return OF_A_CLUSTER_WITHOUT_GPUS.get(name)


def is_unchecked(our, their):
    """Has TensorFlow an error that a GPU cannot have? Both are programs.Outcome."""
    return not our.code and their.code > 0 and bool(UNCHECKED.search(their.message))


class DeviceReport:
    """What the simulated devices find in the daemons: each line is a bug."""

    def __enter__(self):
        handle, self.path = tempfile.mkstemp(prefix="millrace-sim-report-")
        os.close(handle)
        os.environ["MILLRACE_SIM_REPORT"] = self.path
        return self

    def __exit__(self, *_):
        os.unlink(self.path)

    def take(self):
        """The lines since the last call."""
        with open(self.path, "r+", encoding="utf-8", errors="replace") as report:
            lines = report.read()
            report.truncate(0)
        return lines.strip()


def run_and_exit(runner, arguments):
    """Runs a runner, with `--gpus` with a report, and ends the process at once: TensorFlow's own
    servers have no way to be stopped."""
    if arguments.gpus:
        with DeviceReport() as report:
            status = runner(arguments, report).run()
    else:
        status = runner(arguments).run()
    sys.stdout.flush()
    os._exit(status)
