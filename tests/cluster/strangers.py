#!/usr/bin/env python3
"""Strangers at every port: 64 and 10,000 connections from 127.0.0.2 that say nothing or half a handshake, and come back
when they are closed. Clients at work and new ones from 127.0.0.1 notice nothing: they are let in, and get no error.
The ports of a pool are besieged over plain TCP and over TLS, and so is a server without a password, as it is started
without options. What strangers take of a process's memory is bounded.

strangers.py BUILD
"""
import contextlib
import json
import os
import pathlib
import resource
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

FEW, MANY = 64, 10000
CLIENTS_MAX = 8000
OPEN = MANY + 200
PATIENCE_S = 20  # of a client: more than any stranger's deadline would make it wait for nothing
KEYS = 200
AGAIN_MAX = 2
GROWTH_MAX = 48 << 20  # of a process, by its strangers
LOG_MAX = 600  # ten a second of what strangers cause, as long as this takes on a busy machine
PEER_NODES = 0x8000  # and the number of the member
IP_BIND_ADDRESS_NO_PORT = 24
HALVES = {
    "fabric": struct.pack("<IBBHQ", 48, 1, 0, 0, 1),
    "resp": b"*2\r\n$4\r\nAUTH\r\n$10\r\nhal",
    "open": b"*2\r\n$3\r\nGET\r\n$10\r\nhal",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http": b"GET /metrics HTTP/1.1\r\nHost: a",
}


# ---- the attacker, a process of its own ----------------------------------------------------------

class Siege:
    """Connections to one port, half of which say something. Those that the server closes are made anew."""

    def __init__(self, port, half):
        self.port, self.half, self.made, self.peers, self.poll = port, half, 0, {}, select.epoll()

    def connect(self):
        peer = socket.socket()
        peer.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        peer.bind(("127.0.0.2", 0))
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            peer.connect(("127.0.0.1", self.port))
        self.made += 1
        self.peers[peer.fileno()] = peer
        self.poll.register(peer, select.EPOLLOUT)

    def look(self, seconds, most):
        """What is connected says its half; what is closed is replaced. Returns how many were connected."""
        connected = 0
        for number, events in self.poll.poll(seconds, most):
            peer = self.peers[number]
            closed = bool(events & (select.EPOLLHUP | select.EPOLLERR))
            with contextlib.suppress(BlockingIOError):
                try:
                    if events & select.EPOLLOUT and number % 2:
                        peer.send(self.half)
                    closed = closed or (events & select.EPOLLIN and not peer.recv(4096))
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    closed = True
            connected += bool(events & select.EPOLLOUT)
            if closed:
                self.poll.unregister(peer)
                del self.peers[number]
                peer.close()
                self.connect()
            else:
                self.poll.modify(peer, select.EPOLLIN)
        return connected

    def stand(self, count):
        """Until each has been connected once, or as good as all."""
        for _ in range(count):
            self.connect()
        connected, end = 0, time.monotonic() + PATIENCE_S
        while connected < count and time.monotonic() < end:
            connected += self.look(0.1, count)
        return connected

    def end(self):
        self.poll.close()
        for peer in self.peers.values():
            peer.close()


def attack():
    """Besieges the port of each {"port", "count", "half"} line until the next line comes."""
    raise_files()
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        siege = Siege(order["port"], HALVES[order["half"]])
        print(siege.stand(order["count"]), flush=True)
        while not select.select([sys.stdin], [], [], 0.02)[0]:
            siege.look(0, 64)
        sys.stdin.readline()
        siege.end()
        print(siege.made, flush=True)


def raise_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPEN:
        lib.skip(f"fewer than {OPEN} open files are allowed here (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN, hard))


class Attacker:
    def __init__(self, processes):
        self.child = subprocess.Popen([sys.executable, __file__, "--attack"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        processes.running.append(self.child)

    def say(self, words):
        print(json.dumps(words), file=self.child.stdin, flush=True)
        return self.child.stdout.readline().strip()

    @contextlib.contextmanager
    def at(self, port, count, half):
        connected = int(self.say({"port": port, "count": count, "half": half}))
        try:
            assert connected >= count, f"{connected} of {count} strangers were connected"
            yield
        finally:
            self.made = int(self.say("enough"))


# ---- clients -------------------------------------------------------------------------------------

class World:
    """A memory node and two servers on it, the second of which asks the first for its keys. `pool_tls`: what all of
    them and their callers are started with, for TLS among them."""

    def __init__(self, build, processes, name, *pool_tls):
        self.build, self.processes, self.name, self.pool_tls = build, processes, name, pool_tls
        self.secret = processes.secret()
        self.password = processes.secret("password", "let me in please")
        self.cert, key = processes.directory / "cert.pem", processes.directory / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", self.cert,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        self.memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "256M", "--secret-file",
                                             self.secret, "--metrics", "0", *pool_tls, name=f"memory-{name}")
        self.pool = f"tcp:{self.memory.address}"
        self.peer_port = lib.free_port()
        self.first = self.serve("first", "--metrics", "0", "--peer-listen", f"127.0.0.1:{self.peer_port}",
                                "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", self.cert, "--serve-tls-key", key)
        call = self.client(self.first)
        for number in range(KEYS):
            for _ in range(3):
                with contextlib.suppress(lib.Error):
                    assert call("set", f"key{number}", number) == "OK"
                    break
        self.second = self.serve("second")
        self.servers = {"first": self.first, "second": self.second}
        self.children = (self.first, self.second, self.memory)
        ready = processes.wait_for(self.first, " ready at ")
        self.ports = {
            "fabric over TLS": (int(self.memory.address.rsplit(":", 1)[1]), "tls", self.new_fabric),
            "peer over TLS": (self.peer_port, "tls", self.new_peer),
        } if pool_tls else {
            "fabric": (int(self.memory.address.rsplit(":", 1)[1]), "fabric", self.new_fabric),
            "peer": (self.peer_port, "fabric", self.new_peer),
            "RESP": (self.first.port, "resp", self.new_resp),
            "RESP TLS": (int(ready.split("tls:")[1].split(",")[0].rsplit(":", 1)[1]), "tls", self.new_tls),
            "server's metrics": (self.metrics_port(self.first), "http", self.new_scrape(self.first)),
            "memory's metrics": (self.metrics_port(self.memory), "http", self.new_scrape(self.memory)),
        }

    def serve(self, name, *options):
        return self.processes.start_pando(self.build, "--engine", "dex", "--secret-file", self.secret,
                                          "--password-file", self.password, "--log-level", "warn", "--max-clients",
                                          CLIENTS_MAX, *options, *self.pool_tls, pool=self.pool,
                                          name=f"{name}-{self.name}")

    def metrics_port(self, child):
        return int(self.processes.wait_for(child, "metrics at ").split("metrics at ")[1].split(",")[0]
                   .rsplit(":", 1)[1])

    def client(self, server, wrap=None, port=None):
        call = lib.Connection(port or server.port, timeout=PATIENCE_S, wrap=wrap)
        assert call("auth", "let me in please") == "OK"
        return call

    def command(self, *words):
        done = subprocess.run([self.build / "pando", *words, "--pool", self.pool, "--secret-file", self.secret,
                               *self.pool_tls],
                              timeout=PATIENCE_S * 3, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        assert done.returncode == 0, f"pando {words}: {done.stdout}"

    def new_fabric(self):
        self.command("status")

    def new_peer(self):
        env = {**os.environ, **({"PEER_CLIENT_REQUIRE_TLS": "yes"} if self.pool_tls else {})}
        done = subprocess.run([self.build / "tests/cluster_peer_client", f"127.0.0.1:{self.peer_port}", self.secret,
                               "knock", str(PEER_NODES + 1)], timeout=PATIENCE_S, check=False, capture_output=True,
                              text=True, env=env)
        assert done.stdout == "ok\n", f"a member of the pool: {done.stdout}{done.stderr}"

    def new_resp(self):
        call = self.client(self.first)
        assert call("get", "key1") == b"1"
        call.close()

    def new_tls(self):
        context = ssl.create_default_context(cafile=self.cert)
        call = self.client(self.first, lambda raw: context.wrap_socket(raw, server_hostname="127.0.0.1"),
                           self.ports["RESP TLS"][0])
        assert call("get", "key2") == b"2"
        call.close()

    def new_scrape(self, child):
        url = f"http://127.0.0.1:{self.metrics_port(child)}/metrics"

        def scrape():
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                assert b"pando_uptime_seconds" in answer.read()
        return scrape


class OpenWorld:
    """A server that nobody gave a password or any other option."""
    name = "open"

    def __init__(self, build, processes):
        self.server = processes.start_pando(build, name="open")
        call = self.client(self.server)
        for number in range(KEYS):
            assert call("set", f"key{number}", number) == "OK"
        self.servers, self.children = {"open": self.server}, (self.server,)
        self.ports = {"RESP without a password": (self.server.port, "open", self.new_client)}

    def client(self, server):
        return lib.Connection(server.port, timeout=PATIENCE_S)

    def new_client(self):
        call = self.client(self.server)
        assert call("get", "key1") == b"1"
        call.close()


class LostLease(Exception):
    """The server's process did not run for a second, as happens on a machine that has too much to do."""


@contextlib.contextmanager
def lease_kept(whose):
    try:
        yield
    except lib.Error as error:
        if not str(error).startswith(("UNKNOWN", "UNAVAILABLE")):
            raise
        raise LostLease(f"{whose}: {error}") from error


class AtWork(threading.Thread):
    """Reads and writes the same keys all the time, through one connection; an error ends it."""

    def __init__(self, world, child, server):
        super().__init__()
        self.world, self.child, self.server = world, child, server
        self.call = world.client(child)
        self.rounds, self.slowest_s, self.error, self.stopping = 0, 0, None, False

    def run(self):
        try:
            while not self.stopping:
                begin = time.monotonic()
                number = self.rounds % KEYS
                assert self.call("get", f"key{number}") == b"%d" % number, number
                assert self.call("set", f"{self.server}{number}", self.rounds) == "OK"
                self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
                self.rounds += 1
                time.sleep(0.001)
        except Exception as error:  # whatever it is, it is what a client noticed
            self.error = error

    def check(self):
        with lease_kept(f"a client at work at the {self.server} server"):
            if self.error:
                raise self.error

    def end(self):
        self.stopping = True
        self.join(PATIENCE_S)

    def goes_on(self):
        """Some rounds more from now on."""
        wanted = self.rounds + 10
        end = time.monotonic() + PATIENCE_S
        while self.rounds < wanted and self.error is None and time.monotonic() < end:
            time.sleep(0.01)
        self.check()
        assert self.rounds >= wanted, f"a client at work at the {self.server} server waits for {PATIENCE_S} s"


def resident_bytes(child):
    for line in pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def besiege(world, attacker, workers, name, count):
    port, half, new_client = world.ports[name]
    before = [resident_bytes(child) for child in world.children]
    begin = time.monotonic()
    with attacker.at(port, count, half):
        stands_s = time.monotonic() - begin
        for _ in range(3):
            with lease_kept("a new client"):
                new_client()
        for worker in workers:
            worker.goes_on()
        grown = max(resident_bytes(child) - bytes for child, bytes in zip(world.children, before))
    print(f"{name}: {count} strangers in {stands_s:.1f} s, {attacker.made} by the end, three new clients let in, "
          f"{grown >> 20} MB, {time.monotonic() - begin:.1f} s in all", flush=True)
    assert grown < GROWTH_MAX, f"{name}: {count} strangers take {grown >> 20} MB"


def besiege_with_workers(world, attacker, name, count):
    workers = [AtWork(world, child, server) for server, child in world.servers.items()]
    for worker in workers:
        worker.start()
    try:
        besiege(world, attacker, workers, name, count)
    finally:
        for worker in workers:
            worker.end()
    for worker in workers:
        worker.check()
    return sum(worker.rounds for worker in workers), max(worker.slowest_s for worker in workers)


def besiege_all(world, attacker):
    rounds, slowest_s, again = 0, 0, AGAIN_MAX
    for name in world.ports:
        for count in (FEW, MANY):
            while True:
                try:
                    did, took_s = besiege_with_workers(world, attacker, name, count)
                    break
                except LostLease as error:
                    print(f"{name}: {count} strangers: {error}; once more", flush=True)
                    assert again > 0, error
                    again -= 1
            rounds, slowest_s = rounds + did, max(slowest_s, took_s)
    print(f"clients at work: {rounds} rounds, the slowest {slowest_s:.2f} s")


def end(world):
    for child in world.children:
        child.terminate()
        assert child.wait(PATIENCE_S) == 0, child.args
        log = child.log.read_text(errors="replace")
        assert len(log.splitlines()) < LOG_MAX, f"{len(log.splitlines())} lines of log:\n{log[-2000:]}"


def main():
    if sys.argv[1:] == ["--attack"]:
        attack()
        return
    build = lib.build_directory()
    raise_files()
    if not (build / "tests/cluster_peer_client").exists():
        lib.skip(f"{build}/tests/cluster_peer_client is not built")
    with lib.Processes() as processes:
        attacker = Attacker(processes)
        for make in (lambda: OpenWorld(build, processes), lambda: World(build, processes, "plain"),
                     lambda: World(build, processes, "tls", "--require-tls")):
            world = make()
            try:
                besiege_all(world, attacker)
            except Exception:
                for child in world.children:
                    print(child.log.read_text(errors="replace")[-2000:])
                raise
            end(world)


if __name__ == "__main__":
    main()
