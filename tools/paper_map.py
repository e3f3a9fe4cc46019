"""The rows of docs/paper-map.md: which files and tests belong to a section of the papers, and what
is still missing.

A row names files and tests, which must exist: a pattern without a match is an error. `parts` are
the things that the paper asks for, each with a probe; the status of a row says which parts a probe
does not find:
    op:NAME          a kernel, or a rule of the master or the executor, runs the op
    file:PATTERN     a file
    flag:PROGRAM --NAME   a flag in the program's --help
"""
import glob
import os
import re

PAPERS = (
    ("The white paper", (
        ("2", "operations and kernels",
         "common/ops/*_ops.c kernels/kernel.h kernels/cpu/*/*_kernels.c",
         "unit/kernels/test_tables.c differential/cases_*.py", {}),
        ("2", "sessions: Extend, Run",
         "master/service/service.c master/session/session.c master/session/executable.c "
         "master/step/step.c",
         "differential/sessions.py unit/master/test_request.c unit/master/test_step_machine.c", {}),
        ("2", "variables",
         "kernels/variable.c kernels/cpu/state/state_*.c kernels/cpu/state/resource_*.c",
         "unit/kernels/test_state.c differential/cases_state.py differential/programs_variables.py",
         {"reference variables": "op:VariableV2", "resource variables": "op:VarHandleOp"}),
        ("3", "devices and their names",
         "common/graph/device_name.c master/compile/device_table.c",
         "unit/common/test_device_name.c unit/master/test_device_table.c",
         {"CPU devices": "file:kernels/cpu/*_kernels.c",
          "GPU devices": "file:kernels/cuda/plugin.c"}),
        ("3", "tensors", "common/tensor/tensor.c common/tensor/buffer.c common/tensor/dtype.*",
         "unit/common/test_tensor*.c unit/common/test_dtype.c unit/common/test_buffer.c", {}),
        ("3.1", "execution on one device: count what is missing, keep a ready queue",
         "worker/plan/plan.c worker/executor/executor.c worker/executor/executor_propagate.c",
         "unit/worker/test_executor.c ../bench/executor.c", {}),
        ("3.2.1", "placement",
         "master/compile/place/place*.c master/compile/place/pass_place.c "
         "master/compile/cost/schedule*.c master/session/placement_trial.c",
         "unit/master/data/place*.txt unit/master/test_schedule.c unit/master/test_place_search.c "
         "unit/master/test_placement_trial.c e2e/test_placement.py",
         {"constraints and a simple rule": "file:master/compile/place/pass_place.c",
          "variables spread by bytes": "file:master/compile/place/place_spread.c",
          "a cost model": "file:master/compile/place/place_cost.c",
          "measured rates": "file:kernels/rates.c",
          "measured links": "file:master/compile/cost/link_table.c",
          "measured costs": "file:master/compile/cost/cost_table.c"}),
        ("3.2.2", "Send and Recv, one Recv for each tensor and task",
         "master/compile/partition/pass_partition.c worker/exchange/rendezvous*.c",
         "unit/master/data/partition.txt unit/worker/test_rendezvous*.c", {}),
        ("3.3", "distributed execution: one message for each worker and step",
         "master/step/step.c worker/service/service_steps.c rpc/wire/wire*.c "
         "worker/exchange/peer.c",
         "unit/worker/test_service.c unit/rpc/test_wire.c differential/run_cluster.py", {}),
        ("3.3",
         "fault tolerance: an error of a Send and Recv pair ends the step; a restarted task is "
         "noticed",
         "master/step/step_machine.c master/cluster/tasks.c worker/exchange/peer.c",
         "unit/master/test_step_machine.c unit/worker/test_peer.c", {}),
        ("3.3", "periodic health checks",
         "rpc/wire/heartbeat.h master/cluster/task_health.h worker/exchange/peer.c docs/failure.md",
         "unit/rpc/test_heartbeat.c e2e/test_faults.py", {}),
        ("3.3", "checkpoints", "common/io/README.md kernels/host/files/checkpoint*.c",
         "e2e/test_checkpoints.py e2e/test_apart.py e2e/test_save_barrier.py",
         {"Save": "op:SaveV2", "Restore": "op:RestoreV2"}),
        ("4.1", "gradients", "common/gradients/README.md common/gradients/*_grad.c",
         "unit/kernels/test_tables.c differential/programs_gradients.py "
         "differential/programs_training.py",
         {"the client differentiates": "op:MatMul",
          "the master's table of derivatives": "op:SymbolicGradient"}),
        ("4.2", "partial execution", "master/compile/pass_cut.c master/compile/pass_prune.c",
         "unit/master/data/cut.txt unit/master/data/prune.txt", {}),
        ("4.3", "device constraints, colocation by union-find", "master/compile/place/place.c",
         "unit/master/data/place.txt", {}),
        ("4.4", "control flow",
         "worker/plan/plan_frames.c worker/executor/executor_frames.c common/graph/control_flow.c",
         "unit/worker/test_executor.c differential/programs_control_flow.py", {}),
        ("4.5", "input operations", "kernels/host/files/reader*.c kernels/host/data/*.c",
         "differential/cases_reader.py differential/programs_data.py",
         {"readers": "op:TFRecordReaderV2", "tf.data": "op:MapDataset"}),
        ("4.6", "queues", "kernels/host/resources/queue*.c",
         "unit/kernels/test_queue.c differential/cases_queue.py",
         {"FIFO queues": "op:FIFOQueueV2", "shuffling queues": "op:RandomShuffleQueueV2"}),
        ("4.7", "containers, Reset", "worker/container.c master/service/service_reset.c",
         "unit/worker/test_container.c differential/sessions.py", {}),
        ("5.1", "common subexpression elimination", "master/compile/rewrite/pass_cse.c",
         "unit/master/data/cse.txt", {}),
        ("5.2", "scheduling of receives",
         "master/compile/partition/partition_receives.c master/compile/partition/pass_delays.c "
         "worker/exchange/rendezvous_wire.c",
         "unit/master/test_receives.c unit/master/test_delays.c unit/worker/test_rendezvous*.c",
         {"large values are announced and granted": "file:worker/exchange/rendezvous_wire.c",
          "an analysis of the graph": "file:master/compile/partition/partition_receives.c"}),
        ("5.3", "asynchronous kernels", "kernels/kernel.h worker/executor/executor_async.c",
         "unit/worker/test_executor.c", {}),
        ("5.4", "optimised libraries",
         "kernels/cpu/blas.c kernels/cpu/onednn.c kernels/cpu/matmul/matmul*.c",
         "unit/kernels/test_math.c differential/cases_math.py", {}),
        ("5.5", "lossy compression of transfers",
         "common/tensor/float16.h master/compile/partition/partition_narrow.c",
         "unit/common/test_dtype.c e2e/test_narrow_sends.py",
         {"floats as 16 bits": "flag:tf-master --[no-]bfloat16-sends"}),
        ("7", "synchronous and asynchronous data parallel training",
         "examples/digits_sync.py examples/digits_async.py examples/sync_replicas.py",
         "e2e/test_examples.py", {}),
        ("9.1", "TensorBoard's summaries", "kernels/host/text/summary_*.c",
         "differential/cases_summary.py differential/programs_summary.py",
         {"scalars": "op:ScalarSummary", "histograms": "op:HistogramSummary",
          "images": "op:ImageSummary",
          "event files": "op:WriteSummary"}),
        ("9.2", "performance tracing",
         "worker/executor/executor_stats.c worker/service/step_stats.c",
         "differential/sessions.py e2e/test_traces.py",
         {"RunMetadata.step_stats of all tasks": "file:worker/service/step_stats.c",
          "one merged picture": "file:tfctl/tfctl_trace.c"}),
        ("10", "functions",
         "common/graph/function_*.c master/compile/inline/pass_inline.c "
         "master/compile/inline/inline_*.c",
         "unit/master/data/inline_call.txt differential/programs_functions.py",
         {"calls": "op:PartitionedCall", "a gradient function": "op:SymbolicGradient"}),
    )),
    ("OSDI'16, where it says more", (
        ("3.1", "stateful operations", "kernels/variable.h kernels/host/resources/queue.h",
         "differential/programs_variables.py differential/cases_queue.py",
         {"variables": "op:VariableV2", "queues": "op:FIFOQueueV2"}),
        ("3.2", "partial and concurrent execution: many steps on one graph",
         "master/session/session.h worker/plan/plan.h",
         "differential/sessions.py", {}),
        ("3.3", "subgraphs cached on each task, so that a step is one small message",
         "master/session/executable.c worker/service/graph_cache.c", "unit/worker/test_service.c",
         {}),
        ("3.3", "constant folding", "master/compile/rewrite/pass_fold.c",
         "unit/master/data/fold.txt", {}),
        ("4.1", "optimizers as ops",
         "kernels/cpu/state/training_*.c client/training/optimizer.c client/training/lbfgs.c",
         "unit/kernels/test_training.c differential/cases_training.py "
         "../tests/client/test_training.py",
         {name: f"op:ResourceApply{name}" for name in ("Momentum", "Adagrad", "Adadelta", "RMSProp",
                 "Adam")} | {"L-BFGS by variables and arithmetic": "file:client/training/lbfgs.c"}),
        ("4.2", "very large models",
         "kernels/cpu/array/array_gather.c kernels/cpu/array/array_partition.c "
         "kernels/cpu/state/state_scatter.c",
         "differential/cases_array.py differential/cases_state.py",
         {name: f"op:{name}" for name in ("Gather", "DynamicPartition", "DynamicStitch",
                                          "ScatterSub")}),
        ("4.2, 6.4", "language models: partitioned embeddings; full, sharded and sampled softmax",
         "examples/char_lstm.py examples/word_lm.py examples/word2vec.py examples/wide_deep.py "
         "examples/c/char_lstm.c examples/c/word2vec.c",
         "e2e/test_examples.py e2e/test_c_examples.py",
         {"sampled softmax": "op:LogUniformCandidateSampler"}),
        ("4.3", "user-level checkpoints; training that survives failures",
         "common/io/README.md examples/digits_monitored.py client/training/saver.c",
         "e2e/test_checkpoints.py e2e/test_kill_training.py ../tests/client/test_training.py", {}),
        ("4.4", "synchronous replicas with backup workers",
         "examples/digits_sync.py examples/sync_replicas.py client/training/sync_replicas.c",
         "e2e/test_sync_replicas.py ../tests/client/test_training.py",
         {"accumulators": "op:ConditionalAccumulator"}),
        ("5", "executor, rendezvous, transports",
         "worker/README.md rpc/README.md worker/exchange/peer_rdma.h",
         "rdma/run.py unit/worker/test_peer_rdma.c",
         {"TCP": "file:rpc/wire/wire.h", "shared memory": "file:worker/exchange/peer_shm.h",
          "RDMA": "file:rpc/rdma/verbs.h", "GPUs": "file:kernels/cuda/plugin.c"}),
        ("6.2", "null steps: scalar, sparse, dense",
         "bench/compare.py bench/null_steps.py docs/scaling.md", "", {}),
    )),
    ("EuroSys'18", (
        ("4.1",
         "Switch, Merge, Enter, Exit, NextIteration; frames and iterations as tags; dead values",
         "worker/plan/plan_frames.c worker/executor/executor_frames.c",
         "unit/worker/test_executor.c differential/programs_control_flow.py",
         {name: f"op:{name}" for name in ("Switch", "Merge", "Enter", "Exit", "NextIteration")}),
        ("4.2", "conditionals and loops in terms of these",
         "master/compile/inline/inline_branch.c master/compile/inline/inline_loop.c",
         "unit/master/data/inline_branch.txt unit/master/data/inline_loop.txt",
         {name: f"op:{name}" for name in ("If", "Case", "While")}),
        ("4.3", "execution in one task, `parallel_iterations`", "worker/executor/executor_frames.c",
         "unit/worker/test_executor.c ../bench/executor.c", {}),
        ("4.4", "conditionals that span tasks: dead flags travel",
         "worker/exchange/rendezvous.h master/compile/partition/pass_partition.c",
         "differential/programs_control_flow.py unit/master/data/partition.txt", {}),
        ("4.4", "loops that span tasks: a small loop on each of them, one forwarded predicate",
         "master/compile/partition/partition_loops.c",
         "differential/programs_control_flow.py unit/master/data/partition.txt", {}),
        ("5", "gradients of loops",
         "kernels/host/resources/stack_kernels.c kernels/host/resources/tensor_array*.c "
         "kernels/host/resources/list_*.c", "differential/programs_control_flow.py",
         {"stacks": "op:StackPushV2", "TensorArrays": "op:TensorArrayV3",
          "lists": "op:TensorListPushBack",
          "swapping to host memory, which only devices with memory of their own "
          "need": "file:kernels/cuda/plugin.c"}),
    )),
)

INTRODUCTION = """# From the papers to the source

[WP] *TensorFlow: Large-Scale Machine Learning on Heterogeneous Distributed Systems*,
white paper, 2015.
[OSDI] *TensorFlow: A System for Large-Scale Machine Learning*, OSDI 2016.
[CF] *Dynamic Control Flow in Large-Scale Machine Learning*, EuroSys 2018.

The rows are in `tools/paper_map.py`. Files and tests are checked to exist. Tests are in `tests/`.
The status is computed: a part is missing when its op has no kernel, its flag or its file does not
exist.
"""


def has_part(root, tables, helps, probe):
    kind, _, name = probe.partition(":")
    if kind == "op":
        return name in {op["name"] for op in tables["ops"]}
    if kind == "file":
        return bool(glob.glob(os.path.join(root, name)))
    if kind == "flag":
        program, _, flag = name.rpartition(" --")
        return f" --{flag}" in helps[program]
    raise SystemExit(f"paper_map: unknown probe {probe}")


def status(root, tables, helps, parts):
    missing = [what for what, probe in parts.items() if not has_part(root, tables, helps, probe)]
    if not missing:
        return "there"
    found = [what for what in parts if what not in missing]
    return (f"there: {', '.join(found)}; " if found else "") + f"missing: {', '.join(missing)}"


def cells(root, patterns, folder):
    """Patterns as table text. Raises SystemExit for one that matches nothing."""
    for pattern in patterns.split():
        if not glob.glob(os.path.normpath(os.path.join(root, folder, pattern))):
            raise SystemExit(f"tools/paper_map.py: no file matches {os.path.join(folder, pattern)}")
    return ", ".join(f"`{re.sub('^[.][.]/', '', pattern)}`" for pattern in patterns.split())


def page(root, tables, helps):
    """The text of docs/paper-map.md. tables: what dump_tables prints; helps: {program: its --help}.
    """
    out = [INTRODUCTION]
    for paper, rows in PAPERS:
        out.append(f"\n## {paper}\n\n| section | what | files | tests | status "
                   "|\n|---|---|---|---|---|\n")
        for section, what, files, tests, parts in rows:
            out.append(f"| {section} | {what} | {cells(root, files, '')} | "
                       f"{cells(root, tests, 'tests')} | "
                       f"{status(root, tables, helps, parts)} |\n")
    return "".join(out)
