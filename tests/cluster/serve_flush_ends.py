#!/usr/bin/env python3
"""A server that is being ended does not go on with a long command: a FLUSHDB or RI.DELPREFIX that nobody waits
for any more would delete what is set after another server has answered the same command.

serve_flush_ends.py BUILD
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS, AT_ONCE = 200000, 1000
DEADLINE_S = 60


def fill(call, index):
    if index:
        call("ri.create", "i")
    for first in range(0, KEYS, AT_ONCE):
        pairs = [word for number in range(first, first + AT_ONCE) for word in (f"k{number:07}", "v")]
        call(*(["ri.mset", "i"] if index else ["mset"]), *pairs)


def wait_until_begun(call, index):
    """The first key is deleted first."""
    deadline = time.monotonic() + DEADLINE_S
    while call(*(["ri.get", "i"] if index else ["get"]), "k0000000") is not None:
        assert time.monotonic() < deadline, "nothing was deleted"


def scene(processes, build, index):
    window = processes.directory / f"window-{index:d}"
    memory = processes.start_memory(build, "--shm", window, "--size", "256M")
    first, second = (processes.start_pando(build, pool=f"shm:{window}", name=f"server-{i}") for i in range(2))
    there, here = (lib.Connection(server.port, timeout=DEADLINE_S) for server in (first, second))
    fill(there, index)
    there.send(*(["ri.delprefix", "i", "k"] if index else ["flushdb"]))
    wait_until_begun(here, index)
    first.terminate()
    assert first.wait(DEADLINE_S) == 0
    left = here(*(["ri.len", "i"] if index else ["dbsize"]))
    try:
        answer = there.read_raw()
    except (EOFError, OSError):
        answer = b"none"
    print(f"{'RI.DELPREFIX' if index else 'FLUSHDB'}: {left} of {KEYS} keys left, answer {answer!r}")
    assert 0 < left < KEYS, left
    assert answer == b"none" or answer.startswith(b"-UNKNOWN "), answer
    for child in (second, memory):
        child.terminate()
        assert child.wait(DEADLINE_S) == 0


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        scene(processes, build, False)
        scene(processes, build, True)


if __name__ == "__main__":
    main()
