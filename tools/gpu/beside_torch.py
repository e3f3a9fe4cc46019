"""What PyTorch does with the work of tools/gpu_run's graphs, in one process, by the device's
events: medians, fresh random data. Prints JSON, which is {"reason": ...} where there is no PyTorch
or no GPU.

    beside_torch.py PACK_JSON
"""
import json
import statistics
import sys

ROUNDS, WARM = 12, 3


def median_ms(torch, work, rounds=ROUNDS):
    """The median time of work() by events, in ms."""
    for _ in range(WARM):
        work()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def elementwise(torch, facts):
    x = torch.randn(facts["elements"], device="cuda")
    y = torch.empty_like(x)

    def work():
        for _ in range(facts["repeats"]):
            torch.neg(x, out=y)

    return {"bytes_per_s": facts["bytes"] / (median_ms(torch, work) / 1e3)}


def products(torch, facts):
    n, dtype = facts["side"], getattr(torch, facts["dtype"])
    x, w = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    w /= n**0.5

    def work():
        y = x
        for _ in range(facts["repeats"]):
            y = y @ w

    return {"flops_per_s": facts["flops"] / (median_ms(torch, work) / 1e3)}


def training(torch, model, loss_of):
    """Eager steps, and the same captured in a CUDA graph."""
    torch.cuda.reset_peak_memory_stats()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, capturable=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model).backward()
        optimizer.step()

    result = {"eager_ms": median_ms(torch, step, 50)}
    result["peak_bytes"] = torch.cuda.max_memory_allocated()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    result["graph_ms"] = median_ms(torch, graph.replay, 50)
    return result


def mlp(torch, facts):
    size, batch = facts["network"]
    layers = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(),
                                 torch.nn.Linear(size, size), torch.nn.ReLU(),
                                 torch.nn.Linear(size, 10)).cuda()
    x, labels = torch.randn(batch, size, device="cuda"), torch.arange(batch, device="cuda") % 10
    return training(torch, layers,
                    lambda model: torch.nn.functional.cross_entropy(model(x), labels))


def lstm(torch, facts):
    """The same cell, step by step: not cuDNN's."""
    size, batch, steps = facts["network"]
    sequence = torch.randn(batch, steps, size, device="cuda")
    cell = torch.nn.Linear(2 * size, 4 * size).cuda()

    def loss_of(model):
        h = c = torch.zeros(batch, size, device="cuda")
        for t in range(steps):
            i, j, f, o = model(torch.cat([sequence[:, t], h], 1)).chunk(4, 1)
            c = c * torch.sigmoid(f + 1) + torch.sigmoid(i) * torch.tanh(j)
            h = torch.tanh(c) * torch.sigmoid(o)
        return ((h - 0.2)**2).mean()

    return training(torch, cell, loss_of)


MEASURES = [("elementwise", elementwise), ("products_", products), ("mlp", mlp), ("lstm", lstm)]


def main():
    try:
        import torch
    except ImportError as error:
        print(json.dumps({"reason": f"no PyTorch: {error}"}))
        return
    if not torch.cuda.is_available():
        print(json.dumps({"reason": "PyTorch finds no GPU"}))
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    with open(sys.argv[1], encoding="utf-8") as file:
        programs = json.load(file)["graphs"]
    results = {"version": torch.__version__}
    for name, facts in programs.items():
        measure = next((f for prefix, f in MEASURES if name.startswith(prefix)), None)
        if not measure:
            continue
        try:
            results[name] = measure(torch, facts)
        except RuntimeError as error:  # a row without PyTorch's figure is better than no table
            results[name] = {"reason": str(error)[:300]}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
