#!/usr/bin/env python3
"""Processes whose memory runs out: each request for memory in turn is refused, of a server that executes commands, of one
that others forward operations to, of a memory node that gives out memory and tables, and of a server that takes
over from a dead one. Nobody ends or loses its membership; a command is done, or says that it was not;
afterwards everything works, and no pair is lost.

short_memory.py BUILD
"""
import contextlib
import mmap
import os
import pathlib
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

ASKED, FROM, COUNT, EVERY, REFUSED = range(0, 40, 8)
TURNS_MAX = 400  # requests of one command
KEYS = 200
LONG = b"x" * 5000
HUGE = b"y" * 700_000
TAKEOVER_S = 20
STARTS = 40

COMMANDS = [
    [["set", "short", "1"]], [["set", "long", LONG]], [["set", "huge", HUGE]], [["get", "long"]], [["get", "huge"]],
    [["getrange", "huge", 300_000, 300_010]], [["append", "long", "tail"]], [["setrange", "huge", 400_000, "z"]],
    [["mset", "a", LONG, "b", "2", "c", "3"]], [["mget", "a", "b", "c", "none"]], [["incr", "count"]],
    [["copy", "a", "a2", "replace"]], [["rename", "a2", "a3"]], [["expire", "b", 1000]], [["ttl", "b"]],
    [["scan", 0, "count", 50]], [["keys", "key*"]], [["dbsize"]], [["randomkey"]], [["del", "a3", "c"]],
    [["info"]], [["config", "get", "*"]], [["client", "list"]], [["memory", "usage", "long"]],
    [["slowlog", "get"]], [["command", "count"]], [["latency", "help"]], [["type", "long"]],
]


# Clients that join the pool and leave it; the last must do what it is to do once there is memory again.
CLIENTS = [[["status"]], [["table", "list"]], [["table", "drop", "t"], ["table", "create", "t"]],
           [["table", "verify", "db0"]]]


class Shortage:
    """Of one process."""

    def __init__(self, path):
        path.write_bytes(bytes(mmap.PAGESIZE))
        self.path = path
        with open(path, "r+b") as file:
            self.words = mmap.mmap(file.fileno(), 0)

    def read(self, word):
        return struct.unpack_from("<Q", self.words, word)[0]

    def write(self, word, value):
        struct.pack_into("<Q", self.words, word, value)

    @contextlib.contextmanager
    def refuse(self, turn, count=1):
        self.write(FROM, self.read(ASKED) + turn)
        self.write(COUNT, count)
        yield
        self.write(COUNT, 0)

    @contextlib.contextmanager
    def refuse_every(self, every):
        self.write(EVERY, every)
        yield
        self.write(EVERY, 0)


@contextlib.contextmanager
def preloaded(build, shortage):
    """What is started meanwhile runs out of memory as that says."""
    os.environ["LD_PRELOAD"] = str(build / "tests" / "libshort_memory.so")
    os.environ["PANDO_SHORT_MEMORY"] = str(shortage.path)
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["PANDO_SHORT_MEMORY"]


class World:
    def __init__(self, processes, build, name):
        self.processes, self.build, self.name = processes, build, name
        self.children = []

    def start(self, what, start):
        shortage = Shortage(self.processes.directory / f"{what}.short")
        with preloaded(self.build, shortage):
            child = start()
        child.what, child.shortage = what, shortage
        self.children.append(child)
        return child

    def memory(self):
        return self.start("memory", lambda: self.processes.start_memory(self.build, "--shm", self.name, "--size", "256M"))

    def server(self, what, engine):
        return self.start(what, lambda: self.processes.start_pando(self.build, "--engine", engine, "--threads", "2",
                                                                   pool=f"shm:{self.name}", name=what))

    def check(self, *ended):
        """All live, and are members still."""
        for child in self.children:
            if child in ended:
                continue
            log = child.log.read_text(errors="replace")
            assert child.poll() is None, f"{child.what} ended with {child.poll()}:\n{log[-2000:]}"
            for word in ("gives itself up", "was declared dead", "assert"):
                assert word not in log, f"{child.what}:\n{log[-2000:]}"

    def end(self):
        for child in self.children:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    raise RuntimeError(f"{child.what} does not end")


def say(port, words, database=0):
    """The replies; None: the connection was closed."""
    try:
        connection = lib.Connection(port, timeout=30)
    except OSError:
        return None
    replies = []
    try:
        connection("select", database)
        for command in words:
            try:
                replies.append(connection(*command))
            except lib.Error as error:
                replies.append(error)
    except lib.Error as error:
        replies.append(error)
    except (OSError, EOFError, ValueError, IndexError) as error:
        if isinstance(error, TimeoutError):
            raise RuntimeError(f"no answer to {words[0][0]}") from error
        return None
    finally:
        connection.close()
    return replies


def in_turn(world, action, shortage):
    """Refuses one request after the other during the action, until it needs no more. How many."""
    for turn in range(TURNS_MAX):
        before = shortage.read(REFUSED)
        with shortage.refuse(turn):
            action()
        if shortage.read(REFUSED) == before:
            break
    world.check()
    return turn


def pando(world, *words):
    """A client that joins the pool and leaves it. Its status is 0, or it says in a line why not."""
    done = subprocess.run([str(world.build / "pando"), *words, "--pool", f"shm:{world.name}"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    assert done.returncode in (0, 1), (words, done.returncode, done.stdout.decode())
    return done.returncode


def fill(port, database=0):
    for number in range(KEYS):
        assert say(port, [["set", f"key{number:04}", f"value{number:04}"]], database) == ["OK"]


def check_filled(port, database=0):
    for number in range(KEYS):
        said = say(port, [["get", f"key{number:04}"]], database)
        assert said == [f"value{number:04}".encode()], (number, said)


def commands(processes, build, name, engine):
    world = World(processes, build, name)
    memory, server = world.memory(), world.server("server", engine)
    fill(server.port)
    turns = sum(in_turn(world, lambda: say(server.port, words), server.shortage) for words in COMMANDS)
    for words in COMMANDS:
        said = say(server.port, words)
        assert said is not None and not any(isinstance(reply, lib.Error) for reply in said), (words[0][:2], said)
    check_filled(server.port)
    print(f"{engine}: {turns} requests of {len(COMMANDS)} commands were refused", flush=True)
    turns = sum(in_turn(world, lambda: say(server.port, words, database), memory.shortage)
                for database in range(1, 4) for words in COMMANDS[:9])
    for clients in CLIENTS:
        turns += in_turn(world, lambda: [pando(world, *words) for words in clients], memory.shortage)
        assert [pando(world, *words) for words in clients][-1] == 0, clients
    for database in range(1, 4):
        said = say(server.port, [["set", "long", LONG], ["get", "long"]], database)
        assert said == ["OK", LONG], (database, str(said)[:200])
    check_filled(server.port)
    print(f"{engine}: {turns} requests of the memory node were refused", flush=True)
    world.check()
    world.end()


def forwarding(processes, build, name):
    """The first owns the keys: the second forwards, and takes over in the end."""
    world = World(processes, build, name)
    world.memory()
    owner, other = world.server("owner", "dex"), world.server("other", "dex")
    fill(owner.port)
    words = [w for w in COMMANDS if w[0][0] in ("set", "get", "append", "mset", "mget", "incr", "del", "scan")]
    for who in (owner, other):
        turns = sum(in_turn(world, lambda: say(other.port, each), who.shortage) for each in words)
        check_filled(other.port)
        print(f"forwarding: {turns} requests of the {who.what} were refused", flush=True)
    for every in (3, 7):
        with other.shortage.refuse_every(every):
            if every == 3:
                owner.kill()
                owner.wait()
            time.sleep(3)
        world.check(owner)
    begin = time.monotonic()
    while time.monotonic() - begin < TAKEOVER_S:
        if say(other.port, [["get", "key0000"]]) == [b"value0000"]:
            break
        time.sleep(0.1)
    check_filled(other.port)
    print(f"takeover: {other.shortage.read(REFUSED)} requests were refused in all", flush=True)
    world.check(owner)
    world.end()


def starts(processes, build, name, engine):
    """A server that has no memory somewhere on its way into the pool: it ends with a message, or serves."""
    world = World(processes, build, name)
    world.memory()
    first = world.server("first", engine)
    fill(first.port)
    asked, served = first.shortage.read(ASKED), 0
    first.terminate()
    first.wait()
    for turn in range(0, asked, max(asked // STARTS, 1)):
        shortage = Shortage(processes.directory / "start.short")
        shortage.write(FROM, turn)
        shortage.write(COUNT, 1)
        with preloaded(build, shortage):
            child = processes.start([build / "pando", "serve", "--engine", engine, "--pool", f"shm:{name}",
                                     "--listen", "127.0.0.1:0", "--threads", "2"], "start")
        end = time.monotonic() + 20
        while b" ready at " not in child.log.read_bytes() and child.poll() is None:
            assert time.monotonic() < end, f"request {turn}: neither ready nor ended"
            time.sleep(0.01)
        served += child.poll() is None
        if child.poll() is None:
            child.terminate()
        assert child.wait(timeout=30) in (0, 1), (turn, child.returncode, child.log.read_text()[-1000:])
        assert child.returncode == 0 or "memory" in child.log.read_text().lower(), (turn, child.log.read_text()[-1000:])
    world.children.remove(first)
    last = world.server("last", engine)
    check_filled(last.port)
    print(f"{engine}: a request of {asked} was refused while a server started; it served {served} times", flush=True)
    world.check()
    world.end()


def main():
    build = lib.build_directory()
    if not (build / "tests" / "libshort_memory.so").exists():
        lib.skip("libshort_memory.so is not built: a sanitizer has a malloc of its own")
    cases = [("sherman", lambda p, n: commands(p, build, n, "sherman")),
             ("dex", lambda p, n: commands(p, build, n, "dex")),
             ("forwarding", lambda p, n: forwarding(p, build, n)),
             ("sherman-starts", lambda p, n: starts(p, build, n, "sherman")),
             ("dex-starts", lambda p, n: starts(p, build, n, "dex"))]
    for what, case in cases:
        if len(sys.argv) > 2 and what not in sys.argv[2:]:
            continue
        name = f"test-{os.getpid()}-{what}"
        with lib.Processes() as processes:
            try:
                case(processes, name)
            finally:
                for path in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
                    path.unlink()
    print("short_memory: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
