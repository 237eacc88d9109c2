#!/usr/bin/env python3
"""A memory node that comes back empty is not taken for its former self: clients that are connected get errors,
others are refused with the steps, the node says so in its own log, and with the former window everything that was
acknowledged is there again.
One that is replaced on purpose costs the tables that had memory there, and nothing else.

empty_node.py BUILD
"""
import concurrent.futures
import datetime
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS = 400
PROBES = 24
REFUSED = "refused a client that expects another window"
MINUTE = datetime.timedelta(seconds=60)


class Pool:
    """Two memory nodes on named windows, over shm or tcp."""

    def __init__(self, processes, build, fabric):
        self.processes, self.build = processes, build
        self.names = [f"test-{os.getpid()}-{fabric}-{node}" for node in range(2)]
        self.options = [["--shm", name, "--size", "256M", "--metrics", "127.0.0.1:0"] for name in self.names]
        self.uri, self.client = "shm:" + ",".join(self.names), []
        if fabric == "tcp":
            secret = str(processes.secret())
            ports = [lib.free_port() for _ in range(2)]
            for node, port in enumerate(ports):
                self.options[node] += ["--listen", f"127.0.0.1:{port}", "--secret-file", secret]
            self.uri = "tcp:" + ",".join(f"127.0.0.1:{port}" for port in ports)
            self.client = ["--secret-file", secret]
        self.nodes = [self.start(node) for node in range(2)]

    def start(self, node, *more):
        more = more or ("--node", str(node))
        return self.processes.start_memory(self.build, *self.options[node], *more, name=f"memory{node}")

    def kill(self, node):
        self.nodes[node].kill()
        self.nodes[node].wait()

    def file(self, node):
        return pathlib.Path(f"/dev/shm/pando-{self.names[node]}")

    def metric(self, node, pattern):
        """What the pattern's group matches in the metrics of a node."""
        ready = self.processes.wait_for(self.nodes[node], "metrics at ")
        address = re.search(r"metrics at ([0-9.:]+)", ready).group(1)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as reply:
            return re.search(pattern, reply.read().decode()).group(1)

    def window(self, node):
        return int(self.metric(node, r'pando_memory_window_info{id="([0-9a-f]+)"}'), 16)

    def refusals(self, node):
        """How many clients it refused, and its lines about that."""
        count = int(self.metric(node, r"pando_memory_window_refusals_total (\d+)"))
        lines = self.nodes[node].log.read_text(errors="replace").splitlines()
        return count, [line for line in lines if REFUSED in line]

    def pando(self, *words):
        """A command that joins the pool: its exit status and what it said."""
        done = subprocess.run([str(self.build / "pando"), *words, "--pool", self.uri, *self.client],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        return done.returncode, done.stdout.decode()


def fill(port, keys):
    call = lib.Connection(port, timeout=60)
    for key in keys:
        assert call("set", key, key * 40) in ("OK", b"OK")


def attempt(port, key):
    try:
        return lib.Connection(port, timeout=90)("set", key, key * 40) in ("OK", b"OK")
    except (lib.Error, OSError):
        return False


def attempts(port, keys):
    """The keys whose SET was acknowledged."""
    with concurrent.futures.ThreadPoolExecutor(len(keys)) as threads:
        return [key for key, stored in zip(keys, threads.map(lambda key: attempt(port, key), keys)) if stored]


def missing(port, keys):
    call = lib.Connection(port, timeout=90)
    return [key for key in keys if call("get", key) != (key * 40).encode()]


def check_refusals(pool, lost):
    """Node 1, which is empty, has refused clients again and again, and has told of it once a minute."""
    end = time.monotonic() + 60
    while (count := pool.refusals(1)[0]) == 0:
        assert time.monotonic() < end, "the server was not refused by the empty node itself"
        time.sleep(0.1)
    for _ in range(3):
        status, said = pool.pando("table", "list")
        assert status == 1 and "memory node 1 has come back empty" in said and "--replace 1" in said, said
    more, lines = pool.refusals(1)
    assert more >= count + 3, "who joins was not refused by the empty node itself"
    assert lines, "the empty node says nothing of its refusals"
    times = [datetime.datetime.fromisoformat(line.split()[0].rstrip("Z")) for line in lines]
    assert all(after - before >= MINUTE for before, after in zip(times, times[1:])), lines
    for text in ("level=error", "this one is empty", "What memory node 1 held is lost unless",
                 "`pando memory --replace 1`", f"asked=0x{lost:x} ", f"window=0x{pool.window(1):x} "):
        assert text in lines[0], (text, lines[0])
    print(f"{more} refusals, {len(lines)} line in the node's log", flush=True)


def run(build, fabric, engine):
    with lib.Processes() as processes:
        pool = Pool(processes, build, fabric)
        try:
            steps(processes, pool, build, engine)
        finally:
            for name in pool.names:
                for path in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
                    path.unlink()
    print(f"{fabric}, {engine}: ok", flush=True)


def steps(processes, pool, build, engine):
    server = processes.start_pando(build, "--engine", engine, *pool.client, pool=pool.uri)
    stored = [f"key{number}" for number in range(KEYS)]
    fill(server.port, stored)

    saved, window = pool.file(1).with_suffix(".saved"), pool.window(1)
    pool.kill(1)
    pool.file(1).rename(saved)
    pool.nodes[1] = pool.start(1)
    probes = [f"probe{number}" for number in range(PROBES)] + stored[:PROBES]
    acknowledged = attempts(server.port, probes)
    # Some need nothing of that node: what was acknowledged has to be there at the end, however many.
    print(f"{len(acknowledged)} of {len(probes)} SETs acknowledged without the memory node", flush=True)
    check_refusals(pool, window)

    pool.kill(1)
    saved.rename(pool.file(1))
    pool.nodes[1] = pool.start(1)
    assert len(attempts(server.port, stored[:PROBES])) == PROBES, "it does not go on with its former window"
    lost = missing(server.port, stored + acknowledged)
    assert not lost, f"{len(lost)} keys lost, {lost[:5]}"
    assert pool.refusals(1) == (0, []), pool.refusals(1)
    replace(pool, server, stored)


def said_by(port, *words):
    """The reply to a command, errors as text."""
    try:
        return str(lib.Connection(port, timeout=90)(*words))
    except lib.Error as error:
        return str(error)


def replace(pool, server, stored):
    """What was there is lost on purpose: tables with memory there are damaged until they are dropped."""
    smalls = [f"small{i}" for i in range(16)]  # each on one of the nodes
    for small in smalls:
        status, said = pool.pando("table", "create", small, "--engine", "sherman")
        assert status == 0, said
    pool.kill(1)
    pool.file(1).unlink()
    pool.nodes[1] = pool.start(1, "--replace", "1")
    end = time.monotonic() + 60
    while "corrupt" not in (said := said_by(server.port, "get", stored[0])).lower():
        assert time.monotonic() < end, said
        time.sleep(0.2)
    sound = [small for small in smalls if pool.pando("table", "verify", small)[0] == 0]
    assert not pool.refusals(1)[1], pool.refusals(1)  # it was told, and does not ask for the lost one
    assert 0 < len(sound) < len(smalls), f"{len(sound)} of {len(smalls)} small tables are sound"
    status, said = pool.pando("table", "verify", "db0")
    assert "'db0' is damaged: what it had on memory node 1 is lost" in said, said
    status, said = pool.pando("status")
    assert status == 0 and "which replaced a lost one" in said and "db0: engine" in said, said
    damaged = [line.split()[1].rstrip(":") for line in said.splitlines() if "; damaged: memory on node 1" in line]
    assert "db0" in damaged and not set(sound) & set(damaged), said
    for table in damaged:
        status, said = pool.pando("table", "drop", table)
        assert status == 0, said
    end = time.monotonic() + 60
    while not attempt(server.port, "anew"):
        assert time.monotonic() < end, "the server does not go on after the damaged tables were dropped"
        time.sleep(0.2)
    fill(server.port, stored)
    assert not missing(server.port, stored)
    pool.kill(1)  # from now on it is node 1 like any other
    pool.nodes[1] = pool.start(1)
    lost = missing(server.port, stored)
    assert not lost, f"{len(lost)} keys lost after the replacement, {lost[:5]}"


def main():
    build = lib.build_directory()
    run(build, "shm", "sherman")
    run(build, "tcp", "dex")
    print("empty_node: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
