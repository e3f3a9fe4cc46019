"""What PyTorch does with the work of tools/gpu_run's graphs, by the device's events: medians, fresh
random data. Prints a line of JSON for each graph of a part as soon as it has been measured, or
{"reason": ...} where there is no PyTorch or no GPU.

    beside_torch.py PACK_JSON PART
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


def convolution(torch, facts):
    conv, dtype = facts["conv"], getattr(torch, facts["dtype"])
    last, stride = torch.channels_last, conv["stride"]
    padding = conv["side"] // 2
    image = (conv["batch"], conv["channels"], conv["image"], conv["image"])

    def random(*shape, scale=1.0):
        made = (torch.randn(*shape, device="cuda") * scale).to(dtype)
        return made.contiguous(memory_format=last)

    def weight():
        return random(conv["n"], conv["channels"], conv["side"], conv["side"],
                      scale=(conv["side"]**2 * conv["channels"])**-0.5)

    x, weights = random(*image), [weight() for _ in range(facts["values"])]
    y = torch.nn.functional.conv2d(x, weights[0], None, stride, padding)
    gradients = [random(*y.shape) for _ in range(facts["values"])]
    masks = {"data": [True, False, False], "filter": [False, True, False]}

    def backward(dy, w):
        return torch.ops.aten.convolution_backward(
            dy, x, w, None, [stride, stride], [padding, padding], [1, 1], False, [0, 0], 1,
            masks[facts["kind"]])

    def work():
        """As many results are alive at the end as in our graph."""
        kept = [None] * len(weights)
        for _ in range(facts["rounds"]):
            for i, w in enumerate(weights):
                if facts["kind"] == "forward":
                    kept[i] = torch.nn.functional.conv2d(x, w, None, stride, padding)
                elif facts["kind"] == "data":
                    kept[i] = backward(gradients[0], w)
                else:
                    kept[i] = backward(gradients[i], weights[0])
        return kept

    return {"flops_per_s": facts["flops"] / (median_ms(torch, work) / 1e3)}


def training(torch, model, loss_of, optimizer, rounds=50):
    """Eager steps, and the same captured in a CUDA graph."""
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model).backward()
        optimizer.step()

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()  # trying convolutions took memory
    result = {"eager_ms": median_ms(torch, step, rounds)}
    result["peak_bytes"] = torch.cuda.max_memory_allocated()
    try:
        result["graph_ms"] = captured_ms(torch, step, optimizer, rounds)
    except RuntimeError as error:
        result["graph_reason"] = str(error)[:300]
    return result


def captured_ms(torch, step, optimizer, rounds):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    return median_ms(torch, graph.replay, rounds)


def adam(torch, model):
    return torch.optim.Adam(model.parameters(), lr=0.001, capturable=True)


def network(torch, facts):
    import torch_networks
    model, loss_of, optimizer = torch_networks.training(facts, "cuda")
    return training(torch, model, loss_of, optimizer, 20)


def mlp(torch, facts):
    size, batch = facts["network"]
    layers = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(),
                                 torch.nn.Linear(size, size), torch.nn.ReLU(),
                                 torch.nn.Linear(size, 10)).cuda()
    x, labels = torch.randn(batch, size, device="cuda"), torch.arange(batch, device="cuda") % 10
    return training(torch, layers,
                    lambda model: torch.nn.functional.cross_entropy(model(x), labels),
                    adam(torch, layers))


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

    return training(torch, cell, loss_of, adam(torch, cell))


MEASURES = [("elementwise", elementwise), ("products_", products), ("conv_", convolution),
            ("mlp", mlp), ("lstm", lstm)]


def measure_of(name, facts):
    if "net" in facts:
        return network
    return next((f for prefix, f in MEASURES if name.startswith(prefix)), None)


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
    torch.backends.cudnn.benchmark = True
    with open(sys.argv[1], encoding="utf-8") as file:
        programs = json.load(file)["graphs"]
    print(json.dumps({"versions": {"torch": torch.__version__, "cuda": torch.version.cuda,
                                   "cudnn": torch.backends.cudnn.version()}}), flush=True)
    for name, facts in programs.items():
        measure = measure_of(name, facts) if facts["part"] == sys.argv[2] else None
        if not measure:
            continue
        torch.cuda.empty_cache()
        try:
            found = measure(torch, facts)
        except (RuntimeError, TypeError, ValueError) as error:  # the other rows go on
            found = {"reason": str(error)[:300]}
        print(json.dumps({name: found}), flush=True)


if __name__ == "__main__":
    main()
