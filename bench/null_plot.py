"""Figures of bench/null_steps.py as a table and a plot: docs/scaling.md between its two marks, and
docs/scaling.svg."""
import math
import os

BEGIN, END = "<!-- figures: bench/null_steps.py --write -->", "<!-- end of figures -->"
TITLES = {"scalar": "a scalar from each ps", "dense": "100 MiB, dense",
          "sparse": "32 rows of 1 GiB"}
COLOURS = ("#c2410c", "#0369a1", "#15803d")
DASHES = {1: "", 2: "6 3", 4: "2 3"}
WIDTH, HEIGHT, LEFT, TOP, GAP, BOTTOM = 250, 250, 62, 34, 66, 92


def show(seconds):
    return (f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms" if seconds
            < 0.1 else f"{seconds * 1e3:.0f} ms")


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def table(rows):
    """Ratios are steps a second in all ÷ those of the first system."""
    first, *others = rows[0]["systems"]
    heads = ["pulled", "ps", "workers", *(f"{n}: steps/s" for n in (first, *others)),
             *(f"{n}: one step" for n in (first, *others)),
             *(f"{n} ÷ {first}" for n in others)]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    for row in rows:
        of = [row["systems"][n] for n in (first, *others)]
        cells = [row["kind"], str(row["ps"]), str(row["workers"]),
                 *(number(f["steps_per_s"]) for f in of), *(show(f["step_us"] / 1e6) for f in of),
                 *(number(f["steps_per_s"] / of[0]["steps_per_s"]) for f in of[1:])]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(x, y, words, anchor="middle", size=12, more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'{more}>{words}</text>')


def line(x1, y1, x2, y2, colour="#d4d4d4", dash="", width=1):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}" stroke-dasharray="{dash}"/>')


def panel(rows, kind, left):
    """Steps a second in all over workers, both in powers."""
    rows = [r for r in rows if r["kind"] == kind]
    workers = sorted({r["workers"] for r in rows})
    rates = [f["steps_per_s"] for r in rows for f in r["systems"].values()]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))

    def x(n):
        return left + WIDTH * math.log(n / workers[0]) / math.log(workers[-1] / workers[0])

    def y(rate):
        return TOP + HEIGHT * (high - math.log10(rate)) / (high - low)

    out = [text(left + WIDTH / 2, TOP - 12, TITLES[kind], size=14)]
    for n in workers:
        out += [line(x(n), TOP, x(n), TOP + HEIGHT), text(x(n), TOP + HEIGHT + 18, n)]
    for power in range(low, high + 1):
        out += [line(left, y(10**power), left + WIDTH, y(10**power)),
                text(left - 6, y(10**power) + 4, f"{10 ** power:,g}", "end")]
    for name, colour in zip(rows[0]["systems"], COLOURS):
        for n_servers in sorted({r["ps"] for r in rows}):
            points = [(x(r["workers"]), y(r["systems"][name]["steps_per_s"])) for r in rows
                      if r["ps"] == n_servers]
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
                       f'stroke-dasharray="{DASHES[n_servers]}"/>')
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" fill="{colour}"/>' for px,
                    py in points]
    return out + [text(left + WIDTH / 2, TOP + HEIGHT + 36, "workers")]


def legend(names, n_servers):
    y, x, out = TOP + HEIGHT + 66, LEFT, []
    for name, colour in zip(names, COLOURS):
        out += [line(x, y, x + 26, y, colour, width=3), text(x + 32, y + 4, name, "start")]
        x += 50 + 8 * len(name)
    for n in n_servers:
        out += [line(x, y, x + 26, y, "#404040", DASHES[n], 2),
                text(x + 32, y + 4, f"{n} ps", "start")]
        x += 80
    return out


def svg(rows):
    kinds = list(dict.fromkeys(r["kind"] for r in rows))
    width, height = LEFT + len(kinds) * (WIDTH + GAP), TOP + HEIGHT + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" font-family="sans-serif" fill="#262626">',
           "<title>Null steps a second in all, by number of workers</title>",
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           # fmt: skip
           text(14, TOP + HEIGHT / 2, "steps a second in all", size=12,
                more=f'transform="rotate(-90 14 {TOP + HEIGHT / 2})"')]
    for i, kind in enumerate(kinds):
        out += panel(rows, kind, LEFT + i * (WIDTH + GAP))
    return "\n".join(out + legend(list(rows[0]["systems"]), sorted({r["ps"] for r in rows}))
                     + ["</svg>"]) + "\n"


def write(rows, directory):
    path = os.path.join(directory, "scaling.md")
    with open(path) as f:
        page = f.read()
    before, rest = page.split(BEGIN)
    with open(path, "w") as f:
        f.write(before + BEGIN + "\n\n" + table(rows) + "\n\n" + END + rest.split(END)[1])
    with open(os.path.join(directory, "scaling.svg"), "w") as f:
        f.write(svg(rows))
