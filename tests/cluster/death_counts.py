#!/usr/bin/env python3
"""Lock words count the holders that died with them, and what they count may be mended as their work (rules
lock-word, proven-repair). `pando table verify` of all tables sets them back when every table is whole, however many
Sherman tables share them; of one of several tables, or if one is damaged, they stay.

death_counts.py BUILD
"""
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS, VICTIM, DEATHS = 500, 234, 3
HEADER_HOST_BYTES, LOCKS = 16, 32768  # window_fmt.h, pool_fmt.h


def window(name, use):
    with open(f"/dev/shm/pando-{name}", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        return use(memory)


def lock_words(memory):
    """Where the lock table is: behind the host part."""
    at, = struct.unpack_from("<Q", memory, HEADER_HOST_BYTES)
    return at


def count_deaths(memory):
    """As if holders of every lock but the first, the directory's, had died."""
    words = [0] + [DEATHS] * (LOCKS - 1)
    struct.pack_into(f"<{LOCKS}Q", memory, lock_words(memory), *words)


def counted(memory):
    words = struct.unpack_from(f"<{LOCKS}Q", memory, lock_words(memory))
    assert all(word in (0, DEATHS) for word in words), set(words)
    return sum(word != 0 for word in words)


def damage(memory):
    """Flips a bit of a key, which no update changes."""
    at = memory.find(f"key{VICTIM:05}".encode())
    assert at >= 0
    memory[at] ^= 1


def verify(build, name, *tables):
    done = subprocess.run([str(build / "pando"), "table", "verify", *tables, "--pool", f"shm:{name}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    return done.returncode, done.stdout.decode()


def steps(processes, build, name):
    uri = f"shm:{name}"
    processes.start_memory(build, "--shm", name, "--size", "128M")
    server = processes.start_pando(build, "--engine", "sherman", pool=uri)
    call = lib.Connection(server.port, timeout=60)
    for number in range(KEYS):
        call("set", f"key{number:05}", f"value{number:05}")
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=20)
    subprocess.run([str(build / "pando"), "table", "create", "other", "--engine", "sherman", "--pool", uri],
                   check=True, stdout=subprocess.DEVNULL)

    window(name, count_deaths)
    status, said = verify(build, name, "db0")
    assert status == 0 and window(name, counted) == LOCKS - 1, said
    status, said = verify(build, name)
    assert status == 0, said
    left = window(name, counted)
    assert left == 0, f"{left} lock words count deaths though every table is whole: {said}"

    window(name, count_deaths)
    window(name, damage)
    status, said = verify(build, name)
    assert status == 1 and "db0: damaged" in said and "other: sound" in said, said
    assert window(name, counted) == LOCKS - 1, "lock words were set back though a table is damaged"


def main():
    build = lib.build_directory()
    name = f"test-{os.getpid()}-deaths"
    with lib.Processes() as processes:
        try:
            steps(processes, build, name)
        finally:
            for path in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
                path.unlink()
    print("death_counts: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
