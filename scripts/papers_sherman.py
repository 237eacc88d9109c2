"""The Sherman paper's experiments on the simulated cluster: docs/results/sherman.md and its plots."""
from papers_lab import Page, number, plot, share, times

# --- what is run ---

CLUSTER = "sim:nic=cx5,compute=8,memory=8"
TINY_CLUSTER = "sim:nic=cx5,compute=2,memory=2"
REST = "lockread,backoff,reuse,adopt,merge"  # beyond the paper: never part of what is compared with it
LADDER = [  # the paper's name, engine, what is switched off
    ("FG+", "fg+", ""),
    ("+Combine", "sherman", f"onchip,hierarchical,queue,handover,twolevel,{REST}"),
    ("+On-Chip", "sherman", f"hierarchical,queue,handover,twolevel,{REST}"),
    ("+Hierarchical", "sherman", f"twolevel,{REST}"),
    ("Sherman", "sherman", REST),
    ("ours", "sherman", ""),
]
SYSTEMS = {name: (engine, without) for name, engine, without in LADDER}
LOCKS = [
    ("host memory", "onchip,hierarchical,queue,handover,backoff"),
    ("+ on-chip", "hierarchical,queue,handover,backoff"),
    ("+ local table", "queue,handover,backoff"),
    ("+ queues", "handover,backoff"),
    ("+ handover", "backoff"),
    ("ours: + back-off", ""),
]
CLIENTS = [(6, 1), (11, 1), (22, 1), (22, 2), (22, 3)]  # threads and coroutines of 8 compute nodes
SKEWS = ["uniform", "zipf:0.9", "zipf:0.99"]
FIG2_SKEWS = ["uniform", "zipf:0.5", "zipf:0.8", "zipf:0.9", "zipf:0.99"]
KEY_SIZES = [16, 64, 128, 256, 512]
CACHE_SHARES = [0.125, 0.25, 0.5, 0.75, 1.0, 1.25]


class ShermanLab:
    """The lab with this paper's cluster and sizes."""

    def __init__(self, lab):
        self.lab = lab
        self.quick = lab.quick
        self.tiny = lab.tiny
        self.records = 20_000 if lab.tiny else 1_000_000 if lab.quick else 100_000_000
        self.middle = 20_000 if lab.tiny else 1_000_000 if lab.quick else 10_000_000  # where the size matters less
        self.long_keys = 5_000 if lab.tiny else 200_000 if lab.quick else 2_000_000

    def bench(self, name, *arguments, pool=CLUSTER, threads=22):
        if self.tiny:
            pool, threads = TINY_CLUSTER, 2
        return self.lab.bench(name, *arguments, pool=pool, threads=threads)

    def run(self, system, workload, dist, *more, records=None, seconds=None, warmup=None,
            threads=22, coroutines=1, tag=""):
        engine, without = SYSTEMS[system]
        if seconds is None:
            seconds, warmup = self.times(system, workload, dist)
        if self.tiny:
            seconds, warmup = 0.001, 0.001
        arguments = ["--engine", engine, "--workload", workload, "--dist", dist, "--records",
                     records or self.records, "--coroutines", coroutines, "--seconds", f"{seconds:.6f}",
                     "--warmup", f"{warmup:.6f}"]
        if without:
            arguments += ["--without", without]
        if tag or system != "ours":
            arguments.append("--no-limit")
        name = f"{workload}-{dist}-{system}-{threads}x{coroutines}{tag}"
        return self.bench(name, *arguments, *more, threads=threads)

    def times(self, system, workload, dist):
        """Virtual seconds: a collapsed system needs long to show its tail."""
        slow = dist == "zipf:0.99" and workload in ("write-only", "write-intensive", "range-write")
        if slow and system in ("FG+", "+Combine"):
            return (0.15, 0.05) if self.quick else (0.6, 0.1)
        if slow and system == "+On-Chip":
            return (0.05, 0.02) if self.quick else (0.15, 0.03)
        if slow:
            return (0.02, 0.01) if self.quick else (0.06, 0.02)
        if dist == "zipf:0.99" and workload == "read-intensive":
            return (0.02, 0.01) if self.quick else (0.05, 0.05)
        return (0.004, 0.001) if self.quick else (0.01, 0.002)


# --- the experiments ---

def table_1(lab, page, _):
    paper = {("read-intensive", "uniform"): (31.8, 4.9, 6.4, 14.9),
             ("read-intensive", "zipf:0.99"): (32.9, 4.7, 6.2, 15.3),
             ("write-intensive", "uniform"): (18.7, 9.5, 14.3, 19),
             ("write-intensive", "zipf:0.99"): (0.34, 10, 68.7, 19890)}
    rows = []
    for (workload, dist), figures in paper.items():
        found = lab.run("FG+", workload, dist)
        values = [found[key] for key in ("mops", "p50_us", "p90_us", "p99_us")]
        for what, theirs, ours in zip(("Mops", "p50 us", "p90 us", "p99 us"), figures, values):
            rows.append((f"{workload}, {dist}" if what == "Mops" else "", what, number(theirs),
                         number(ours), f"{ours / theirs:.2f}"))
    page.add("## Table 1: FG+ (SR-1)")
    page.table(["workload", "", "paper", "ours", "ratio"], rows)


def ladder(lab, page, folder, workload, dist, title, paper, note=()):
    found = [(name, lab.run(name, workload, dist)) for name, _, _ in LADDER]
    rows, before = [], None
    for name, result in found:
        theirs = paper.get(name)
        step = times(result["mops"] / before["mops"]) if before else ""
        rows.append((name, number(theirs[0]) if theirs else "", number(result["mops"]),
                     f"{result['mops'] / theirs[0]:.2f}" if theirs and theirs[0] else "",
                     theirs[1] if theirs else "", step, number(result["p50_us"]),
                     theirs[2] if theirs else "", number(result["p99_us"])))
        before = result
    results = dict(found)
    first, last = results["FG+"], results["Sherman"]
    page.add(f"## {title}")
    page.table(["", "paper Mops", "ours", "ratio", "paper's step", "ours", "p50 us",
                "paper's p99 us", "ours"], rows)
    page.add(f"FG+ to Sherman: {times(last['mops'] / first['mops'])} throughput, "
             f"{times(first['p50_us'] / last['p50_us'])} lower p50, "
             f"{times(first['p99_us'] / last['p99_us'])} lower p99. "
             f"With what goes beyond the paper (`ours`): "
             f"{times(results['ours']['mops'] / first['mops'])} and "
             f"{times(first['p99_us'] / results['ours']['p99_us'])}.", *note, "")
    name = f"{workload}-{dist.replace(':', '-')}.svg"
    plot(folder, name, f"{workload}, {dist}", "", "Mops",
         [("Mops", list(enumerate(result["mops"] for _, result in found)))],
         labels=[name for name, _ in found])
    page.add(f"![{title}]({name})", "")
    return results


def figure_10(lab, page, folder):
    ladder(lab, page, folder, "write-intensive", "zipf:0.99",
           "Figure 10(b): skewed, write-intensive (SR-3, SR-4)",
           {"FG+": (0.34, "", "19,890"), "+Combine": (1.15, "3.37x", "6,255"),
            "+On-Chip": (3.51, "3.06x", "1,797"), "+Hierarchical": (7.78, "2.22x", "670"),
            "Sherman": (8.02, "1.03x", "659")},
           ("The paper: 23.6x, 1.4x, 30.2x.",))
    ladder(lab, page, folder, "write-only", "zipf:0.99",
           "Figure 10(a): skewed, write-only (SR-3)", {},
           ("The paper: 24.7x, 1.2x, 35.8x; its bars are not given as numbers.",))
    rows = []
    for name in ("FG+", "Sherman", "ours"):
        found = lab.run(name, "read-intensive", "zipf:0.99")
        rows.append((name, number(found["mops"]), number(found["p50_us"]), number(found["p99_us"])))
    page.add("## Figure 10(c): skewed, read-intensive (SR-4)")
    page.table(["", "Mops", "p50 us", "p99 us"], rows)
    page.add("The paper: about equal throughput (FG+ 32.9), p99 15.3 us with FG+ and 12.9 us with "
             "Sherman.", "")


def figure_11(lab, page, _):
    rows = []
    for workload, paper in (("write-only", 1.24), ("write-intensive", 1.15)):
        found = {name: lab.run(name, workload, "uniform") for name in ("FG+", "Sherman", "ours")}
        gain = found["Sherman"]["mops"] / found["FG+"]["mops"]
        rows.append((workload, *(number(found[name]["mops"]) for name in found), times(paper),
                     times(gain), f"{gain / paper:.2f}",
                     times(found["FG+"]["p99_us"] / found["Sherman"]["p99_us"])))
    page.add("## Figure 11: uniform (SR-5)")
    page.table(["", "FG+ Mops", "Sherman", "ours", "paper's gain", "ours", "ratio", "lower p99"],
               rows)


def figure_12(lab, page, _):
    rows = []
    for workload in ("range-only", "range-write"):
        for length in (100, 1000):
            found = {name: lab.run(name, workload, "zipf:0.99", "--scan-length", length,
                                   records=lab.middle, seconds=0.01 if lab.quick else 0.03,
                                   warmup=0.01 if lab.quick else 0.03, tag=f"-{length}")
                     for name in ("FG+", "Sherman", "ours")}
            scans = {name: result["by_kind"].get("scan", {"mops": 0})["mops"]
                     for name, result in found.items()}
            paper = {("range-only", 100): "0.98x", ("range-only", 1000): "1.0x"}
            rows.append((workload, length, *(number(scans[name]) for name in scans),
                         paper.get((workload, length), "up to 1.82x"),
                         times(scans["Sherman"] / scans["FG+"])))
    page.add("## Figure 12: range queries, skewed (SR-6)", "",
             f"Million range queries a second, {lab.middle:,} records.")
    page.table(["", "pairs", "FG+", "Sherman", "ours", "paper's gain", "ours"], rows)


def figure_13(lab, page, folder):
    paper = {"uniform": 44, "zipf:0.9": 21, "zipf:0.99": 9}
    page.add("## Figure 13: more clients, write-intensive (SR-7)", "",
             "8 compute nodes with 6, 11 and 22 threads, then 22 threads with 2 and 3 coroutines.")
    for dist in SKEWS:
        curves = {}
        for name in ("FG+", "Sherman", "ours"):
            slow = name == "FG+" and dist != "uniform"
            seconds = (0.05 if lab.quick else 0.2) if slow else (0.004 if lab.quick else 0.03)
            curves[name] = [
                (8 * threads * coroutines,
                 lab.run(name, "write-intensive", dist, threads=threads, coroutines=coroutines,
                         seconds=seconds, warmup=seconds / 3, tag="-scale")["mops"])
                for threads, coroutines in CLIENTS]
        rows = [(name, *(number(mops) for _, mops in points),
                 number(max(mops for _, mops in points)),
                 f"{100 * points[-1][1] / max(mops for _, mops in points):.0f} %")
                for name, points in curves.items()]
        page.add("", f"### {dist}: the paper's Sherman peaks at {paper[dist]} Mops")
        page.table(["clients", *(str(x) for x, _ in curves["FG+"]), "peak", "528 of the peak"], rows)
        name = f"clients-{dist.replace(':', '-')}.svg"
        plot(folder, name, f"write-intensive, {dist}", "clients", "Mops", list(curves.items()))
        page.add(f"![{dist}]({name})", "")


def figure_14(lab, page, _):
    runs = {name: lab.run(name, "write-intensive", "zipf:0.99")
            for name in ("FG+", "Sherman", "ours")}
    trips = {name: run["distribution"]["write_round_trips"] for name, run in runs.items()}
    sizes = {name: run["distribution"]["write_bytes"] for name, run in runs.items()}
    reads = {name: run["distribution"]["read_round_trips"] for name, run in runs.items()}

    def part(distribution, value):
        return share(distribution["share"].get(str(value), 0))

    rows = [("lookups of one READ", "99.98 %, 99.98 %",
             *(share(reads[name]["share"].get("1", 0)) for name in runs)),
            ("writes of 2 round trips", "-, 3.6 %", *(part(trips[name], 2) for name in runs)),
            ("writes of 3 round trips", "-, 93.6 %", *(part(trips[name], 3) for name in runs)),
            ("writes of 4 round trips", "94 %, -", *(part(trips[name], 4) for name in runs)),
            ("p99 of a write's round trips", "453, 11", *(trips[name]["p99"] for name in runs)),
            ("bytes written, p50", "1,024, 17", *(sizes[name]["p50"] for name in runs)),
            ("bytes written, p99", "", *(sizes[name]["p99"] for name in runs)),
            ("splits per write", "0.4 %",
             *(share(2 * run["engine_per_op"]["splits"]) for run in runs.values()))]
    page.add("## Figure 14: retries, round trips, write sizes (SR-8 to SR-10)")
    page.table(["", "paper: FG+, Sherman", *runs], rows)
    page.add("Bytes written count the pair with its cell header (24 B: a checked cell where the "
             "paper has two 4-bit versions) and the 8 B of the lock's release; the paper's 17 B "
             "leave the latter out. A hundred million records and a few milliseconds make almost "
             "no leaf overflow: the paper's 0.4 % come with longer runs.", "")


def figure_15(lab, page, folder):
    page.add("## Figure 15(a, b): key sizes (SR-11)", "",
             f"32 pairs per leaf, {lab.long_keys:,} records, write-intensive. A node has at most "
             "32 KB here, so 1 KB keys with 32 pairs do not fit; 512 B stand for them.")
    for dist, paper in (("uniform", "1.17x (16 B) to 1.47x (1 KB)"), ("zipf:0.99", "1.4x (1 KB)")):
        rows = []
        for size in KEY_SIZES:
            found = {name: lab.run(name, "write-intensive", dist, "--key-size", size, "--span", 32,
                                   "--cache", "4G", records=lab.long_keys,
                                   seconds=0.004 if dist == "uniform" else 0.03,
                                   warmup=0.001 if dist == "uniform" else 0.01, tag=f"-key{size}")
                     for name in ("FG+", "Sherman")}
            rows.append((size, number(found["FG+"]["mops"]), number(found["Sherman"]["mops"]),
                         times(found["Sherman"]["mops"] / found["FG+"]["mops"])))
        page.add("", f"### {dist}; the paper: {paper}")
        page.table(["key bytes", "FG+ Mops", "Sherman", "gain"], rows)

    page.add("## Figure 15(c): index cache (SR-12)", "")
    full = lab.run("Sherman", "write-intensive", "uniform")
    whole = full["cache_bytes"]
    rows, points = [], []
    for part in CACHE_SHARES:
        found = lab.run("Sherman", "write-intensive", "uniform", "--cache", int(whole * part),
                        tag=f"-cache{part}")
        rows.append((f"{part:.3g}", f"{found['cache_bytes'] / 2**20:.1f}",
                     share(found["cache_hit_ratio"]), number(found["mops"])))
        points.append((part, found["cache_hit_ratio"]))
    page.table(["of what all inner nodes take", "MiB per compute node", "hits", "Mops"], rows)
    page.add(f"All of it takes {full['cache_bytes_per_leaf']:.1f} B per leaf "
             f"({full['cache_bytes'] / 2**20:.1f} MiB for {full['records']:,} records). The paper "
             "has 400 MB for 1 G records and about 98 % hits.", "")
    plot(folder, "cache.svg", "index cache, uniform", "of what all inner nodes take", "hit ratio",
         [("hits", points)])
    page.add("![index cache](cache.svg)", "")


def figure_16(lab, page, folder):
    page.add("## Figure 2: CAS and FAA on 10,240 locks of one node, 154 threads (SR-2)", "")
    points = []
    for dist in FIG2_SKEWS:
        found = lab.bench(f"locks-faa-{dist}", "--workload", "locks", "--dist", dist, "--without",
                          "onchip,hierarchical,queue,handover,backoff,writeunlock", "--seconds",
                          0.05 if lab.quick else 0.2, "--warmup", 0.02, pool=CLUSTER.replace(
                              "compute=8", "compute=7"))
        points.append((0 if dist == "uniform" else float(dist.split(":")[1]), found["mops"]))
    page.table(["skew", *(x for x, _ in points)], [("Mops", *(number(y) for _, y in points))])
    page.add("The paper: about 20 Mops uniform, down to 0.494 Mops at 0.99.", "")
    plot(folder, "locks-skew.svg", "CAS and FAA on 10,240 locks", "skew", "Mops",
         [("154 threads", points)], log_y=True)
    page.add("![locks](locks-skew.svg)", "")

    paper = ["", "2.89x", "3.85x", "", "2.34x", ""]
    tails = ["", "2.88x lower", "3.65x lower: 414 us", "372 us", "3.19x lower", ""]
    rows, before = [], None
    for index, (name, without) in enumerate(LOCKS):
        found = lab.bench(f"locks-{index}", "--workload", "locks", "--seconds",
                          0.1 if lab.quick else 0.3, "--warmup", 0.03,
                          *(["--without", without] if without else []))
        rows.append((name, number(found["mops"]), paper[index],
                     times(found["mops"] / before["mops"]) if before else "",
                     number(found["p50_us"]), number(found["p99_us"]), tails[index]))
        before = found
    page.add("## Figure 16: locks alone, zipf 0.99, 176 threads (SR-13)")
    page.table(["", "Mops", "paper's step", "ours", "p50 us", "p99 us", "paper's p99"], rows)


EXPERIMENTS = [table_1, figure_10, figure_11, figure_12, figure_13, figure_14, figure_15, figure_16]

INTRODUCTION = """# Sherman's figures on the simulated cluster

Written by `make papers` ({mode}); do not edit. All rates and times are *simulated*: 8 compute nodes with
22 threads and 8 memory nodes in virtual time (`{cluster}`), 8-byte keys and values,
nodes of 1 KB loaded 80 % full, {records:,} records where nothing else is said (the paper: 1 G), seed 1.
`FG+` is the engine with every technique of the paper switched off, `Sherman` has what the paper has,
`ours` adds the leaf's READ behind the lock's CAS (`lockread`), the leaf's bytes passed on with its lock
(`reuse`), a holder that does the work of those who wait for its leaf (`adopt`), back-off (`backoff`), merges.
"Ratio" is ours divided by the paper's figure.

## The model, and what is fitted

One set of constants, `src/fabric/sim/model.c`, preset cx5: 450 ns one way; at the target 250 ns for a
READ or a CAS on host memory, 100 ns for a WRITE, 50 ns for a CAS on-chip; exponential jitter of 750 ns
per list; 12.5 GB/s each way, 60 B of header, 52 M messages a second; atomics on one word at most every
45 ns on-chip and every 130 ns in host memory, and one that waits holds up the NIC's whole inbound queue;
1.9 us of CPU per operation, 0.6 us more per write, 0.9 us per list, 0.35 us to hand a lock over.

- *Fitted*, to Table 1's uniform rows and to section 5.7's first step: the CPU costs, the jitter and the
  two service times.
- *Fitted to one single figure*: the 270 ns of an atomic on a lock word that lies inside a node (FG+ only;
  `embedded=1`). With 130 ns there, too, FG+ is about twice as fast on skewed writes and the step to
  +Combine shrinks accordingly; the total from FG+ to Sherman then is about half as large.
- *Predicted*: everything else, above all the collapse of FG+, the steps +On-Chip, +Hierarchical and
  two-level, the tails, the round trips, Figures 12 to 16.

What the model has not: PCIe and memory bandwidth of the memory nodes, cache misses of the CPUs, and
compute and memory nodes sharing one NIC, as they do in the paper's testbed.
"""

CLOSING = """## Where it differs, and why

- Records. The most popular key of zipf 0.99 has 6.3 % of all accesses among 1.5 M positions (1 M records),
  4.7 % among 150 M (100 M records) and 4.2 % among 1 G. Skewed figures are bound by that key's leaf, so
  they come out about a tenth lower with 100 M records and a third lower with 1 M, for every system alike;
  with 1 M records FG+ collapses on the skewed read-intensive mix, too.
- Long keys (Figure 15a): the gain over FG+ does not grow with the key. In the paper's testbed every machine
  is a compute and a memory node at once, so what FG+ writes and what everybody reads share one link; here
  they use opposite directions of different links, and whole-leaf writes cost almost no bandwidth that the
  reads want.
- Locks alone (Figure 16): on-chip, local tables and handover together gain about as much as in the paper,
  but local tables less and handover more: nothing models the cost of many threads spinning on one local
  lock.
- Range queries (Figure 12): nothing models the CPU time of sorting a leaf's pairs, which is the paper's 2 %.
- `ours` does not fall with more clients on skewed writes, it rises: those who wait for one leaf in one
  process are served by one list (`adopt`). Back-off costs throughput where locks are all there is (Figure 16):
  a lock that was just released lies idle while those who wait for it sleep.
- Leaves take more memory than the paper's: a pair of 16 B takes a cell of 24 B (8 B of header with a
  checksum and a version, so that reads are right under a memory model that promises whole words only),
  and a leaf has 64 B of header and fences: 40 pairs per KB, 25.6 B per pair, 60 % over plain pairs; the
  paper's 17 B entries cost about 6 %. Loaded 80 % full that is 32 B a record.
"""


def write(lab, out, only):
    """docs/results/sherman.md and its plots."""
    page, lab = Page(), ShermanLab(lab)
    mode = ("--tiny" if lab.tiny else "--quick: 1 M records, so skewed figures are lower" if lab.quick
            else "full")
    if only:
        mode += f"; only {', '.join(only)}"
    page.add(INTRODUCTION.format(mode=mode, cluster=TINY_CLUSTER if lab.tiny else CLUSTER,
                                 records=lab.records))
    for experiment in EXPERIMENTS:
        if not only or experiment.__name__ in only:
            experiment(lab, page, out)
    page.add(CLOSING)
    (out / "sherman.md").write_text("\n".join(page.lines))
