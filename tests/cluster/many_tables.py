#!/usr/bin/env python3
"""Two servers create, use and drop 10,000 tables (ordered indexes), half of them of each engine, in a pool over shm, or
over tcp on loopback; all are there, all are readable by the other server, the program lists them, and the memory comes back.

Prints what a table costs: seconds per 1,000 of them, bytes in the pool and in the servers. With a count near the limit,
as 16000, it goes on to create tables until that is reached.

many_tables.py BUILD [TABLES [shm|tcp]]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

TABLES = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
FABRIC = sys.argv[3] if len(sys.argv) > 3 else "shm"
LIMIT = 16_384  # tables of a pool
NEAR = 1_000  # from here to the limit is no long way
PAIRS = 3
PROCESS_BYTES_MAX = 1 << 30
PER_BATCH = 50  # in one connection's pipeline
DROPPERS = 150  # connections per server: a drop waits for all members
TRIES = 30
AGAIN = ("UNKNOWN", "UNAVAILABLE")
DONE_BEFORE = ("0", "ERR index already exists")  # a drop, and a creation, that were not heard of
POOL = "2G"
NAME = f"many-tables-{os.getpid()}"


def rss(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def run(build, pool, *words):
    return subprocess.run([build / "pando", *words, *pool], capture_output=True, text=True, timeout=120)


def pipeline(call, commands):
    call.socket.sendall(b"".join(call.encode(*words) for words in commands))
    return [lib.parse_some(call.read_raw())[0] for _ in commands]


def insist(call, commands, good, what):
    """Until each was answered with one of the good replies. UNKNOWN and the like are what a server says that was declared
    dead because the machine had no time for it; it joins again, and the command may have been done."""
    for tries in range(TRIES):
        replies = [(words, reply) for words, reply in zip(commands, pipeline(call, commands))
                   if reply not in good and not (tries > 0 and str(reply) in DONE_BEFORE)]
        if not replies:
            return
        commands, strange = zip(*replies)
        assert all(str(reply).startswith(AGAIN) for reply in strange), f"{what}: {len(strange)}, {commands[0]}: {strange[0]}"
        time.sleep(0.1 * tries)
    raise AssertionError(f"{what}: {commands[0]} is not done after {TRIES} tries")


def name(i):
    return f"index-{i}"


def engine(i):
    return "dex" if i // 2 % 2 else "sherman"


def both(servers, count, fn, width=1):
    """fn(connection, numbers) on `width` connections to each server, which share the numbers out; errors come here."""
    failures = []

    def work(port, numbers):
        try:
            call = lib.Connection(port, timeout=300)
            fn(call, numbers)
            call.close()
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    lanes = [(server.port, range(i * width + j, count, len(servers) * width))
             for i, server in enumerate(servers) for j in range(width)]
    threads = [threading.Thread(target=work, args=lane) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def batches(numbers):
    numbers = list(numbers)
    return [numbers[i:i + PER_BATCH] for i in range(0, len(numbers), PER_BATCH)]


def tell(processes):
    for child in processes.running:
        print(f"{child.log.name}:", *child.log.read_text(errors="replace").splitlines()[-10:], sep="\n    ")


class Thousands:
    """How long the first and the last thousand took."""

    def __init__(self):
        self.lock, self.marks, self.done, self.begin = threading.Lock(), [], 0, time.monotonic()

    def add(self, count):
        with self.lock:
            self.done += count
            while self.done >= 1000 * (len(self.marks) + 1):
                self.marks.append(time.monotonic())

    def text(self):
        if len(self.marks) < 2:
            return f"{time.monotonic() - self.begin:.2f} s"
        return (f"the first 1,000 in {self.marks[0] - self.begin:.2f} s, the last in "
                f"{self.marks[-1] - self.marks[-2]:.2f} s, all in {self.marks[-1] - self.begin:.1f} s")


def create(call, numbers, clock):
    for batch in batches(numbers):
        insist(call, [("ri.create", name(i), "engine", engine(i)) for i in batch], ("OK",), "create")
        clock.add(len(batch))


def fill(call, numbers, clock):
    for batch in batches(numbers):
        commands = [("ri.set", name(i), f"key-{j}", f"value-{i}-{j}") for i in batch for j in range(PAIRS)]
        insist(call, commands, ("OK",), "set")
        clock.add(len(batch))


def read(call, numbers, clock):
    for batch in batches(numbers):
        for i in batch:
            insist(call, [("ri.get", name(i), f"key-{i % PAIRS}")], (f"value-{i}-{i % PAIRS}".encode(),), "get")
        clock.add(len(batch))


def drop(call, numbers, clock):
    for i in numbers:
        insist(call, [("ri.drop", name(i))], (1,), "drop")
        clock.add(1)


def made_again(servers):
    """A table that both servers have used, and let go of since, is dropped and made again at one of them: the other
    finds the new one."""
    one, two = (lib.Connection(server.port, timeout=300) for server in servers)
    for i in range(20):
        insist(one, [("ri.drop", name(i))], (1,), "drop")
        insist(one, [("ri.create", name(i), "engine", engine(i))], ("OK",), "create")
        insist(one, [("ri.set", name(i), "key-0", f"value-{i}-0")], ("OK",), "set")
        insist(two, [("ri.get", name(i), "key-0")], (f"value-{i}-0".encode(),), "get")


def used_bytes(build, pool):
    view = json.loads(run(build, pool, "status", "--json", "-").stdout)
    memory = view["memory"]
    return sum((node["chunks"] - node["chunks_free"]) * (1 << 20) - node["free_block_bytes"] for node in memory)


def check_program(build, pool):
    begin = time.monotonic()
    listed = run(build, pool, "table", "list", "--json", "-")
    assert listed.returncode == 0, listed.stderr
    took = time.monotonic() - begin
    tables = {table["name"]: table for table in json.loads(listed.stdout)}
    missing = [name(i) for i in range(TABLES) if "ri:" + name(i) not in tables]
    assert not missing, f"{len(missing)} tables are not listed, {missing[0]}"
    assert all(tables["ri:" + name(i)]["engine"] == engine(i) for i in range(TABLES))
    assert all(tables["ri:" + name(i)]["bytes"] > 0 for i in range(TABLES)), "a table without bytes"
    begin = time.monotonic()
    status = run(build, pool, "status")
    assert status.returncode == 0, status.stderr
    assert status.stdout.count("\ntable ") >= TABLES, "status does not list them"
    print(f"table list took {took:.2f} s, status {time.monotonic() - begin:.2f} s")


def to_the_limit(build, pool, call):
    """Creates tables until there is room for no more, which is said in one line, to a client and to a person."""
    count = TABLES
    while (reply := pipeline(call, [("ri.create", name(count), "engine", engine(count))])[0]) == "OK":
        count += 1
        assert count <= LIMIT, f"{count} tables in a pool that has room for {LIMIT}"
    wanted = f"the pool has {LIMIT} tables, and room for no more"
    assert wanted in str(reply) and f"'ri:{name(count)}'" in str(reply), reply
    print(f"after {count} indexes: {reply}")
    done = run(build, pool, "table", "create", "one-more")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert wanted in done.stderr and "'one-more'" in done.stderr, done.stderr
    print(done.stderr.strip())
    assert len(call("ri.list")) == count
    assert call("ri.get", name(0), "key-0") == b"value-0-0"
    for i in range(TABLES, count):
        insist(call, [("ri.drop", name(i))], (1,), "drop")


def start_pool(processes, build):
    """Its URI, and what else its users need."""
    if FABRIC == "shm":
        processes.start_memory(build, "--shm", NAME, "--size", POOL)
        return f"shm:{NAME}", []
    secret = ["--secret-file", str(processes.secret())]
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", POOL, *secret)
    return f"tcp:{memory.address}", secret


def main():
    build = lib.build_directory()
    try:
        attack(build)
    finally:
        remove_window()


def remove_window():
    for path in pathlib.Path("/dev/shm").glob(f"pando-{NAME}*"):
        path.unlink(missing_ok=True)


def stopped(processes):
    """Whether a server was declared dead: over shared memory that ends it. Nothing else here ends one like that."""
    return FABRIC == "shm" and any(child.poll() == -signal.SIGKILL for child in processes.running)


def attack(build):
    for last in (False, False, True):
        with lib.Processes() as processes:
            try:
                work(build, processes)
                return
            except BaseException as error:
                if last or not isinstance(error, (EOFError, OSError)) or not stopped(processes):
                    tell(processes)
                    raise
                print(f"the machine stopped a server for longer than its lease: {error}; once more")
        remove_window()


def work(build, processes):
    uri, secret = start_pool(processes, build)
    pool = ["--pool", uri, *secret]
    servers = [processes.start_pando(build, *secret, "--threads", "1", pool=uri, name=f"server-{i}")
               for i in range(2)]
    before = used_bytes(build, pool)
    rss_before = [rss(server) for server in servers]

    clock = Thousands()
    both(servers, TABLES, lambda call, numbers: create(call, numbers, clock))
    print(f"created: {clock.text()}")
    made = used_bytes(build, pool)
    clock = Thousands()
    both(servers, TABLES, lambda call, numbers: fill(call, numbers, clock))
    print(f"used: {clock.text()}")
    clock = Thousands()
    both(servers[::-1], TABLES, lambda call, numbers: read(call, numbers, clock))
    print(f"read by the other server: {clock.text()}")
    made_again(servers)
    filled = used_bytes(build, pool)
    grown = [rss(server) for server in servers]
    print(f"a table takes {(made - before) / TABLES:.0f} bytes of the pool when it is new, "
          f"{(filled - before) / TABLES:.0f} when {PAIRS} pairs are in it; "
          f"the servers have {', '.join(f'{size / 2**20:.0f} MiB' for size in grown)}, "
          f"{sum(grown) - sum(rss_before):,} bytes more than before: "
          f"{(sum(grown) - sum(rss_before)) / TABLES:.0f} for each table")
    assert max(grown) < PROCESS_BYTES_MAX, f"a server has {max(grown) / 2**20:.0f} MiB"
    check_program(build, pool)
    call = lib.Connection(servers[0].port, timeout=60)
    assert len(call("ri.list")) == TABLES
    if TABLES > LIMIT - NEAR:
        to_the_limit(build, pool, call)

    clock = Thousands()
    both(servers, TABLES, lambda one, numbers: drop(one, numbers, clock), width=DROPPERS)
    print(f"dropped: {clock.text()}")
    assert call("ri.list") == []
    end = time.monotonic() + 30
    while used_bytes(build, pool) > before + (8 << 20) and time.monotonic() < end:
        time.sleep(0.5)
    left = used_bytes(build, pool)
    print(f"the pool had {before / 2**20:.1f} MiB in use before, and has {left / 2**20:.1f} MiB now")
    assert left <= before + (8 << 20), f"{(left - before) / 2**20:.1f} MiB did not come back"
    for server in servers:
        server.terminate()
        assert server.wait() == 0
    print("ok")


if __name__ == "__main__":
    main()
