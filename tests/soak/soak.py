#!/usr/bin/env python3
"""Attacks real processes for as long as one likes: soak.py BUILD [--seconds N] [--seed N] [--transport shm|tcp|both]

Memory nodes and servers are killed, paused (also for longer than a lease) and ended at random, one or two at a time,
memory node 0 like the others, while clients write and read values of 100 B, 1 kB and 100 kB in tables of both engines,
and the pool is filled until it is full, and emptied again, over and over. Checked is
  - that no acknowledged write is lost, that no value is old, torn or another key's, that ranges are whole and in order;
  - that every request is answered in bounded time, and that everything is served again when the faults are over;
  - that no process ends by itself, that each ends when it is told to, that tables are sound (`pando table verify`);
  - that memory comes back: at the end of each cycle the tables are dropped, and then the pool holds what it held at the
    beginning, to within 5 MiB (1 MiB on shm) and 8 KiB for each death of a server; servers stay below 512 MiB; no
    windows of dead servers are left in /dev/shm;
  - that it is of use: at the end the pool is filled with values of 100 kB, and holds 95 % of what a fresh one of the
    same shape does.

What a death leaves: of each write that was under way the block of its new value, if that is a long one that no leaf
refers to yet, or of the old one, which no leaf refers to any more. A connection has at most 64 writes under way over tcp
and one on shm, FLUSHDB and RI.DELPREFIX 64. The drop of their table takes these blocks back, unless some member has a list
in doubt, which may be about one of them (rule failed-lists-linger): because a memory
node is away, or a thread of it ended so.

A run is cycles of about a minute. For an hour: soak.py build --seconds 3600. Everything random comes from the seed, but
the processes' own timing does not. When it fails, the ends of all logs are shown, and the logs are kept."""
import argparse
import os
import pathlib
import random
import shutil
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cluster import Cluster, SoakError, lib  # noqa: E402
from model import INDEX, LOST, SHARED, SIZES, Client, Request, Table, Worker, value_of  # noqa: E402

WORKERS = 5
CYCLE_S = 60  # of faults, at most
# By which memory at the end may differ from memory at the start: a batch of long values; on shm one of each client.
SLACK_BYTES = {"tcp": 5 << 20, "shm": 1 << 20}
LEFT_BYTES = 8 << 10  # and for each death, on average
FILL = "fill"  # an ordered index that is filled; beside it one of these databases, in turns
FILL_DATABASES = (1, 2)
ASK_AGAIN_S = (0, 2, 10)  # when a key is missing: is it lost, or was it not seen for a moment?
FLUSH_S = 300
SHORT_BATCHES = 30  # of short values, when no long one fits
CAPACITY_BATCH, CAPACITY_PART, CAPACITY_TRIES = 50, 0.95, 100
FILL_SHARES = {100: 1, 1000: 2, 100_000: 6}
ROOM_S = 20  # for freed memory to be of use again, before the pool is filled anew
FIRST_FILL_S = 90  # faults begin when the pool has been full once, or after that long
PROGRESS_S = 10


class Fill(threading.Thread):
    """Fills the pool with values of all sizes until nothing more fits, looks at some of them, and empties it; again
    and again."""

    def __init__(self, cluster, seed, stop):
        super().__init__(daemon=True)
        self.client = Client(cluster, random.Random(f"{seed}/fill"))
        self.random, self.stop_event = self.client.random, stop
        self.rounds, self.full_bytes, self.failure = 0, [], None
        self.full = threading.Event()
        self.next, self.doing = 0, ""
        # A FLUSHDB without an answer may still be at work at a server that is being ended, and delete what is
        # written later: the next round is in another database, and has other names in the index.
        self.database = FILL_DATABASES[0]
        self.tables = (Table(), Table(FILL))

    def run(self):
        try:
            while not self.stop_event.is_set():
                self.round()
                self.await_room()
            self.client.disconnect()
        except SoakError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001
            self.failure = SoakError(f"filling: {error!r}")

    def prefix(self):
        return f"fill{self.rounds:04}."

    def requests(self, table, size):
        """Of one size; long values by few."""
        some = []
        for _ in range(max(1, min(500, 4_000_000 // size))):
            self.next += 1
            key = f"{self.prefix()}{self.next:09}"
            some.append(Request(table.set(key, value_of(key, self.next, size)), "set", (table, key, size), self.next))
        return some

    def exchange(self, requests):
        """In the database of this round."""
        fresh = self.client.call is None
        if fresh and not self.client.connect(time.monotonic() + 10):
            return [LOST] * len(requests)
        if fresh and self.client.exchange([Request(["select", self.database], "")])[0] != "OK":
            self.client.disconnect()
            return [LOST] * len(requests)
        return self.client.exchange(requests)

    def round(self):
        """It is full when long values fit into neither table any more; then short ones are tried for a while."""
        held, fitting = [], [(table, size) for table in self.tables for size in SIZES]
        left = SHORT_BATCHES
        while fitting and left > 0 and not self.stop_event.is_set():
            left -= all(size != SIZES[-1] for _, size in fitting)
            kind = self.random.choices(fitting, [FILL_SHARES[size] for _, size in fitting])[0]
            for one, reply in zip(requests := self.requests(*kind), self.exchange(requests)):
                if reply == "OK":
                    held.append(one)
                if kind in fitting and isinstance(reply, lib.Error) and str(reply).startswith("OOM"):
                    fitting.remove(kind)
        if all(size != SIZES[-1] for _, size in fitting):
            self.full_bytes.append(sum(one.key[2] for one in held))
            self.full.set()
        self.check(self.random.sample(held, min(len(held), 3000)))
        self.empty()
        self.rounds += 1
        self.database = FILL_DATABASES[self.rounds % 2]
        self.client.disconnect()

    def ask_again(self, one):
        """What every server says of a key, now and later."""
        said, begin = [], time.monotonic()
        for seconds in ASK_AGAIN_S:
            time.sleep(max(0, begin + seconds - time.monotonic()))
            for port in self.client.cluster.ports:
                client = Client(self.client.cluster, self.random)
                client.connect_only(port)
                reply = LOST
                if client.connect(time.monotonic() + 5):
                    reply = client.exchange([Request(["select", self.database], ""), Request(one.words, "get")])[1]
                client.disconnect()
                said.append(f"after {seconds} s at port {port}: {'no answer' if reply is LOST else str(reply)[:60]}")
        return "; ".join(said)

    def check(self, held):
        """What was acknowledged is there, also in a pool that is full."""
        requests = [Request(one.key[0].get(one.key[1]), "get", one.key, one.number) for one in held]
        for start in range(0, len(requests), 50):
            some = requests[start:start + 50]
            for one, value in zip(some, self.exchange(some)):
                expected = value_of(one.key[1], one.number, one.key[2])
                if value is LOST or isinstance(value, lib.Error) or value == expected:
                    continue
                raise SoakError(f"{one.words[:3]} was acknowledged, and is {str(value)[:60]} at port {self.client.port}; "
                                f"{self.ask_again(one)}")

    def until(self, words, accepted):
        end, last = time.monotonic() + FLUSH_S, None
        while time.monotonic() < end:
            self.doing = f"{words}, last answer {'none' if last is LOST else last}"
            last = self.exchange([Request(words, "")])[0]
            if last is not LOST and not isinstance(last, lib.Error) and accepted(last):
                return
            time.sleep(0.05)
        raise SoakError(f"{words} does not succeed within {FLUSH_S} s; the last answer was "
                        f"{'none' if last is LOST else last}")

    def await_room(self):
        """What was freed may be read by others for a while longer, and is kept from use until then."""
        end = time.monotonic() + ROOM_S
        while time.monotonic() < end and not self.stop_event.wait(0.2):
            replies = self.exchange([self.requests(table, SIZES[-1])[0] for table in self.tables])
            if replies == ["OK", "OK"]:
                return

    def empty(self):
        self.until(["flushdb"], lambda reply: reply == "OK")
        self.until(["ri.delprefix", FILL, self.prefix()], lambda _: True)
        # A write of ours whose connection broke may have been done since: until there is none.
        self.until(["flushdb"], lambda reply: reply == "OK")
        self.until(["dbsize"], lambda reply: reply == 0)
        self.until(["ri.delprefix", FILL, self.prefix()], lambda reply: reply == 0)


class Soak:
    def __init__(self, cluster, seed, seconds):
        self.cluster, self.seed, self.seconds = cluster, seed, seconds
        self.chance = random.Random(f"{seed}/faults/{cluster.transport}")
        self.cycles, self.totals = 0, {}
        self.slowest_s, self.slowest = 0, ""
        self.start_bytes, self.held_bytes = None, None
        self.full = []

    def say(self, text):
        print(f"{self.cluster.transport} {time.monotonic() - self.begin:6.0f} s  {text}", flush=True)

    def add(self, what, count):
        self.totals[what] = self.totals.get(what, 0) + count

    # --- a cycle ---

    def create_tables(self):
        client = Client(self.cluster, self.chance)
        for name in (INDEX, FILL):
            client.until_answered(["ri.create", name, "engine", "sherman"])
        for i in (0, *FILL_DATABASES):
            client.until_answered(["select", i])
            client.until_answered(["get", "nothing"])
        client.disconnect()

    def attack(self, end):
        stop = threading.Event()
        name = f"{self.seed}/{self.cluster.transport}/{self.cycles}"
        workers = [Worker(i, self.cluster, name, stop) for i in range(WORKERS)]
        fill = Fill(self.cluster, name, stop)
        threads = [*workers, fill]
        for thread in threads:
            thread.start()
        fill_begins = time.monotonic()
        fill.full.wait(FIRST_FILL_S)
        last = time.monotonic()
        end += last - fill_begins
        try:
            while time.monotonic() < end:
                time.sleep(self.chance.uniform(0.1, 1))
                what = self.cluster.disturb(self.chance)
                self.cluster.look_at_rss()
                self.raise_failures(threads)
                if time.monotonic() > last + PROGRESS_S:
                    last = time.monotonic()
                    self.say(f"{sum(one.done for one in workers)} requests, {fill.rounds} fills; {what}")
        finally:
            stop.set()
        for thread in threads:
            while thread.is_alive():
                thread.join(PROGRESS_S)
                if thread.is_alive():
                    self.say(f"waiting for {'the filling' if thread is fill else 'a client'}: {fill.doing}")
                self.raise_failures(threads)
        self.raise_failures(threads)
        self.count(workers, fill)
        return workers

    @staticmethod
    def raise_failures(threads):
        for thread in threads:
            if thread.failure:
                raise thread.failure

    def count(self, workers, fill):
        for client in [*workers, fill.client]:
            self.add("requests served", client.done)
            self.add("refused", client.errors)
            self.add("connections lost", client.lost)
            if client.slowest_s > self.slowest_s:
                self.slowest_s, self.slowest = client.slowest_s, client.slowest
        self.add("fills", fill.rounds)
        self.full += fill.full_bytes

    def judge(self, workers):
        """Everything is served again, by every server, and is what it may be."""
        low = sum(worker.added for worker in workers)
        high = low + sum(worker.doubtful for worker in workers)
        for port in self.cluster.ports:
            client = Client(self.cluster, self.chance)
            client.connect_only(port)
            client.unreached = lambda: self.cluster.look_after([])  # on a busy machine it may still be fenced
            requests = [Request(["get", f"shared{i}"], "get") for i in range(SHARED)]
            total = sum(int(value or 0) for value in client.read_all(requests))
            if not low <= total <= high:
                raise SoakError(f"{total} INCRs at port {port}; {low} were acknowledged, {high - low} had no answer")
            for worker in workers:
                keys = list(worker.known)
                requests = [Request(worker.tables[which].get(key), "get") for which, key in keys]
                for key, value in zip(keys, client.read_all(requests)):
                    worker.check(key, value)
            client.disconnect()
        self.add("keys judged", sum(len(worker.known) for worker in workers) * len(self.cluster.ports))

    def check_tables(self):
        code, out, errors = self.cluster.command("table", "verify")
        if code != 0:
            raise SoakError(f"pando table verify ended with {code}:\n{out}{errors}")

    def drop_tables(self):
        for table in self.cluster.status()["tables"]:
            code, out, errors = self.cluster.command("table", "drop", table["name"])
            if code != 0:
                raise SoakError(f"pando table drop {table['name']} ended with {code}:\n{out}{errors}")

    def cycle(self, end):
        cluster = self.cluster
        cluster.start(cluster.server_roles())
        self.create_tables()
        workers = self.attack(end)
        self.judge(workers)
        for role in cluster.server_roles():
            cluster.end(role)
        self.check_tables()
        kept, _ = cluster.memory_used()
        self.drop_tables()
        used, chunks = cluster.memory_used()
        self.cycles += 1
        self.say(f"cycle {self.cycles}: {kept / 1e6:.1f} MB in tables, after they were dropped {used} bytes in "
                 f"{chunks} chunks (at the start {self.start_bytes})")
        if used > self.start_bytes + SLACK_BYTES[cluster.transport] + LEFT_BYTES * cluster.deaths():
            raise SoakError(f"{used - self.start_bytes} bytes of memory did not come back")

    # --- all of it ---

    def run(self):
        self.begin = time.monotonic()
        cluster = self.cluster
        cluster.start(cluster.memory_roles())
        self.start_bytes, _ = cluster.memory_used()
        end = self.begin + self.seconds
        while self.cycles == 0 or time.monotonic() < end:
            self.cycle(min(end, time.monotonic() + CYCLE_S))
        self.end()

    def end(self):
        """One more server comes and goes: it removes what killed ones left."""
        cluster = self.cluster
        self.held_bytes = capacity(cluster)
        if cluster.leftovers():
            raise SoakError(f"windows of servers that are gone: {cluster.leftovers()}")
        for role in cluster.memory_roles():
            cluster.end(role)
        if not self.totals.get("requests served"):
            raise SoakError("no request was served")
        faults = ", ".join(f"{count} x {what}" for what, count in sorted(cluster.counts.items()))
        self.say(f"{self.cycles} cycles; " + ", ".join(f"{count} {what}" for what, count in self.totals.items()) +
                 f"; slowest answer {self.slowest_s:.1f} s to {self.slowest}; servers up to {cluster.rss_max >> 20} MiB; full with " +
                 f"{', '.join(f'{size / 1e6:.0f}' for size in self.full) or 'never'} MB; {faults}")


def capacity(cluster):
    """Bytes of values of 100 kB that fit into the pool, through one server that comes and goes."""
    size, number, tries = SIZES[-1], 0, 0
    cluster.start([("server", 0)])
    client = Client(cluster, random.Random(0))
    client.connect_only(cluster.ports[0])
    client.until_answered(["flushdb"])
    cluster.await_room()
    while True:
        some = [Request(["set", f"capacity{number + i}", value_of("capacity", number + i, size)], "set")
                for i in range(CAPACITY_BATCH)]
        if not client.connect(time.monotonic() + 10):
            raise SoakError("filling what is left after all faults: the server cannot be reached")
        replies = client.exchange(some)
        if any(str(reply).startswith("OOM") for reply in replies):
            break
        if all(reply == "OK" for reply in replies):
            number += len(replies)
            continue
        tries += 1  # on a busy machine it may have been fenced
        if tries == CAPACITY_TRIES:
            raise SoakError(f"filling what is left after all faults: {replies}")
        time.sleep(0.1)
    number += sum(reply == "OK" for reply in replies)
    client.disconnect()
    cluster.end(("server", 0))
    return number * size


def compare_capacity(options, transport, processes, held):
    """With a fresh pool."""
    cluster = Cluster(processes, options.build, transport, options.size, "fresh")
    try:
        cluster.start(cluster.memory_roles())
        fresh = capacity(cluster)
        for role in cluster.memory_roles():
            cluster.end(role)
    finally:
        stop(cluster)
    print(f"{transport}: after all this the pool holds {held:,} bytes of values of {SIZES[-1]}, a fresh one {fresh:,}: "
          f"{held / fresh:.3f}", flush=True)
    if held < CAPACITY_PART * fresh:
        raise SoakError(f"the pool holds {held} bytes, a fresh one {fresh}")


def stop(cluster):
    for child in cluster.children.values():
        if child.poll() is None:
            child.kill()
        child.wait()
    cluster.remove_windows()


def run(options, transport, processes):
    cluster = Cluster(processes, options.build, transport, options.size)
    soak = Soak(cluster, options.seed, options.seconds / (2 if options.transport == "both" else 1))
    try:
        soak.run()
        stop(cluster)
        compare_capacity(options, transport, processes, soak.held_bytes)
        return True
    except (SoakError, KeyboardInterrupt) as error:
        print(f"FAILED ({transport}, seed {options.seed}): {error!r}\n{cluster.tails()}", flush=True)
        kept = options.build / "soak-logs" / processes.directory.name
        shutil.copytree(processes.directory, kept, ignore=shutil.ignore_patterns("secret*"), dirs_exist_ok=True)
        print(f"logs: {kept}", flush=True)
        return False
    finally:
        stop(cluster)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="where the program is")
    parser.add_argument("--seconds", type=float, default=60, help="for how long faults go on, of both transports")
    parser.add_argument("--seed", default=str(random.randrange(1 << 30)))
    parser.add_argument("--transport", choices=("shm", "tcp", "both"), default="both")
    parser.add_argument("--size", default="224M",
                        help="of each memory node")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if not os.access(options.build / "pando", os.X_OK):
        lib.skip(f"{options.build}/pando is not built")
    print(f"seed {options.seed}", flush=True)
    with lib.Processes() as processes:
        transports = ("shm", "tcp") if options.transport == "both" else (options.transport,)
        good = all([run(options, transport, processes) for transport in transports])
    print("soak: ok" if good else "soak: failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
