#!/usr/bin/env python3
"""Pools of 256 MiB and of 64 MiB are filled with values of one size until they are full, and emptied, then with another
size, and after a mix of all sizes, with both engines, embedded and over tcp. What a pool held when it was fresh it holds
again: at least 200 MiB of long values in the larger one, 80 % of its first figure of each size in the smaller one, printed
in bytes. When a pool says that what was flushed does not wait for its grace period any more, one without keys is not
full; and it says that a second after the grace period, if the machine has time.

memory_back.py BUILD
"""
import pathlib
import random
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
SMALL = (64 << 20, (1_000, 100_000, 1_000, MIX, 1_000))
LEAST_BYTES, LEAST_OTHERS = {100_000: 200 << 20}, 180 << 20  # of the larger pool
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
            samples = exposition.parse(answer.read().decode())
        return sum(value for (name, labels), value in samples.items()
                   if name == "pando_pool_use_bytes" and dict(labels)["use"] in ("waiting", "held"))

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


def joined_again(server):
    """It may tell a client that it lost its membership before it has another."""
    end = time.monotonic() + REJOIN_S
    while REJOINED not in server.log.read_text(errors="replace"):
        if time.monotonic() > end or server.poll() is not None:
            return False
        time.sleep(0.1)
    return True


def scene(processes, build, engine, fabric, room, steps):
    """False: it says nothing, because the server lost its membership on the way and joined again."""
    options, memory = ["--engine", engine, "--metrics", "127.0.0.1:0"], None
    pool, tag = f"embedded:{room >> 20}M", f"{fabric}-{engine}-{room}-{steps[0]}-{time.monotonic_ns()}"
    if fabric == "tcp":
        secret = processes.secret(f"secret-{tag}")
        memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", f"{room >> 20}M", "--secret-file",
                                        secret, name=f"memory-{tag}")
        pool, options = f"tcp:{memory.address}", [*options, "--secret-file", secret]
    server = processes.start_pando(build, *options, pool=pool, name=tag)
    try:
        cycle(f"{fabric}, {engine}, {room >> 20}M", Server(server), room, steps)
    except (AssertionError, lib.Error) as error:
        if not joined_again(server):
            raise
        print(f"{fabric}, {engine}: the machine stopped the server for longer than its lease: {error}")
        return False
    finally:
        for child in filter(None, (server, memory)):
            child.terminate()
            child.wait()
    return True


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        for fabric in ("embedded", "tcp"):
            for engine in ("sherman", "dex"):
                for room, steps in (LARGE, SMALL):
                    done = any(scene(processes, build, engine, fabric, room, steps) for _ in range(TRIES))
                    assert done, "the machine has no time for a server"


if __name__ == "__main__":
    main()
