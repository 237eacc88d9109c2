#!/usr/bin/env python3
"""Pools of 256 MiB and of 64 MiB are filled with values of one size until they are full, and emptied, then with another
size, and after a mix of all sizes, with both engines, embedded and over tcp. What a pool held when it was fresh it holds
again: at least 200 MiB of long values in the larger one, 80 % of its first figure of each size in the smaller one, printed
in bytes. When a pool says that what was flushed does not wait for its grace period any more, one without keys is not
full; and it says that a second after the grace period, if the machine has time.

With --servers N, N servers of one pool go through such a history in turns instead, over shm and tcp: one fills the pool
of 256 MiB and empties it, then the next finds room for 200 MiB of long values whatever the others had written, and fills
it with what is its turn's. One server is the next one itself.

memory_back.py BUILD [--servers N] [--engines sherman dex] [--pools embedded tcp]
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
sys.path.insert(0, str(HERE.parent / "lib"))
import exposition  # noqa: E402
import lib  # noqa: E402

MIX = 0  # instead of a size
LARGE = (256 << 20, (100_000, 1_000, 30_000, 100_000, 700_000, MIX, 100_000))
TURNS = (1_000, 100_000, MIX, 30_000, 100_000)  # of servers, between which long values have to fit
SMALL = (64 << 20, (1_000, 100_000, 1_000, MIX, 1_000))
LONG = 100_000
LEAST_BYTES, LEAST_OTHERS = {LONG: 200 << 20}, 180 << 20  # of the larger pool
LEAST_PART = 0.8  # of what it held first
BATCH_BYTES = 500_000
MIXED_SIZES, MIXED_ROUNDS = (100, 1_000, 5_000, 30_000, 100_000), 60
GRACE_S = 2  # lease and a second
TOLD_S = 1  # a figure of the pool may be as old
LEAVES_PART = 0.05  # of the pool: leaves that are empty after a flush are merged, and wait, one after the other
PATIENCE_S = 60
REJOINED, REJOIN_S = "joined the pool again", 20
TRIES = 3


class Server:
    def __init__(self, child):
        self.child = child
        self.address = child.log.read_text().split("metrics at ")[1].split()[0].rstrip(",")
        self.call = lib.Connection(child.port, timeout=120)

    def waiting(self):
        """Bytes that nobody uses and nobody may use yet."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            return exposition.waiting_bytes(exposition.parse(answer.read().decode()))

    def set_all(self, pairs):
        """Whether each was stored, or there was no room for it."""
        self.call.socket.sendall(b"".join(self.call.encode("set", key, value) for key, value in pairs))
        replies = [lib.parse_some(self.call.read_raw())[0] for _ in pairs]
        strange = [reply for reply in replies if reply != "OK" and not str(reply).startswith("OOM")]
        assert not strange, strange[0]
        return [reply == "OK" for reply in replies]


def fill(server, size, room):
    """How many bytes of values fit."""
    count, value, batch = 0, b"v" * size, max(1, BATCH_BYTES // size)
    while True:
        stored = sum(server.set_all([(f"{size}-{count + i}", value) for i in range(batch)]))
        count += stored
        if stored < batch:
            break
        assert count * size < room, f"{count} values of {size} bytes do not fit into the pool"
    if count > 0:
        assert server.call("get", f"{size}-0") == value
    return count * size


def mix(server, room):
    """Keys of all sizes come and go for a while, also when the pool is full."""
    chance, there, number = random.Random(room), [], 0
    for _ in range(MIXED_ROUNDS):
        size = chance.choice(MIXED_SIZES)
        pairs = [(f"mixed-{number + i}", b"v" * size) for i in range(max(1, min(2_000, room // 30 // size)))]
        number += len(pairs)
        there += [key for (key, _), stored in zip(pairs, server.set_all(pairs)) if stored]
        chance.shuffle(there)
        gone, there = there[:len(there) // 8], there[len(there) // 8:]
        if gone:
            assert server.call("del", *gone) == len(gone)


def empty(server, size, room, late):
    """Empties it, and waits for as long as the pool says that it has to. Then there is room at once."""
    begin, waited = time.monotonic(), lib.processor_waits_s()
    assert server.call("flushdb") == "OK"
    assert server.call("dbsize") == 0
    flushed = time.monotonic()
    time.sleep(TOLD_S)
    while (left := server.waiting()) > LEAVES_PART * room:
        assert time.monotonic() < flushed + PATIENCE_S, f"{left} bytes wait {PATIENCE_S} s after FLUSHDB"
        time.sleep(0.05)
    ended = time.monotonic()
    stored, = server.set_all([("probe", b"v" * size)])
    assert stored, f"no room for {size} bytes in an empty pool, of which {left} wait"
    assert server.call("del", "probe") == 1
    if ended - flushed > GRACE_S + TOLD_S:
        late.append((ended - flushed, waited, lib.processor_waits_s(), ended - begin))


def judge_late(name, late):
    """A machine that makes processes wait is no measure."""
    for took, before, after, seconds in late:
        busy = lib.was_busy(before, after, seconds)
        print(f"{name}: {took:.2f} s after FLUSHDB its bytes waited still{', on a busy machine' if busy else ''}")
        assert busy, f"{name}: freed memory waited {took:.2f} s, on an idle machine"


def least(room, size, first):
    if room == LARGE[0]:
        return LEAST_BYTES.get(size, LEAST_OTHERS)
    return LEAST_PART * first


def cycle(name, server, room, steps):
    """What it held: (size, what it had held before, bytes) for each filling."""
    first, rows, before, late = {}, [], "fresh", []
    for size in steps:
        if size == MIX:
            mix(server, room)
        else:
            held = fill(server, size, room)
            rows.append((size, before, held))
            wanted = least(room, size, first.setdefault(size, held))
            assert held >= wanted, f"{name}: {held} bytes of {size} fit, {wanted:.0f} should; {rows}"
        before = "after a mix" if size == MIX else f"after values of {size}"
        empty(server, max(1_000, size), room, late)
    for size, history, held in rows:
        print(f"{name:24} values of {size:7}  {history:22} {held:11,} bytes, {held / first[size]:.2f} of the first",
              flush=True)
    judge_late(name, late)
    return rows


def in_turns(name, servers, room):
    """Each server does one thing, and then the next one finds room for long values. The same rows."""
    rows, late = [], []
    for number, size in enumerate((*TURNS, None)):
        server = servers[number % len(servers)]
        held = fill(server, LONG, room)
        before = "fresh" if number == 0 else "after a mix" if TURNS[number - 1] == MIX else f"after values of {TURNS[number - 1]}"
        rows.append((LONG, before, held))
        print(f"{name:24} server {number % len(servers)}: {held:11,} bytes {before}", flush=True)
        assert held >= LEAST_BYTES[LONG], f"{name}: {held} bytes of {LONG} fit, {LEAST_BYTES[LONG]} should; {rows}"
        empty(server, LONG, room, late)
        if size is not None:
            mix(server, room) if size == MIX else fill(server, size, room)
            empty(server, max(1_000, size), room, late)
    judge_late(name, late)
    return rows


def joined_again(servers):
    """One may tell a client that it lost its membership before it has another."""
    end = time.monotonic() + REJOIN_S
    while not any(REJOINED in server.log.read_text(errors="replace") for server in servers):
        if time.monotonic() > end or any(server.poll() is not None for server in servers):
            return False
        time.sleep(0.1)
    return True


@contextlib.contextmanager
def pool_of(processes, build, fabric, room, tag):
    """The options that name it. A memory node of its own ends with it."""
    size, secret = f"{room >> 20}M", processes.directory / f"secret-{tag}"
    window = pathlib.Path(f"/dev/shm/pando-memory-back-{os.getpid()}")
    if fabric == "embedded":
        yield f"embedded:{size}", ()
        return
    if fabric == "tcp":
        processes.secret(secret.name)
        options = ("--listen", "127.0.0.1:0", "--secret-file", secret)
    else:
        options = ("--shm", window)
    memory = processes.start_memory(build, *options, "--size", size, name=f"memory-{tag}")
    try:
        yield (f"tcp:{memory.address}", ("--secret-file", secret)) if fabric == "tcp" else (f"shm:{window}", ())
    finally:
        memory.terminate()
        memory.wait()
        window.unlink(missing_ok=True)


def scene(processes, build, engine, fabric, room, steps, count=None):
    """What the pool held; None: it says nothing, because a server lost its membership on the way and joined again, or
    because the machine made processes wait, for the figures are of a pool that has had time to give memory back."""
    begin, waited = time.monotonic(), lib.processor_waits_s()
    tag, name = f"{fabric}-{engine}-{room}-{steps[0]}-{time.monotonic_ns()}", f"{fabric}, {engine}, {room >> 20}M"
    options, servers = ("--engine", engine, "--metrics", "127.0.0.1:0"), []
    with pool_of(processes, build, fabric, room, tag) as (pool, of_pool):
        try:
            for number in range(count or 1):
                servers.append(processes.start_pando(build, *options, *of_pool, pool=pool, name=f"{tag}-{number}"))
            if count is None:
                return cycle(name, Server(servers[0]), room, steps)
            return in_turns(name, [Server(server) for server in servers], room)
        except (AssertionError, lib.Error) as error:
            busy = lib.was_busy(waited, lib.processor_waits_s(), time.monotonic() - begin)
            if not busy and not joined_again(servers):
                for child in servers:
                    print(f"{child.log.name}:", *child.log.read_text().splitlines()[-10:], sep="\n  ")
                raise
            subprocess.run([build / "pando", "status", "--pool", pool, *of_pool], check=False)
            print(f"{fabric}, {engine}: on a {'busy' if busy else 'stopped'} machine, once more: {error}", flush=True)
            return None
        finally:
            for child in servers:
                child.terminate()
            for child in servers:
                child.wait()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--servers", type=int, metavar="N", help="this many servers in turns")
    parser.add_argument("--engines", nargs="+", choices=("sherman", "dex"), default=["sherman", "dex"])
    parser.add_argument("--pools", nargs="+", choices=("embedded", "shm", "tcp"),
                        help="default: embedded tcp; of servers in turns shm tcp")
    parser.add_argument("--large", action="store_true", help="only the pool of 256 MiB")
    parser.add_argument("--json", type=pathlib.Path, help="writes what was held to this file")
    options = parser.parse_args()
    if (options.servers or 1) > 1 and "embedded" in (options.pools or ()):
        parser.error("an embedded pool has one server")
    return options


def main():
    options, build, found = parse(), lib.build_directory(), []
    rooms = [LARGE] if options.large or options.servers else [LARGE, SMALL]
    with lib.Processes() as processes:
        for fabric in options.pools or (("shm", "tcp") if options.servers else ("embedded", "tcp")):
            for engine in options.engines:
                for room, steps in rooms:
                    tries = (scene(processes, build, engine, fabric, room, steps, options.servers) for _ in range(TRIES))
                    rows = next((rows for rows in tries if rows is not None), None)
                    assert rows is not None, "the machine has no time for a server"
                    found += [{"pool": fabric, "engine": engine, "room": room, "size": size, "before": before,
                               "bytes": held} for size, before, held in rows]
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
