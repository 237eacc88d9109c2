#!/usr/bin/env python3
"""Bits that flip in a table of each engine: in a leaf, in an inner node, in the root. Keys below the damage are answered
within two seconds, with what they have or with an error; all others, and those of other tables, are served; verify
names the damage and ends, the server ends when it is told to, and the memory node starts again.

damage.py BUILD [ENGINE...]
"""
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS = 6000
VICTIM = 2345
ANSWER_S, END_S = 2, 20
SAMPLE = 500  # between keys that are asked for
SOUND = 3  # the database that is not damaged

# Where nodes and pages have what is looked for: level, flags, size of the low fence, the low fence; and the first byte
# behind all that, of which a bit flips in inner ones.
FORMATS = {"sherman": (40, 41, 42, 48, 64), "dex": (56, 57, 60, 72, 96)}
NO_HIGH = 1
PAGE = 4096
LIVE = 2


def key(number):
    return f"key{number:05}"


def value(database, number):
    return f"needle{database}:{number:05}".encode()


def number_of(low):
    """The first number whose key is not below a fence."""
    return next((number for number in range(KEYS) if key(number).encode() >= low), KEYS)


def copies(memory, needle):
    """Of a value: it may lie in an old page or in a log, too."""
    at = memory.find(needle)
    while at >= 0:
        yield at
        at = memory.find(needle, at + 1)


def flip(path, needle):
    """Flips a bit of every copy of a value. How many."""
    count = 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for at in list(copies(memory, needle)):
            memory[at] ^= 1
            count += 1
    return count


class Window:
    """A memory node's window, as a file."""

    def __init__(self, name, engine):
        self.path = f"/dev/shm/pando-{name}"
        self.format = FORMATS[engine]

    def __enter__(self):
        self.file = open(self.path, "r+b")
        self.memory = mmap.mmap(self.file.fileno(), 0)
        return self

    def __exit__(self, *_):
        self.memory.close()
        self.file.close()

    def blocks(self):
        """Of tables: where, number of the table, level, no high fence, low fence."""
        level, flags, size, low, _ = self.format
        for page in range(0, len(self.memory), PAGE):
            if self.memory[page:page + PAGE].count(0) == PAGE:
                continue
            for at in range(page, page + PAGE, 64):
                own, version, tenure = struct.unpack_from("<QQQ", self.memory, at + 8)
                if own & (1 << 48) - 1 != at or tenure >> 56 != LIVE or version == 0:
                    continue
                (low_size,) = struct.unpack_from("<H", self.memory, at + size)
                yield (at, tenure >> 32 & 0xffff, self.memory[at + level],
                       self.memory[at + flags] & NO_HIGH, self.memory[at + low:at + low + low_size])

    def table_of(self, needle):
        """The number of the table with a value."""
        begins = list(self.blocks())
        for copy in copies(self.memory, needle):
            for at, table, level, *_ in begins:
                if level == 0 and at < copy < at + 1536:
                    return table
        raise RuntimeError(f"no leaf has {needle}")

    def inner(self, table, root):
        """The inner node above the victim, just above leaves, or the root; and which numbers are below it."""
        nodes = [(level, low, at) for at, of, level, _, low in self.blocks()
                 if of == table and 0 < level < 8 and (low == b"" or low.startswith(b"key"))]
        assert nodes, "no inner node found"
        top = max(level for level, _, _ in nodes)
        assert top > 1, "the tree has no inner nodes but its root"
        if root:
            return [at for level, _, at in nodes if level == top], range(KEYS)
        lows = sorted({low for level, low, _ in nodes if level == 1})
        low = max(low for low in lows if low <= key(VICTIM).encode())
        high = next((number_of(next_low) for next_low in lows if next_low > low), KEYS)
        return [at for level, own, at in nodes if level == 1 and own == low], range(number_of(low), high)

    def damage(self, engine, database, what):
        """Which numbers may be below it."""
        if what == "leaf":
            at, below = list(copies(self.memory, value(database, VICTIM))), range(VICTIM - 100, VICTIM + 100)
        else:
            nodes, below = self.inner(self.table_of(value(database, VICTIM)), what == "root")
            at = [begin + self.format[-1] for begin in nodes]
        assert at, f"nothing to damage in the {what} of {engine}'s db{database}"
        assert what == "root" or len(below) < KEYS // 2, f"too much is below that {what}: {below}"
        for byte in at:
            self.memory[byte] ^= 1
        return below


def ask(port, database, number):
    """What a GET says, or a SELECT, which opens the table."""
    connection = lib.Connection(port, timeout=60)
    begin = time.monotonic()
    try:
        connection("select", database)
        said = connection("get", key(number))
    except lib.Error as error:
        said = error
    took = time.monotonic() - begin
    connection.close()
    assert took < ANSWER_S, f"{key(number)} of db{database} was answered after {took:.1f} s: {said}"
    assert isinstance(said, lib.Error) or said == value(database, number), said
    return said


def pando(build, uri, *words):
    begin = time.monotonic()
    done = subprocess.run([str(build / "pando"), *words, "--pool", uri], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), time.monotonic() - begin


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=END_S)


def check_answers(port, damages):
    """Whoever comes to a leaf another way than through the damaged node may still be right."""
    for database, (what, below) in damages.items():
        numbers = [VICTIM, *range(below.start, below.stop, 3 if what == "leaf" else SAMPLE)]
        said = [ask(port, database, number) for number in numbers]
        refused = [answer for answer in said if isinstance(answer, lib.Error)]
        assert all("corrupt" in str(answer) for answer in refused), refused
        assert what != "leaf" or isinstance(said[0], lib.Error), "the damaged key is answered"
        print(f"db{database}, a damaged {what}: {len(refused)} of {len(said)} keys are not served", flush=True)
        for number in (0, 1, below.start - 1, below.stop, KEYS - 1):
            assert not 0 <= number < KEYS or number in below or \
                ask(port, database, number) == value(database, number), \
                f"{key(number)} of db{database} is not below the {what}, and is not served"
    for number in range(1, KEYS, SAMPLE):
        assert ask(port, SOUND, number) == value(SOUND, number), "another table is not served"


def fill(port, database):
    call = lib.Connection(port, timeout=60)
    call("select", database)
    for first in range(0, KEYS, 500):
        for number in range(first, first + 500):
            call.send("set", key(number), value(database, number))
        for number in range(first, first + 500):
            assert call.read() == "OK"
    call.close()


def steps(processes, build, name, engine):
    uri = f"shm:{name}"
    memory = ["--shm", name, "--size", "128M"]
    node = processes.start_memory(build, *memory)
    server = processes.start_pando(build, "--engine", engine, pool=uri)
    damages = {0: "leaf", 1: "inner node", 2: "root"}
    for database in (*damages, SOUND):
        fill(server.port, database)
    end(server)

    with Window(name, engine) as window:
        for database, what in damages.items():
            damages[database] = what, window.damage(engine, database, what)
    server = processes.start_pando(build, "--engine", engine, pool=uri)
    check_answers(server.port, damages)
    for database, (what, _) in damages.items():
        status, said, took = pando(build, uri, "table", "verify", f"db{database}")
        assert status != 0 and "0x" in said and took < END_S, (what, status, said, took)
        print(f"db{database}: {said.strip()}", flush=True)
    status, said, took = pando(build, uri, "table", "verify", f"db{SOUND}")
    assert status == 0, said
    node.kill()
    node.wait()
    processes.start_memory(build, *memory)
    check_answers(server.port, damages)
    begin = time.monotonic()
    end(server)
    print(f"{engine}: ended after {time.monotonic() - begin:.1f} s", flush=True)


def main():
    build = lib.build_directory()
    for engine in sys.argv[2:] or FORMATS:
        name = f"test-{os.getpid()}-{engine}"
        with lib.Processes() as processes:
            try:
                steps(processes, build, name, engine)
            finally:
                for path in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
                    path.unlink()
    print("damage: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
