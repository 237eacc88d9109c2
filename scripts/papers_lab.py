"""What the papers' experiments share: running `pando bench`, pages of Markdown, plots."""
import json
import shutil
import subprocess
import sys
import time


class Lab:
    """Runs benchmarks, one at a time, and remembers what they found."""

    def __init__(self, options):
        self.pando = options.pando
        self.quick = options.quick or options.tiny
        self.tiny = options.tiny
        self.reuse = options.reuse
        self.folder = options.work / ("tiny" if options.tiny else "quick" if options.quick else "full")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.done = 0
        self.known = {}  # what ran already, for more than one table
        self.failed = []  # commands that were allowed to fail, and did
        self.began = time.monotonic()

    def bench(self, name, *arguments, pool, threads, may_fail=False):
        """What a run found; None if it failed and may."""
        path = self.folder / (name.replace("/", "_").replace(" ", "_") + ".json")
        command = ["bench", "--pool", pool, "--threads", str(threads), *map(str, arguments)]
        if name in self.known:
            return self.known[name]
        self.known[name] = self.measure(name, path, command, may_fail)
        return self.known[name]

    def measure(self, name, path, command, may_fail):
        self.done += 1
        if self.reuse and path.exists():
            return json.loads(path.read_text())
        print(f"[{time.monotonic() - self.began:6.0f} s] {self.done}: {name}", flush=True)
        path.unlink(missing_ok=True)
        result = subprocess.run([self.pando, *command, "--json", path], stdout=subprocess.DEVNULL)
        if result.returncode != 0 and may_fail:
            self.failed.append("pando " + " ".join(command))
            return None
        if result.returncode != 0:
            sys.exit(f"scripts/papers: failed: pando {' '.join(command)}")
        found = json.loads(path.read_text())
        if found["errors"]:
            sys.exit(f"scripts/papers: {found['errors']} errors: pando {' '.join(command)}")
        return found


# --- the page ---

class Page:
    def __init__(self):
        self.lines = []

    def add(self, *lines):
        self.lines += lines

    def table(self, header, rows):
        self.add("", "| " + " | ".join(map(str, header)) + " |", "|" + "---|" * len(header))
        for row in rows:
            self.add("| " + " | ".join(str(cell) for cell in row) + " |")
        self.add("")


def number(value, digits=3):
    """Three significant digits, thousands with commas."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{round(value, -(len(str(int(abs(value)))) - digits)):,.0f}"
    places = max(0, digits - 1 - int(f"{abs(value):e}".split("e")[1]))
    return f"{value:.{places}f}"


def times(value):
    return f"{number(value)}x"


def share(value):
    return f"{100 * value:.2f} %"


def plot(folder, name, title, xlabel, ylabel, curves, log_y=False, labels=None):
    """curves: (name, [(x, y)]). With labels: bars over these words. Without gnuplot: nothing."""
    curves = [(curve, points) for curve, points in curves if points]
    if shutil.which("gnuplot") is None or not curves:
        return
    text = ["set terminal svg size 720,400 font 'sans,13' background '#ffffff'",
            f"set output '{folder / name}'", f"set title '{title}'", f"set xlabel '{xlabel}'",
            f"set ylabel '{ylabel}'", "set grid", "set key outside right top"]
    if log_y:
        text.append("set logscale y")
    else:
        text.append("set yrange [0:*]")
    for index, (_, points) in enumerate(curves):
        text.append(f"$data{index} << EOD")
        text += [f"{x} {y}" for x, y in points]
        text.append("EOD")
    if labels:
        tics = ", ".join(f"'{label}' {place}" for place, label in enumerate(labels))
        text += [f"set xtics ({tics}) rotate by -20", "set boxwidth 0.8 relative",
                 "set style fill solid 0.7", f"set xrange [-0.6:{len(labels) - 0.4}]"]
    style = "boxes" if labels and len(curves) == 1 else "linespoints lw 2 pt 7 ps 0.5"
    parts = [f"$data{index} using 1:2 with {style} title '{curve}'"
             for index, (curve, _) in enumerate(curves)]
    text.append("plot " + ", ".join(parts))
    subprocess.run(["gnuplot"], input="\n".join(text) + "\n", text=True, check=True)
