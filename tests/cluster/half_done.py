#!/usr/bin/env python3
"""Commands on many keys that fail half-way say how many keys were changed. DEL and FLUSHDB are interrupted by a damaged
leaf, MSET by a full pool, in which deleting goes on; what is left in the database is compared with the reply.

half_done.py BUILD
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402
from damage import flip  # noqa: E402

KEYS = 3000
VICTIM, NEAR = 1234, 64  # keys of one leaf
BIG_KEYS, BIG_BYTES, BIG_ROUNDS = 100, 100_000, 20


def key(number):
    return f"key{number:05}"


def value(number):
    return f"needle{number:05}".encode()


def fill(port):
    call = lib.Connection(port, timeout=60)
    for number in range(KEYS):
        call("set", key(number), value(number))


def refusal(port, *words):
    """What the server says of a command that cannot succeed."""
    try:
        said = lib.Connection(port, timeout=120)(*words)
    except lib.Error as error:
        return str(error)
    raise AssertionError(f"{words[0]} succeeded: {said}")


def left(port):
    """Keys that are there, of those that are not near the damage: to ask for one that is takes long."""
    call = lib.Connection(port, timeout=120)
    return sum(call("exists", key(number)) for number in range(KEYS) if abs(number - VICTIM) > NEAR)


def changed(said):
    """How many keys the reply says were changed for sure."""
    count = re.match(r"UNKNOWN (\d+) keys were changed, then it failed", said)
    assert count, said
    assert "nothing was changed" not in said, said
    return int(count[1])


def damaged(processes, build):
    """DEX: a leaf in the middle is damaged. FLUSHDB comes to it after others, DEL in no order."""
    name = f"test-{os.getpid()}-half"
    path = f"/dev/shm/pando-{name}"
    try:
        processes.start_memory(build, "--shm", name, "--size", "128M")
        server = processes.start_pando(build, "--engine", "dex", pool=f"shm:{name}")
        fill(server.port)
        server.terminate()
        server.wait(timeout=20)
        assert flip(path, value(VICTIM)) > 0
        server = processes.start_pando(build, "--engine", "dex", pool=f"shm:{name}")
        before = left(server.port)
        for words in (["del", *map(key, [*range(100), VICTIM, *range(KEYS - 100, KEYS)])], ["flushdb"]):
            said = refusal(server.port, *words)
            after = left(server.port)
            print(f"damage: {words[0]}: {said}; {before - after} are gone", flush=True)
            assert changed(said) == before - after > 0, "the reply says something else than the database"
            before = after
        said = refusal(server.port, "del", key(VICTIM))
        assert "corrupt" in said and "were changed" not in said, said
    finally:
        for file in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
            file.unlink()


def full(processes, build):
    """MSET fills the pool; deleting goes on."""
    server = processes.start_pando(build, pool="embedded:128M")
    call = lib.Connection(server.port, timeout=60)
    for number in range(BIG_ROUNDS):
        pairs = [word for i in range(BIG_KEYS) for word in (f"big{number * BIG_KEYS + i}", b"x" * BIG_BYTES)]
        before = call("dbsize")
        try:
            call("mset", *pairs)
        except lib.Error as error:
            said = str(error)
            break
    else:
        raise AssertionError("the pool does not become full")
    after = call("dbsize")
    print(f"full: mset: {said}; {after - before} are new", flush=True)
    if after > before:
        assert changed(said) == after - before, "the reply says something else than the database"
    else:
        assert said.startswith("OOM"), said
    assert call("del", *(f"big{i}" for i in range(BIG_KEYS))) == BIG_KEYS
    assert call("flushdb") == "OK" and call("dbsize") == 0


def main():
    build = lib.build_directory()
    for scenario in (full, damaged):
        with lib.Processes() as processes:
            scenario(processes, build)
    print("half_done: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
