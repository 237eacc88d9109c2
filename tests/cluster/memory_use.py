#!/usr/bin/env python3
"""What `pando status`, `pando table list` and GET /metrics say of a pool's memory is true, and they
say the same: bytes of pairs, of long values, of structure and of logs, in members' hands, waiting or held
for a grace period, free by size of block, in reserve. Together that is what the node has given out. And
MEMORY USAGE of long values is what their table grew by.

memory_use.py BUILD
"""
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
sys.path.insert(0, str(HERE.parent / "lib"))
import exposition  # noqa: E402
import lib  # noqa: E402

CHUNK = 1 << 20
VALUES, VALUE_BYTES, INDEXED = 2000, 10_000, 5000
SHORT, SHORT_BYTES = 20_000, 100
WITHIN_S = 60  # what is told may be some seconds old, and freed memory waits for its grace period
GRACE_S, AGAIN = 2, 5  # lease and a second; fills, before a busy machine is no excuse
LONG, LONG_BYTES = 20, (10_000, 200_000, 262_200, 300_000, 1 << 20)
LONG_PART = 0.01  # that MEMORY USAGE may be off, of what the table's blocks are
LEAVES_PART = 0.02  # of the values: leaves that are merged later


def told(build, pool, *words):
    done = subprocess.run([build / "pando", *words, "--json", "-", *pool], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def metrics(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return exposition.parse(answer.read().decode())


def by_label(samples, name, label):
    """Sums of a family's samples by one of their labels."""
    sums = {}
    for (family, labels), value in samples.items():
        if family == name:
            sums[dict(labels)[label]] = sums.get(dict(labels)[label], 0) + value
    return sums


def parts(node):
    """What all that is given out is used for."""
    return (sum(node["used_bytes"].values()) + node["members_bytes"] + node["waiting_bytes"] +
            node["held_bytes"] + sum(size["free_bytes"] for size in node["classes"]))


def differences(build, pool, address):
    """What does not fit together, in words."""
    node, = told(build, pool, "status")["memory"]
    tables = {table["name"]: table["bytes"] for table in told(build, pool, "table", "list")}
    samples = metrics(address)
    given = (node["chunks"] - node["chunks_free"]) * CHUNK
    uses = by_label(samples, "pando_pool_use_bytes", "use")
    free = by_label(samples, "pando_pool_class_free_bytes", "block")
    compared = {
        "values": (node["used_bytes"]["values"], uses["values"]),
        "pairs": (node["used_bytes"]["pairs"], uses["pairs"]),
        "structure": (node["used_bytes"]["structure"], uses["structure"]),
        "slots": (node["used_bytes"]["slots"], uses["slots"]),
        "tables": (sum(tables.values()),
                   sum(node["used_bytes"][use]
                       for use in ("pairs", "values", "structure", "logs"))),
        "reserve": (node["chunks_reserved"] * CHUNK,
                    sum(by_label(samples, "pando_pool_reserved_bytes", "node").values())),
        "in somebody's hands": (given - node["free_block_bytes"],
                                sum(by_label(samples, "pando_pool_used_bytes", "node").values())),
        "free sizes": ({size["block_bytes"] for size in node["classes"] if size["free_bytes"] > 0},
                       {int(block) for block, size in free.items() if size > 0}),
    }
    wrong = [f"{what}: {one} and {other}" for what, (one, other) in compared.items()
             if one != other]
    # A chunk is not filled by its blocks to the last byte.
    if not 0.9 * given <= parts(node) <= given:
        wrong.append(f"{given} bytes are given out, the parts are {parts(node)}: {node}")
    return wrong, node, tables


def await_told(build, pool, address, met):
    """Until all fits together and `met`, which is of the node and the tables."""
    end = time.monotonic() + WITHIN_S
    while True:
        wrong, node, tables = differences(build, pool, address)
        if not wrong and met(node, tables):
            return node, tables
        assert time.monotonic() < end, f"after {WITHIN_S} s: {wrong or (node, tables)}"
        time.sleep(0.2)


def set_keys(call, count, size):
    for first in range(0, count, 100):
        call.socket.sendall(b"".join(call.encode("set", f"key{first + i:09}", b"v" * size)
                                     for i in range(100)))
        assert [call.read() for _ in range(100)] == ["OK"] * 100


def fill(call):
    set_keys(call, VALUES, VALUE_BYTES)
    call("ri.create", "idx")
    words = [word for i in range(INDEXED) for word in (f"key{i:09}", "value")]
    assert call("ri.mset", "idx", *words) == "OK"


def waiting(build, pool, address):
    """Bytes that wait for their grace period in members' hands: as `pando status` says, and /metrics."""
    node, = told(build, pool, "status")["memory"]
    return node["waiting_bytes"], by_label(metrics(address), "pando_pool_use_bytes", "use")["waiting"]


def flush_waits(build, pool, address, call, least):
    """What FLUSHDB has freed is told as waiting, and for no longer than its grace period and a second; the few
    leaves that it emptied are merged, and freed, in the seconds after it. A machine that is too busy to ask
    in time gets another flush."""
    for turn in range(AGAIN):
        if turn > 0:
            set_keys(call, VALUES, VALUE_BYTES)
        begin = time.monotonic()
        assert call("flushdb") == "OK"
        flushed, most = time.monotonic(), (0, 0)
        while time.monotonic() < begin + GRACE_S:
            most = tuple(map(max, most, waiting(build, pool, address)))
        while max(left := waiting(build, pool, address)) > LEAVES_PART * least:
            assert time.monotonic() < flushed + WITHIN_S, f"{left} bytes wait {WITHIN_S} s after FLUSHDB"
        gone_s = time.monotonic() - flushed
        print(f"flushed in {flushed - begin:.2f} s: {most} of {least} bytes waited, {left} after {gone_s:.2f} s")
        if min(most) >= 0.9 * least and gone_s < GRACE_S + 1:
            break
    else:
        raise AssertionError(f"{most} of {least} bytes waited after FLUSHDB, {left} after {gone_s:.2f} s")
    while (left := waiting(build, pool, address)) != (0, 0):
        assert time.monotonic() < flushed + WITHIN_S, f"{left} bytes wait {WITHIN_S} s after FLUSHDB"


def short_values(build, pool, address, call):
    """Values that lie in leaves are pairs, not structure."""
    set_keys(call, SHORT, SHORT_BYTES)
    node, _ = await_told(build, pool, address,
                         lambda node, _: node["used_bytes"]["pairs"] >= SHORT * SHORT_BYTES)
    assert node["used_bytes"]["values"] == 0, node
    assert node["used_bytes"]["structure"] < node["used_bytes"]["pairs"] / 10, node
    print(f"{SHORT} values of {SHORT_BYTES} bytes: {node['used_bytes']}", flush=True)


def long_values(build, pool, address, call):
    """MEMORY USAGE tells what the blocks of long values take: their table has grown by so much."""
    tables = told(build, pool, "table", "list")
    before, = (table["bytes"] for table in tables if table["name"] == "db0")
    usages = {}
    for size in LONG_BYTES:
        for number in range(LONG):
            assert call("set", f"long{size}-{number}", b"v" * size) == "OK"
        usages[size] = call("memory", "usage", f"long{size}-0")
        assert size < usages[size] < 1.26 * size, (size, usages[size])
    wanted = LONG * sum(usages.values())
    await_told(build, pool, address,
               lambda _, tables: abs(tables["db0"] - before - wanted) < LONG_PART * wanted)
    print(f"MEMORY USAGE: {usages}", flush=True)
    for size in LONG_BYTES:
        assert call("del", *[f"long{size}-{number}" for number in range(LONG)]) == LONG


def scene(processes, build, engine):
    secret = processes.secret()
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M",
                                    "--secret-file", secret, name=f"memory-{engine}")
    pool = ["--pool", f"tcp:{memory.address}", "--secret-file", secret]
    server = processes.start_pando(build, *pool[2:], "--engine", engine, "--metrics", "127.0.0.1:0",
                                   pool=pool[1], name=engine)
    address = server.log.read_text().split("metrics at ")[1].split()[0].rstrip(",")
    call = lib.Connection(server.port, timeout=60)
    fill(call)
    least = VALUES * VALUE_BYTES

    # A block is at most an eighth larger than its value, and there is a head in it.
    node, tables = await_told(
        build, pool, address,
        lambda node, _: least <= node["used_bytes"]["values"] <= 1.13 * least + 100 * VALUES)
    assert tables["db0"] >= least, tables
    assert INDEXED * 14 <= tables["ri:idx"] < 20 * INDEXED * 14, tables
    assert INDEXED * 14 <= node["used_bytes"]["pairs"], node
    assert 0 < node["used_bytes"]["structure"] < node["used_bytes"]["pairs"] / 4, node
    assert node["used_bytes"]["slots"] > 0, node
    print(f"{engine}: {node['used_bytes']}, tables {tables}", flush=True)

    given = (node["chunks"] - node["chunks_free"]) * CHUNK
    flush_waits(build, pool, address, call, least)
    node, tables = await_told(
        build, pool, address,
        lambda node, _: node["used_bytes"]["values"] == 0 and node["held_bytes"] == 0 and
        (node["chunks"] - node["chunks_free"]) * CHUNK < given - 0.9 * least)
    print(f"{engine}, flushed: {node['used_bytes']}, tables {tables}", flush=True)
    long_values(build, pool, address, call)
    await_told(build, pool, address, lambda node, _: node["used_bytes"]["values"] == 0)
    short_values(build, pool, address, call)
    for child in (server, memory):
        child.terminate()
        assert child.wait(60) == 0


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        for engine in ("dex", "sherman"):
            scene(processes, build, engine)
    print("memory_use: ok")


if __name__ == "__main__":
    main()
