"""The table of a report that tools/gpu_run has written: each row has a value, a bar, and pass, fail
or unmeasured with the reason."""

COPY_SHARE, ELEMENTWISE_SHARE, PRODUCT_SHARE, MEMORY_SHARE = 0.9, 0.85, 0.97, 1.05
CONV_SHARE = 0.95
LAUNCH_NS, LAUNCHES_PER_S, ALLOC_NS, FETCH_NS, EAGER_TIMES = 300, 300000, 100, 60000, 3
REPLAY_NS = 5000
NETWORK_STEPS = 3  # of a published network
LOSS_TOLERANCE = 0.02  # matrix products round their inputs to TF32
SEGMENTS_SHARE = 0.9  # of PyTorch eager's time, with segments
# How the OSDI paper's Table 1 names the networks, and its times in ms, on another GPU.
TABLE_1 = {"alexnet": ("AlexNet", 81), "overfeat": ("Overfeat", 279),
           "oxfordnet": ("OxfordNet A", 540), "googlenet": ("GoogLeNet", 445)}


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
    return max(step_ns(report, name) - step_ns(report, "nothing"), 1)


def beside(value, report, *path):
    """PyTorch's figure; where it is missing, ours is told all the same."""
    try:
        return figure(report, "torch", *path)
    except Missing as missing:
        raise Missing(f"{value}, but {missing}") from None


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


def launch_rate(variant):
    def row(report):
        nodes = figure(report, "graphs", "chain_gpu", "nodes")
        rate = nodes / (work_ns(report, "chain_gpu" + variant) / 1e9)
        own = work_ns(report, "chain_cpu") / nodes
        return f"{rate:,.0f} a second (a CPU's take {own / 1e3:.2f} µs)", rate >= LAUNCHES_PER_S
    return row


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


def in_pieces(way):
    """A value that is moved over a link while a GPU copies it, beside one after the other."""
    def row(report):
        pieces, whole, link = (figure(report, "rates", name) for name in
                               (f"{way}_in_pieces_rate", f"{way}_whole_rate", "link_rate"))
        text = f"{pieces / 1e9:.1f}, whole {whole / 1e9:.1f}, the link {link / 1e9:.1f} GB/s"
        return text, pieces >= whole
    return row


def elementwise(report):
    rate = figure(report, "graphs", "elementwise", "bytes") / (work_ns(report, "elementwise") / 1e9)
    most = 2 * figure(report, "rates", "within_rate")  # a copy reads and writes
    return f"{rate / 1e12:.2f} of {most / 1e12:.2f} TB/s", rate >= ELEMENTWISE_SHARE * most


def work_rate(name, share):
    """The rate of a graph of products or convolutions."""
    def row(report):
        ours = figure(report, "graphs", name, "flops") / (work_ns(report, name) / 1e9) / 1e12
        theirs = beside(f"{ours:.1f} TFLOP/s", report, name, "flops_per_s") / 1e12
        return f"{ours:.1f} of {theirs:.1f} TFLOP/s", ours >= share * theirs
    return row


def graph_text(report, name):
    """What PyTorch's CUDA graph takes, or nothing."""
    milliseconds = report["torch"].get(name, {}).get("graph_ms")
    return f", its CUDA graph {milliseconds:.3f}" if milliseconds else ""


def beside_eager(name, times, variant=""):
    def row(report):
        ours = step_ns(report, name + variant) / 1e6
        eager = beside(f"{ours:.3f} ms", report, name, "eager_ms")
        return (f"{ours:.3f} ms; eager {eager:.3f}{graph_text(report, name)}",
                eager >= times * ours)
    return row


def beside_graph(name):
    def row(report):
        ours = step_ns(report, name) / 1e6
        theirs = beside(f"{ours:.3f} ms", report, name, "graph_ms")
        return f"{ours:.3f} of {theirs:.3f} ms", ours <= theirs
    return row


def counted(report, name, key):
    return figure(report, "programs", name, "counts", key)


def replay_cpu(report):
    ns, parts = figure(report, "rates", "replay_ns"), figure(report, "rates", "replay_part_ns")
    return f"{ns / 1e3:.1f} µs, and {parts / 1e3:.2f} µs for each part", ns <= REPLAY_NS


def segments(name):
    """Not a bar: what is replayed of a step, why segments end, what the worker's threads take."""
    def row(report):
        work, replayed, replays, misses = (counted(report, name, key) for key in (
            "work", "work_replayed", "replays", "interrupted"))
        ends = ", ".join(f"{key[5:].replace('_', ' ')} {n:.1f}" for key, n in
                         figure(report, "programs", name, "counts").items()
                         if key.startswith("ends_") and n)
        on, off = (figure(report, "programs", name + variant, "cpu_ns") / 1e3
                   for variant in ("", " graphs_off"))
        share = replayed / work if work else 0
        return (f"{replayed:.1f} of {work:.1f} parts in {replays:.1f} segments, {misses:.1f} "
                f"missed; ends: {ends or 'none'}; CPU {on:.0f} µs, off {off:.0f}", share >= 0.5)
    return row


def memory_calls(names):
    def row(report):
        found = {name: counted(report, name, "memory_calls") for name in names(report)}
        if not found:
            raise Missing("no network was run")
        worst = max(found, key=found.get)
        return f"{found[worst]:.2f} in a step of {worst}", found[worst] == 0
    return row


def fusion(name):
    def row(report):
        on, off = work_ns(report, name), work_ns(report, name + " unfused")
        return (f"{on / 1e6:.3f} ms, unfused {off / 1e6:.3f} ({off / on:.1f} times; launches "
                f"{counted(report, name, 'work'):.0f} and "
                f"{counted(report, name + ' unfused', 'work'):.0f})", on < off)
    return row


def losses(name):
    def row(report):
        ours = figure(report, "programs", name, "losses")
        theirs = figure(report, "graphs", name, "losses")
        # a small network that learns fast soon goes where the last bits of a product take it
        n = NETWORK_STEPS if name.endswith("_small") and name != "mlp_small" else len(theirs)
        pairs = [(a, b) for a, b in zip(ours[:n], theirs) if a is not None]
        if not pairs:
            raise Missing("no loss")
        worst = max(abs(a - b) / max(1e-3, abs(b)) for a, b in pairs)
        milliseconds = step_ns(report, name) / 1e6
        return (f"off by {worst:.1e} in {len(pairs)} steps; {milliseconds:.3f} ms a step",
                worst <= LOSS_TOLERANCE and len(pairs) == min(len(ours), n))
    return row


def peak(name):
    def row(report):
        ours = figure(report, "programs", name, "peak_bytes") / 2**20
        theirs = beside(f"{ours:.1f} MiB", report, name, "peak_bytes") / 2**20
        return f"{ours:.1f} of {theirs:.1f} MiB", ours <= MEMORY_SHARE * theirs
    return row


def trained(report):
    """The networks of which a step was measured."""
    return [name for name, facts in report["graphs"].items()
            if {"network", "net"} & set(facts) and "counts" in report["programs"].get(name, {})]


def network_rows(name, facts):
    title, table_1 = TABLE_1.get(name, (name, None))
    title += f" ({facts['batch']})"
    note = f" ({table_1} ms in Table 1)" if table_1 else ""
    yield f"{title}, a step", f"0.9 of PyTorch eager's{note}", beside_eager(
        name, 1 / SEGMENTS_SHARE)
    yield f"{title}, a step without segments", "PyTorch eager's", beside_eager(
        name, 1, " graphs_off")
    yield f"{title}, peak memory", "1.05 of PyTorch's", peak(name)


def host_rows():
    yield "a kernel's node above the bare driver call", "0.3 µs", launch
    yield "launched nodes", "300,000 a second", launch_rate(" graphs_off")
    yield "launched nodes, with segments", "300,000 a second", launch_rate("")
    yield "alloc and free", "0.1 µs", allocations
    yield "driver calls of a warm step for memory", "0", memory_calls(trained)
    yield "a replayed segment", "5 µs of CPU", replay_cpu
    yield "a kernel and a scalar fetch, above the CPU's step", "60 µs", scalar_fetch
    yield "copy to the GPU", "90 % of pinned", copies("feed_rate", "pinned_to_device_rate")
    yield "copy to the host", "90 % of pinned", copies("fetch_rate", "pinned_to_host_rate")
    yield "a value that is sent in pieces", "as fast as whole", in_pieces("sent")
    yield "a value that is received in pieces", "as fast as whole", in_pieces("received")
    yield "elementwise, 256 MB", "85 % of the device's", elementwise


def listed(report):
    """(what, bar, row function)"""
    graphs = report["graphs"]
    yield "differential cases", "none differs", cases_agree
    yield "compute-sanitizer memcheck", "no error", memcheck
    yield from host_rows()
    for name, facts in graphs.items():
        if facts["part"] == "products":
            yield (f"MatMul {facts['dtype']} {facts['side']}³", "0.97 of PyTorch's",
                   work_rate(name, PRODUCT_SHARE))
    for name, facts in graphs.items():
        if facts["part"] == "conv":
            conv = facts["conv"]
            yield (f"Conv2D {facts['kind']} {facts['dtype']}: {conv['side']}×{conv['side']}, "
                   f"{conv['channels']} to {conv['n']}, {conv['batch']}×{conv['image']}²",
                   "0.95 of PyTorch's", work_rate(name, CONV_SHARE))
    for name, facts in graphs.items():
        if "network" in facts:
            yield f"{name}: losses beside TensorFlow's CPU", "0.02", losses(name)
    yield "MLP (128) with Adam, a step", "3 times PyTorch eager", beside_eager("mlp_small",
                                                                            EAGER_TIMES)
    yield "MLP (128), beside PyTorch's CUDA graph", "as fast", beside_graph("mlp_small")
    yield "MLP (128), what is replayed", "half", segments("mlp_small")
    yield "MLP (1024), a step", "PyTorch eager's", beside_eager("mlp", 1)
    yield "MLP (1024), what is replayed", "half", segments("mlp")
    yield "MLP (1024), peak memory", "1.05 of PyTorch's", peak("mlp")
    yield "LSTM loop, a step", "PyTorch eager's", beside_eager("lstm", 1)
    for name, facts in graphs.items():
        if "net" in facts:
            yield from network_rows(name, facts)
    for name, facts in graphs.items():
        if "fused" in facts:
            yield (f"fused: {facts['fused']}, {facts['bytes'] >> 20} MiB", "less than unfused",
                   fusion(name))


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
