#!/usr/bin/env python3
"""A bit that flips in a leaf of a DEX table: the keys of that leaf are answered with an error within two seconds,
all others are served, verify names the damage and ends, the server ends when it is told to, and the memory node
starts again.

damage.py BUILD
"""
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS = 3000
VICTIM = 1234
ANSWER_S, END_S = 2, 20


def key(number):
    return f"key{number:05}"


def value(number):
    return f"needle{number:05}".encode()


def flip(path, needle):
    """Flips a bit of every copy of a value: it may lie in an old page or in a log, too."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        at, count = memory.find(needle), 0
        while at >= 0:
            memory[at] ^= 1
            count += 1
            at = memory.find(needle, at + 1)
    return count


def ask(port, number):
    """What a GET says, and how long it took."""
    begin = time.monotonic()
    try:
        said = lib.Connection(port, timeout=60)("get", key(number))
    except lib.Error as error:
        said = error
    return said, time.monotonic() - begin


def pando(build, uri, *words):
    begin = time.monotonic()
    done = subprocess.run([str(build / "pando"), *words, "--pool", uri], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), time.monotonic() - begin


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=END_S)


def check_answers(port):
    damaged = 0
    for number in range(VICTIM - 100, VICTIM + 100, 3):
        said, took = ask(port, number)
        assert took < ANSWER_S, f"{key(number)} was answered after {took:.1f} s: {said}"
        damaged += isinstance(said, lib.Error)
        assert isinstance(said, lib.Error) or said == value(number), said
    said, took = ask(port, VICTIM)
    assert isinstance(said, lib.Error) and "corrupt" in str(said), said
    assert took < ANSWER_S, f"the damaged key was answered after {took:.1f} s"
    for number in (0, 1, KEYS - 1):
        assert ask(port, number)[0] == value(number), "a key that is not near the damage is not served"
    print(f"{damaged} keys of the damaged leaf", flush=True)


def steps(processes, build, name):
    uri = f"shm:{name}"
    memory = ["--shm", name, "--size", "128M"]
    node = processes.start_memory(build, *memory)
    server = processes.start_pando(build, "--engine", "dex", pool=uri)
    call = lib.Connection(server.port, timeout=60)
    for number in range(KEYS):
        call("set", key(number), value(number))
    end(server)

    assert flip(f"/dev/shm/pando-{name}", value(VICTIM)) > 0
    server = processes.start_pando(build, "--engine", "dex", pool=uri)
    check_answers(server.port)
    status, said, took = pando(build, uri, "table", "verify", "db0")
    assert status != 0 and "0x" in said and took < END_S, (status, said, took)
    node.kill()
    node.wait()
    processes.start_memory(build, *memory)
    check_answers(server.port)
    begin = time.monotonic()
    end(server)
    print(f"ended after {time.monotonic() - begin:.1f} s; verify: {said.strip()}", flush=True)


def main():
    build = lib.build_directory()
    name = f"test-{os.getpid()}-damage"
    with lib.Processes() as processes:
        try:
            steps(processes, build, name)
        finally:
            for path in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
                path.unlink()
    print("damage: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
