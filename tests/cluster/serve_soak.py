#!/usr/bin/env python3
"""Random clients on two servers and a memory node, while clients vanish, servers are killed and
started again, stopped and continued, and the memory node goes and comes back with its memory.

Every acknowledged write must be there afterwards, and every counter lies between what was acknowledged and
that plus what ended without an answer.   serve_soak.py BUILD [SECONDS [SEED]]
"""
import pathlib
import random
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

CLIENTS = 6
UNANSWERED = ("UNKNOWN", "UNAVAILABLE", "OOM", "ERR the pool says")


class Worker(threading.Thread):
    """Owns keys nobody else writes, and adds to counters everybody shares."""

    def __init__(self, number, cluster, seed, end):
        super().__init__(daemon=True)
        self.number, self.cluster, self.end = number, cluster, end
        self.random = random.Random(f"{seed}/{number}")
        self.values = {}  # key -> set of what may be there
        self.names = [0] * 40  # which name each of the own keys has now
        self.added, self.doubtful, self.done, self.errors, self.lost = 0, 0, 0, 0, 0
        self.failure = None
        self.call = None

    def run(self):
        try:
            while time.monotonic() < self.end:
                self.batch()
        except Exception as error:  # noqa: BLE001
            self.failure = f"client {self.number}: {error!r}"

    def connect(self):
        while self.call is None and time.monotonic() < self.end:
            try:
                self.call = lib.Connection(self.random.choice(self.cluster.ports), timeout=15)
            except OSError:
                time.sleep(0.05)
        return self.call is not None

    def batch(self):
        if not self.connect():
            return
        words = [self.request() for _ in range(self.random.choice([1, 1, 4, 16]))]
        replies = []
        try:
            self.call.socket.sendall(b"".join(self.call.encode(*one) for one in words))
            if self.random.random() < 0.01:
                raise OSError("vanishes")
            for _ in words:
                replies.append(lib.parse_some(self.call.read_raw())[0])
        except (OSError, EOFError, socket.timeout):
            self.call.close()
            self.call = None
            self.lost += 1
        for one, reply in zip(words, replies + [None] * (len(words) - len(replies))):
            self.account(one, reply, answered=len(replies) > 0)
            replies = replies[1:]

    def request(self):
        slot = self.random.randrange(len(self.names))
        key = f"own{self.number}.{slot}.{self.names[slot]}"
        kind = self.random.random()
        if kind < 0.3:
            return ("incr", f"shared{self.random.randrange(3)}")
        if kind < 0.6:
            size = self.random.choice([10, 100, 1000, 20000])
            return ("set", key, f"{self.random.random()}" * (size // 10))
        if kind < 0.7:
            return ("del", key)
        return ("get", key)

    def account(self, words, reply, answered):
        failed = isinstance(reply, lib.Error)
        if failed and not str(reply).startswith(UNANSWERED):
            raise AssertionError(f"{words[:2]}: {reply}")
        self.errors += failed
        unchanged = failed and not str(reply).startswith("UNKNOWN")
        sure = answered and not failed
        self.done += sure
        if words[0] == "incr":
            self.added += sure
            self.doubtful += not sure and not unchanged
            return
        known = self.values.setdefault(words[1], {None})
        if words[0] == "get":
            if sure and reply not in known:
                raise AssertionError(f"{words[1]} is {str(reply)[:40]}, not one of {[str(v)[:40] for v in known]}")
            return
        value = None if words[0] == "del" else words[2].encode()
        if sure:
            self.values[words[1]] = {value} if len(known) == 1 else known | {value}
        elif not unchanged:
            # It may be done at any later time, by a server that has been asleep: nothing more can be said
            # of this key, so its slot gets another.
            known.add(value)
            self.names[int(words[1].split(".")[1])] += 1


class Cluster:
    def __init__(self, processes, build):
        self.processes, self.build = processes, build
        self.secret = processes.secret()
        self.window = f"test-soak-{processes.directory.name}"
        self.address = f"127.0.0.1:{lib.free_port()}"
        self.generation = 0
        self.start_memory()
        self.servers = [None, None]
        self.ports = [lib.free_port(), lib.free_port()]
        for i in range(2):
            self.start_server(i)

    def start_memory(self):
        self.generation += 1
        self.memory = self.processes.start_memory(
            self.build, "--listen", self.address, "--size", "256M", "--shm", self.window, "--secret-file",
            self.secret, name=f"memory{self.generation}")

    def start_server(self, i):
        self.generation += 1
        child = self.processes.start(
            [self.build / "pando", "serve", "--pool", f"tcp:{self.address}", "--secret-file", self.secret,
             "--threads", "2", "--listen", f"127.0.0.1:{self.ports[i]}"], f"server{self.generation}")
        self.processes.wait_for(child, " ready at ", 30)
        self.servers[i] = child

    def disturb(self, chance):
        kind = chance.choice(["kill server", "kill server", "stop server", "kill memory", "end server"])
        i = chance.randrange(2)
        server = self.servers[i]
        if kind == "kill server":
            server.kill()
            server.wait()
            self.start_server(i)
        elif kind == "end server":
            server.send_signal(signal.SIGTERM)
            if server.wait(30) != 0:
                raise AssertionError(f"a server ended with {server.returncode}:\n{server.log.read_text()}")
            self.start_server(i)
        elif kind == "stop server":
            server.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.5, 4))
            server.send_signal(signal.SIGCONT)
        else:
            self.memory.kill()
            self.memory.wait()
            time.sleep(chance.uniform(0.1, 1))
            self.start_memory()
        for server in self.servers:
            if server.poll() is not None:
                raise AssertionError(f"a server ended by itself:\n{server.log.read_text()[-3000:]}")
        return kind


def wait_until_served(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            call = lib.Connection(port, timeout=20)
            call("set", "probe", "1")
            return call
        except (lib.Error, OSError, EOFError):
            time.sleep(0.2)
    raise AssertionError("nothing is served any more")


def judge(cluster, workers):
    for worker in workers:
        if worker.failure:
            raise AssertionError(worker.failure)
    low = sum(worker.added for worker in workers)
    high = low + sum(worker.doubtful for worker in workers)
    for port in cluster.ports:
        call = wait_until_served(port)
        total = sum(int(call("get", f"shared{i}") or 0) for i in range(3))
        if not low <= total <= high:
            raise AssertionError(f"{total} INCRs; {low} were acknowledged, {high - low} had no answer")
        for worker in workers:
            for key, known in worker.values.items():
                value = call("get", key)
                if value not in known:
                    raise AssertionError(f"{key} is {str(value)[:40]}, not one of {[str(v)[:40] for v in known]}")
    return total, low


def main():
    build = lib.build_directory()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20
    seed = sys.argv[3] if len(sys.argv) > 3 else str(random.randrange(1 << 30))
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    with lib.Processes() as processes:
        cluster = Cluster(processes, build)
        try:
            end = time.monotonic() + seconds
            workers = [Worker(i, cluster, seed, end) for i in range(CLIENTS)]
            for worker in workers:
                worker.start()
            kinds = []
            while time.monotonic() < end - 5:
                time.sleep(chance.uniform(0.5, 3))
                kinds.append(cluster.disturb(chance))
            for worker in workers:
                worker.join()
            total, low = judge(cluster, workers)
            done, errors = (sum(getattr(worker, what) for worker in workers) for what in ("done", "errors"))
            if done < 1000:
                raise AssertionError(f"only {done} requests were served")
            print(f"{done} requests served, {errors} refused, {sum(worker.lost for worker in workers)} connections "
                  f"lost; {total} INCRs, {low} acknowledged; " +
                  ", ".join(f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds))))
        finally:
            for path in pathlib.Path("/dev/shm").glob(f"pando-{cluster.window}*"):
                path.unlink()
    print("serve_soak: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
