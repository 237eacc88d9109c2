#!/usr/bin/env python3
"""Values of 512 MiB, and several of 32 MiB at once, through two servers on one pool over tcp or shm: what each
command answers, and how much memory the servers, `pando dump` and `pando load` take for it.

long_values.py BUILD [ENGINE[-shm]...]
"""
import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

BUILD = lib.build_directory()
MIB = 1 << 20
LARGEST = 512 * MIB
PEAK_MIB_MAX = 96  # of a server: a value of 512 MiB never is in its memory, nor one of 32
DUMP_PEAK_MIB_MAX = 128
LEFT_MIB_MAX = 96  # that an empty pool has given out: to processes in advance, to logs, to small values
ROOM_S = 60
CACHE = "32M"
UNIT = os.urandom(MIB - 1)  # no multiple of any piece


def pattern(size, seed=0):
    unit = UNIT[seed:] + UNIT[:seed]
    return (unit * (size // len(unit) + 1))[:size]


def check(what, found, wanted):
    if found != wanted:
        show = [repr(x if not isinstance(x, bytes) or len(x) < 80 else (len(x), x[:20])) for x in (found, wanted)]
        raise AssertionError(f"{what}: {show[0]} instead of {show[1]}")


def peak_mib(pid, field="VmHWM"):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) // 1024


class Room:
    """Waits until what was deleted can be used again: the pool has next to nothing given out but what is kept."""

    def __init__(self, pool):
        self.pool, self.kept_mib = pool, 0

    def given_out(self):
        told = subprocess.run([BUILD / "pando", "status", "--json", "-", "--pool", *self.pool], check=True,
                              stdout=subprocess.PIPE).stdout
        return sum(sum(node["used_bytes"].values()) + node["members_bytes"] + node["waiting_bytes"] +
                   node["held_bytes"] for node in json.loads(told)["memory"])

    def wait(self):
        deadline = time.monotonic() + ROOM_S
        while (left := self.given_out()) > (self.kept_mib + LEFT_MIB_MAX) * MIB:
            if time.monotonic() > deadline:
                raise AssertionError(f"{left // MIB} MiB are still given out after {ROOM_S} s")
            time.sleep(0.1)


class Watch(threading.Thread):
    """The peak of servers' own memory over shm, where the window counts as resident, too: looked at often."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.servers, self.peaks, self.ended = servers, [0] * len(servers), threading.Event()

    def run(self):
        while not self.ended.wait(0.01):
            with contextlib.suppress(OSError, StopIteration):
                self.peaks = [max(peak, peak_mib(server.pid, "RssAnon"))
                              for peak, server in zip(self.peaks, self.servers)]

    def end(self):
        self.ended.set()
        self.join()


def connect(server):
    return lib.Connection(server.port, timeout=120)


def set_streamed(connection, key, value, *options):
    """As lib's send, without a second copy of the value."""
    words = [b"SET", key, value, *options]
    connection.socket.sendall(b"*%d\r\n" % len(words))
    for word in words:
        connection.socket.sendall(b"$%d\r\n" % len(word))
        connection.socket.sendall(word)
        connection.socket.sendall(b"\r\n")
    return connection.read()


def is_value(connection, key, wanted):
    """Whether GET returns these bytes; compared as they come."""
    connection.send("GET", key)
    check("bulk head", connection.file.readline(), b"$%d\r\n" % len(wanted))
    view, room, at, same = memoryview(wanted), bytearray(4 * MIB), 0, True
    while at < len(wanted):
        got = connection.file.readinto(memoryview(room)[:len(wanted) - at])
        if not got:
            raise EOFError("closed in the middle")
        same = same and view[at:at + got] == memoryview(room)[:got]
        at += got
    check("bulk end", connection.file.read(2), b"\r\n")
    return same


def error_of(connection, *words):
    try:
        return f"no error: {connection(*words)!r}"
    except lib.Error as error:
        return str(error)


def one_of_512(servers, room):
    value = bytearray(pattern(LARGEST))
    one, two = connect(servers[0]), connect(servers[1])
    check("SET", set_streamed(one, b"k", bytes(value)), "OK")
    check("STRLEN", two("STRLEN", "k"), LARGEST)
    check("GETRANGE, end", two("GETRANGE", "k", LARGEST - 5, -1), bytes(value[-5:]))
    check("GETRANGE", one("GETRANGE", "k", 300 * MIB - 7, 302 * MIB), bytes(value[300 * MIB - 7:302 * MIB + 1]))
    check("GET", is_value(two, "k", value), True)
    value[100 * MIB:100 * MIB + 5] = b"HELLO"
    check("SETRANGE", two("SETRANGE", "k", 100 * MIB, "HELLO"), LARGEST)
    check("GETRANGE, changed", one("GETRANGE", "k", 100 * MIB - 3, 100 * MIB + 7),
          bytes(value[100 * MIB - 3:100 * MIB + 8]))
    check("APPEND, too much", error_of(one, "APPEND", "k", "x"),
          "ERR string exceeds maximum allowed size (proto-max-bulk-len)")
    check("EXPIRE", one("EXPIRE", "k", 1000), 1)
    check("TTL", 900 < two("TTL", "k") <= 1000, True)
    check("GET, changed", is_value(one, "k", value), True)
    check("DBSIZE", two("DBSIZE"), 1)
    check("SCAN", two("SCAN", 0), [b"0", [b"k"]])
    check("DEL", two("DEL", "k"), 1)
    room.wait()
    check("SET half", set_streamed(two, b"h", bytes(value[:LARGEST // 2]), b"EX", b"1000"), "OK")
    check("APPEND half", append(one, b"h", bytes(value[LARGEST // 2:])), LARGEST)
    check("GET halves", is_value(two, "h", value), True)
    check("TTL halves", one("TTL", "h") > 0, True)
    check("DEL halves", one("DEL", "h"), 1)
    one.close()
    two.close()


def append(connection, key, value):
    connection.socket.sendall(b"*3\r\n$6\r\nAPPEND\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, len(value)))
    connection.socket.sendall(value)
    connection.socket.sendall(b"\r\n")
    return connection.read()


def several_of_32(servers, room, count=8):
    failures = []

    def work(index):
        try:
            value = pattern(32 * MIB, index + 1)
            own, other = connect(servers[index % 2]), connect(servers[1 - index % 2])
            key = b"m%d" % index
            for _ in range(2):
                check("SET 32", set_streamed(own, key, value), "OK")
                check("GET 32", is_value(other, key, value), True)
        except Exception as error:  # whatever it is, the main thread tells
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    room.kept_mib += 32 * count


def replaced_while_read(servers, _):
    """A slow reader of a value that is replaced: the value it began with, or an end; never anything else."""
    reader, writer = connect(servers[0]), connect(servers[1])
    values = [pattern(32 * MIB, 10 + index) for index in range(4)]
    check("SET", set_streamed(writer, b"r", values[0]), "OK")
    reader.send("GET", "r")
    got = reader.file.read(MIB)
    for value in values[1:]:
        check("SET again", set_streamed(writer, b"r", value), "OK")
        time.sleep(1.2)
    while piece := reader.file.read(4 * MIB):
        got += piece
        if len(got) == 32 * MIB + 13:
            break
    body = got[got.index(b"\r\n") + 2:]
    check("bytes of the first value", body[:32 * MIB] == values[0][:len(body[:32 * MIB])], True)
    print(f"  a slow reader of a replaced value got {len(body) // MIB} of 32 MiB, and nothing else")
    check("GET now", is_value(writer, "r", values[-1]), True)
    check("DEL", writer("DEL", "r"), 1)


def too_much(servers, room):
    """More than the pool has room for: one line, nothing left behind, and the rest goes on."""
    one = connect(servers[0])
    for index in range(8):
        try:
            set_streamed(one, b"f%d" % index, pattern(LARGEST))
        except lib.Error as error:
            check("full", str(error)[:21], "OOM the pool is full:"[:21])
            break
    else:
        raise AssertionError("a pool of 1.7 GiB took 4 GiB")
    check("not there", one("EXISTS", b"f%d" % index), 0)
    check("others go on", one("SET", "s", "v"), "OK")
    for number in range(index):
        check("DEL", one("DEL", b"f%d" % number), 1)
    room.wait()
    for number in range(index):
        check("again", set_streamed(one, b"f%d" % number, pattern(LARGEST)), "OK")
    for number in range(index):
        check("DEL", one("DEL", b"f%d" % number), 1)
    one.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (LARGEST + 1))
    check("longer than 512 MiB", one.file.read(), b"-ERR Protocol error: invalid bulk length\r\n")


def run_measured(*argv):
    """Runs it; its peak of memory in MiB."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen([str(word) for word in argv], stdout=output, stderr=subprocess.STDOUT)
        peak = 0
        while child.poll() is None:  # a child's rusage would have this process's own peak
            with contextlib.suppress(OSError, StopIteration):
                peak = max(peak, peak_mib(child.pid))
            time.sleep(0.01)
        if child.returncode != 0:
            output.seek(0)
            raise AssertionError(f"{argv}: {output.read().decode()}")
    return peak


def dump_and_load(processes, servers, pool, room):
    one = connect(servers[0])
    check("SET", set_streamed(one, b"big", pattern(LARGEST - 100, 77)), "OK")
    check("SET", one("SET", "small", "x"), "OK")
    file = processes.directory / "db0.dump"
    dumped = run_measured(BUILD / "pando", "dump", file, "--table", "db0", "--pool", *pool)
    check("FLUSHDB", one("FLUSHDB"), "OK")
    room.kept_mib = 0
    room.wait()
    merged = run_measured(BUILD / "pando", "load", file, "--table", "db0", "--merge", "--pool", *pool)
    check("GET after load", is_value(one, "big", pattern(LARGEST - 100, 77)), True)
    check("GET after load", one("GET", "small"), b"x")
    check("FLUSHDB", one("FLUSHDB"), "OK")
    room.wait()
    loaded = run_measured(BUILD / "pando", "load", file, "--table", "other", "--pool", *pool)
    again = processes.directory / "other.dump"
    run_measured(BUILD / "pando", "dump", again, "--table", "other", "--pool", *pool)
    check("sizes of dumps", again.stat().st_size, file.stat().st_size)
    with open(file, "rb") as first, open(again, "rb") as second:
        first.seek(128)
        second.seek(128)
        check("dumps", hashlib.file_digest(first, "sha256").digest(), hashlib.file_digest(second, "sha256").digest())
    print(f"  peaks: dump {dumped}, load --merge {merged}, load {loaded} MiB")
    check("peak of dump and load", max(dumped, merged, loaded) < DUMP_PEAK_MIB_MAX, True)
    subprocess.run([BUILD / "pando", "table", "drop", "other", "--pool", *pool], check=True, stdout=subprocess.DEVNULL)


def start_pool(processes, fabric):
    """What follows --pool; and the window, if it has a file."""
    if fabric == "shm":
        window = f"long-values-{os.getpid()}"
        processes.start_memory(BUILD, "--shm", window, "--size", "1700M")
        return [f"shm:{window}"], pathlib.Path(f"/dev/shm/pando-{window}")
    secret = processes.secret()
    memory = processes.start_memory(BUILD, "--listen", "127.0.0.1:0", "--size", "1700M", "--secret-file", secret)
    return [f"tcp:{memory.address}", "--secret-file", secret], None


def work(processes, engine, fabric, pool, whole):
    """The engines differ in how a key is changed, not in how values are written: all of it once is enough."""
    servers = [processes.start_pando(BUILD, "--engine", engine, "--cache", CACHE, *pool[1:], pool=pool[0],
                                     name=f"server-{index}") for index in range(2)]
    room = Room(pool)
    for step in (one_of_512, several_of_32, replaced_while_read, too_much) if whole else (one_of_512, several_of_32):
        begin, watch = time.monotonic(), Watch(servers)
        watch.start()
        step(servers, room)
        room.wait()
        watch.end()
        peaks = watch.peaks if fabric == "shm" else [peak_mib(server.pid) for server in servers]
        print(f"{engine} on {fabric}: {step.__name__} in {time.monotonic() - begin:.1f} s, peaks {peaks} MiB", flush=True)
        check("peak of a server", 0 < max(peaks) < PEAK_MIB_MAX, True)
    if whole:
        dump_and_load(processes, servers, pool, room)
        print(f"{engine}: dump and load, peaks {[peak_mib(server.pid) for server in servers]} MiB", flush=True)


def main():
    kinds = sys.argv[2:] or ["dex"]  # scripts/test --rest has the others
    for kind in kinds:
        engine, _, fabric = kind.partition("-")
        with lib.Processes() as processes:
            window = None
            try:
                pool, window = start_pool(processes, fabric or "tcp")
                work(processes, engine, fabric or "tcp", pool, kind == kinds[0] and not fabric)
            finally:
                if window is not None:
                    window.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
