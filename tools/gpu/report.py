"""The table of a report that tools/gpu_run has written: each row has a value, a bar, and pass, fail
or unmeasured with the reason."""

COPY_SHARE, ELEMENTWISE_SHARE, PRODUCT_SHARE, MEMORY_SHARE = 0.9, 0.85, 0.97, 1.05
LAUNCH_NS, LAUNCHES_PER_S, ALLOC_NS, FETCH_NS, EAGER_TIMES = 300, 300000, 100, 60000, 3
LOSS_TOLERANCE = 0.02  # matrix products round their inputs to TF32
NEEDS_CONVOLUTION = ["Conv2D of the nets", "AlexNet", "Overfeat", "GoogLeNet", "OxfordNet A"]


class Missing(Exception):
    """A figure that a row needs was not measured."""


def figure(report, *path):
    at = report
    for key in path:
        if isinstance(at, dict) and at.get("reason") and key not in at:
            raise Missing(at["reason"])
        at = at.get(key) if isinstance(at, dict) else None
        if at is None:
            raise Missing(f"no figure for {' '.join(map(str, path))}")
    return at


def step_ns(report, name):
    return figure(report, "programs", name, "step_ns")


def work_ns(report, name):
    """What a step's work takes: without what a step that does next to nothing takes."""
    return max(step_ns(report, name) - step_ns(report, "scalar_cpu"), 1)


# ---- rows: a function returns (value as text, does it pass) ----

def cases_agree(report):
    if "reason" in figure(report, "replay"):
        raise Missing(report["replay"]["reason"])
    families = report["replay"].values()
    n = {key: sum(family.get(key, 0) for family in families)
         for key in ("agree", "explained", "differs", "left")}
    if not sum(n.values()):
        raise Missing("the pack has no cases")
    return (f"{n['agree']} agree, {n['explained']} explained, {n['differs']} differ, {n['left']} "
            "not run for lack of time", n["differs"] == 0 and n["left"] == 0)


def memcheck(report):
    errors, n = figure(report, "memcheck", "errors"), figure(report, "memcheck", "cases")
    return f"{errors} errors in {n} cases", errors == 0


def launch(report):
    above = figure(report, "rates", "kernel_ns") - figure(report, "rates", "bare_launch_ns")
    return f"{above / 1e3:.2f} µs", above <= LAUNCH_NS


def launch_rate(report):
    nodes = figure(report, "graphs", "chain_gpu", "nodes")
    rate = nodes / (work_ns(report, "chain_gpu") / 1e9)
    own = work_ns(report, "chain_cpu") / nodes
    return f"{rate:,.0f} a second ({own / 1e3:.2f} µs a node on the CPU)", rate >= LAUNCHES_PER_S


def allocations(report):
    ns = figure(report, "rates", "alloc_free_ns")
    return f"{ns / 1e3:.3f} µs", ns <= ALLOC_NS


def scalar_fetch(report):
    above = step_ns(report, "scalar_gpu") - step_ns(report, "scalar_cpu")
    return f"{above / 1e3:.0f} µs", above <= FETCH_NS


def copies(tensor, bare):
    def row(report):
        rate, most = figure(report, "rates", tensor), figure(report, "rates", bare)
        return f"{rate / 1e9:.1f} of {most / 1e9:.1f} GB/s", rate >= COPY_SHARE * most
    return row


def elementwise(report):
    rate = figure(report, "graphs", "elementwise", "bytes") / (work_ns(report, "elementwise") / 1e9)
    most = 2 * figure(report, "rates", "within_rate")  # a copy reads and writes
    return f"{rate / 1e12:.2f} of {most / 1e12:.2f} TB/s", rate >= ELEMENTWISE_SHARE * most


def product(name):
    def row(report):
        flops = figure(report, "graphs", name, "flops")
        ours = flops / (work_ns(report, name) / 1e9)
        try:
            theirs = figure(report, "torch", name, "flops_per_s")
        except Missing as missing:
            raise Missing(f"{ours / 1e12:.1f} TFLOP/s, but {missing}") from None
        return f"{ours / 1e12:.1f} of {theirs / 1e12:.1f} TFLOP/s", ours >= PRODUCT_SHARE * theirs
    return row


def beside_eager(name, times):
    def row(report):
        ours = step_ns(report, name) / 1e6
        try:
            eager = figure(report, "torch", name, "eager_ms")
        except Missing as missing:
            raise Missing(f"{ours:.3f} ms, but {missing}") from None
        graph = figure(report, "torch", name, "graph_ms")
        return (f"{ours:.3f} ms; eager {eager:.3f}, its CUDA graph {graph:.3f}",
                eager >= times * ours)
    return row


def losses(name):
    def row(report):
        ours = figure(report, "programs", name, "losses")
        theirs = figure(report, "graphs", name, "losses")
        pairs = [(a, b) for a, b in zip(ours, theirs) if a is not None]
        if not pairs:
            raise Missing("no loss")
        worst = max(abs(a - b) / max(1e-3, abs(b)) for a, b in pairs)
        milliseconds = step_ns(report, name) / 1e6
        return (f"off by {worst:.1e} in {len(pairs)} steps; {milliseconds:.3f} ms a step",
                worst <= LOSS_TOLERANCE and len(pairs) == min(len(ours), len(theirs)))
    return row


def peak(name):
    def row(report):
        ours = figure(report, "programs", name, "peak_bytes")
        try:
            theirs = figure(report, "torch", name, "peak_bytes")
        except Missing as missing:
            raise Missing(f"{ours / 2**20:.1f} MiB, but {missing}") from None
        return f"{ours / 2**20:.1f} of {theirs / 2**20:.1f} MiB", ours <= MEMORY_SHARE * theirs
    return row


def missing_row(reason):
    def row(report):
        raise Missing(reason)
    return row


def listed(report):
    """(what, bar, row function)"""
    graphs = report["graphs"]
    yield "differential cases", "none differs", cases_agree
    yield "compute-sanitizer memcheck", "no error", memcheck
    yield "a kernel's node above the bare driver call", "0.3 µs", launch
    yield "launched nodes", "300,000 a second", launch_rate
    yield "alloc and free", "0.1 µs", allocations
    yield ("driver calls of a warm step for memory", "0", missing_row("nothing counts them"))
    yield ("a replayed segment", "5 µs of CPU", missing_row("needs CUDA graphs"))
    yield "MLP (128) with Adam, a step", "3 times PyTorch eager", beside_eager("mlp_small",
                                                                            EAGER_TIMES)
    yield "a kernel and a scalar fetch, above the CPU's step", "60 µs", scalar_fetch
    yield "copy to the GPU", "90 % of pinned", copies("feed_rate", "pinned_to_device_rate")
    yield "copy to the host", "90 % of pinned", copies("fetch_rate", "pinned_to_host_rate")
    yield "elementwise, 256 MB", "85 % of the device's", elementwise
    for name, facts in graphs.items():
        if name.startswith("products_"):
            yield (f"MatMul {facts['dtype']} {facts['side']}³", "0.97 of PyTorch's",
                   product(name))
    for name, facts in graphs.items():
        if "network" in facts:
            yield f"{name}: losses beside TensorFlow's CPU", "0.02", losses(name)
    yield "MLP (1024), a step", "PyTorch eager's", beside_eager("mlp", 1)
    yield "LSTM loop, a step", "PyTorch eager's", beside_eager("lstm", 1)
    yield "MLP (1024), peak memory", "1.05 of PyTorch's", peak("mlp")
    for name in NEEDS_CONVOLUTION:
        yield name, "0.95 of PyTorch's" if "Conv2D" in name else "PyTorch eager's", missing_row(
            "needs convolution")


def rows(report):
    """The rows as the report keeps them. On a simulated device a time says nothing."""
    found = []
    is_simulated = report["environment"]["simulated"]
    for what, bar, row in listed(report):
        try:
            value, passes = row(report)
            result = {"value": value, "result": "pass" if passes else "fail"}
        except Missing as missing:
            result = {"value": "", "result": "unmeasured", "reason": str(missing)}
        is_a_time = row is not cases_agree and row is not memcheck and "losses" not in what
        if is_simulated and is_a_time and result["result"] != "unmeasured":
            result = {"value": value, "result": "unmeasured",
                      "reason": "simulated: no meaning"}
        found.append({"what": what, "bar": bar, **result})
    return found


def cell(text):
    return " ".join(str(text).split()).replace("|", "/")[:200]


def table(report):
    """The markdown table for docs/gpu.md."""
    environment = report["environment"]
    machine = "simulated device" if environment["simulated"] else environment["nvidia_smi"]
    lines = [f"Measured on: {cell(machine)}; revision {environment['revision']}, "
             f"{report['began'][:10]}.", "", "| what | bar | value | result |", "|---|---|---|---|"]
    for row in report["rows"]:
        result = row["result"] + (f": {row['reason']}" if row.get("reason") else "")
        lines.append(f"| {row['what']} | {row['bar']} | {cell(row['value'])} | {cell(result)} |")
    return "\n".join(lines)
