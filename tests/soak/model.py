"""Clients of a soak, and what they know of the pool: every value that may be there, by key.

A key has one writer. A value says which key it is of and which of that key's writes it is, so that a value that is
old, torn or another key's is seen to be. A write without an answer, or whose outcome is not known, may take effect at
any later time: nothing more is written to that key, and from then on either may be there."""
import hashlib
import random
import socket
import sys
import pathlib
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402
from cluster import SoakError  # noqa: E402

ANSWER_S = 90  # a batch of requests without an answer for so long is a failure,
LONG_S = 180  # and one of those that delete all keys of a full pool, one by one, on a busy machine
LONG = ("flushdb", "ri.delprefix")
SIZES = (100, 1000, 100_000)
UNCHANGED = ("OOM", "UNAVAILABLE")  # these say that nothing was changed
SHARED = 3  # counters that all add to
INDEX = "soak"  # an ordered index: the engine sherman's
OWN_KEYS = 24
LOST = object()  # in place of a reply: the connection broke before it came


def value_of(key, number, size):
    head = f"{key}|{number}|".encode()
    pattern = hashlib.blake2b(head, digest_size=32).digest()
    return (head + pattern * (size // len(pattern) + 1))[:max(size, len(head))]


def number_of(key, value):
    """Which write of that key this is; None if it is no value of it."""
    try:
        name, number, _ = value.split(b"|", 2)
        if name.decode() == key and value_of(key, int(number), len(value)) == value:
            return int(number)
    except ValueError:
        pass
    return None


def is_corrupt(reply):
    return isinstance(reply, lib.Error) and "corrupt" in str(reply).lower()


class Table:
    """How the two kinds of table are spoken to."""

    def __init__(self, index=None):
        self.words = (lambda name: [f"ri.{name}", index]) if index else (lambda name: [name])

    def set(self, key, value):
        return [*self.words("set"), key, value]

    def get(self, key):
        return [*self.words("get"), key]

    def delete(self, key):
        return [*self.words("del"), key]


class Request:
    """What was asked, and how it changes what is known of the key: `number` is the write's, None of a read or
    a delete, and `kind` set, get, del, incr or range."""

    def __init__(self, words, kind, key=None, number=None):
        self.words, self.kind, self.key, self.number = words, kind, key, number


class Client:
    """Requests in batches to any server, every one of which is answered in bounded time or lost with its
    connection."""

    def __init__(self, cluster, chance):
        self.cluster, self.random, self.call = cluster, chance, None
        self.ports, self.port = cluster.ports, None
        self.done = self.errors = self.lost = 0
        self.slowest_s, self.slowest = 0, ""
        self.unreached = lambda: None  # called when a server cannot be reached

    def connect_only(self, port):
        self.ports = [port]

    def connect(self, end):
        while self.call is None and time.monotonic() < end:
            self.port = self.random.choice(self.ports)
            try:
                self.call = lib.Connection(self.port, timeout=ANSWER_S)
            except OSError:
                time.sleep(0.05)
                self.unreached()
        return self.call is not None

    def disconnect(self):
        if self.call is not None:
            self.call.close()
        self.call = None

    def exchange(self, requests, vanish=False):
        """Replies, LOST for those that the connection did not bring any more."""
        replies, begin = [], time.monotonic()
        patience = LONG_S if requests[0].words[0] in LONG else ANSWER_S
        try:
            self.call.socket.settimeout(patience)
            self.call.socket.sendall(b"".join(self.call.encode(*one.words) for one in requests))
            if vanish:
                raise EOFError
            for _ in requests:
                replies.append(lib.parse_some(self.call.read_raw())[0])
        except socket.timeout:
            raise SoakError(f"no answer within {patience} s from the server at port {self.port} to "
                            f"{requests[len(replies)].words[:3]}") from None
        except (OSError, EOFError):
            self.disconnect()
            self.lost += 1
        seconds = time.monotonic() - begin
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest = seconds, f"{len(requests)} x {requests[0].words[:2]} at port {self.port}"
        for one, reply in zip(requests, replies):
            if is_corrupt(reply):
                raise SoakError(f"{one.words[:3]}: {reply}")
            self.errors += isinstance(reply, lib.Error)
            self.done += not isinstance(reply, lib.Error)
        return replies + [LOST] * (len(requests) - len(replies))

    def until_answered(self, words, seconds=ANSWER_S):
        """Repeats a request that may be repeated until it is no error."""
        end, last = time.monotonic() + seconds, None
        while time.monotonic() < end:
            if not self.connect(end):
                break
            last = self.exchange([Request(words, "")])[0]
            if last is not LOST and not isinstance(last, lib.Error):
                return last
            time.sleep(0.1)
        raise SoakError(f"{words[:3]} does not succeed within {seconds} s; the last answer was "
                        f"{'none' if last is LOST else last}")

    def read_all(self, requests):
        """Values, by many at a time; what is not answered is asked again, for a bounded time."""
        values, left = [LOST] * len(requests), list(range(len(requests)))
        end, last = time.monotonic() + ANSWER_S, None
        while left:
            if time.monotonic() > end or not self.connect(end):
                raise SoakError(f"{requests[left[0]].words[:3]} cannot be read within {ANSWER_S} s: {last}")
            some, left = left[:64], left[64:]
            for i, reply in zip(some, self.exchange([requests[i] for i in some])):
                values[i] = reply
            failed = [i for i in some if values[i] is LOST or isinstance(values[i], lib.Error)]
            if failed:
                last = values[failed[0]]
                left = failed + left
                time.sleep(0.1)
            if len(failed) < len(some):
                end = time.monotonic() + ANSWER_S
        return values


class Worker(threading.Thread, Client):
    """Writes and reads keys of its own in both kinds of table, and adds to counters everybody shares."""

    def __init__(self, number, cluster, seed, stop):
        threading.Thread.__init__(self, daemon=True)
        Client.__init__(self, cluster, random.Random(f"{seed}/{number}"))
        self.number, self.stop_event = number, stop
        self.tables = (Table(), Table(INDEX))
        self.known = {}  # (table, key) -> the numbers that may be there, None: absent
        self.names = [[0] * OWN_KEYS for _ in self.tables]  # which name each of the own keys has now
        self.issued = 0
        self.added = self.doubtful = 0
        self.failure = None

    def run(self):
        try:
            while not self.stop_event.is_set():
                if self.connect(time.monotonic() + 1):
                    self.batch()
            self.disconnect()
        except SoakError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001
            self.failure = SoakError(f"client {self.number}: {error!r}")

    def batch(self):
        requests = [self.request() for _ in range(self.random.choice([1, 1, 4, 16]))]
        if self.random.random() < 0.1:  # alone: commands of a batch overlap if they name different keys
            requests = [Request(["ri.range", INDEX, self.prefix(), self.prefix() + "~"], "range")]
        replies = self.exchange(requests, vanish=self.random.random() < 0.01)
        for one, reply in zip(requests, replies):
            self.account(one, reply)

    def prefix(self):
        return f"own{self.number}."

    def request(self):
        which = self.random.randrange(2)
        slot = self.random.randrange(OWN_KEYS)
        key, table = f"{self.prefix()}{slot:02}.{self.names[which][slot]}", self.tables[which]
        kind = self.random.random()
        if kind < 0.15:
            return Request(["incr", f"shared{self.random.randrange(SHARED)}"], "incr")
        if kind < 0.5:
            self.issued += 1
            size = self.random.choices(SIZES, (10, 10, 1))[0]
            return Request(table.set(key, value_of(key, self.issued, size)), "set", (which, key), self.issued)
        if kind < 0.6:
            return Request(table.delete(key), "del", (which, key))
        return Request(table.get(key), "get", (which, key))

    def account(self, one, reply):
        failed = isinstance(reply, lib.Error)
        unchanged = failed and str(reply).startswith(UNCHANGED)
        sure = reply is not LOST and not failed
        if one.kind == "incr":
            self.added += sure
            self.doubtful += not sure and not unchanged
        elif one.kind == "range":
            if sure:
                self.check_range(reply)
        elif one.kind == "get":
            if sure:
                self.check(one.key, reply)
        elif sure:
            known = self.known.get(one.key, {None})
            self.known[one.key] = {one.number} if len(known) == 1 else known | {one.number}
        elif not unchanged:
            self.known.setdefault(one.key, {None}).add(one.number)
            which, key = one.key
            self.names[which][int(key.split(".")[1])] += 1

    def check(self, key, value):
        """That this may be there now."""
        known = self.known.get(key, {None})
        number = None if value is None else number_of(key[1], value)
        if value is not None and number is None:
            raise SoakError(f"{key[1]} has a value that is not its own: {value[:60]!r}, {len(value)} bytes")
        if number not in known:
            raise SoakError(f"{key[1]} is write {number}, not one of {sorted(known, key=str)}")

    def check_range(self, pairs):
        found = {key.decode(): value for key, value in zip(pairs[::2], pairs[1::2])}
        if sorted(found) != [key.decode() for key in pairs[::2]]:
            raise SoakError(f"a range of {self.prefix()} is not in order, or has a key twice")
        for key in found.keys() | {key for which, key in self.known if which == 1}:
            self.check((1, key), found.get(key))
