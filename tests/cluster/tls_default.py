#!/usr/bin/env python3
"""Somebody on the path between a client and a memory node: a relay that lets both shake hands, and then sends a WRITE
of its own. Over plain TCP, which both sides have to ask for with --insecure-tcp, it takes effect. By default it does
not, because off loopback there is TLS; and the relay cannot turn that off, whatever it answers. Who asks for something
else than the other side is told which option to give.

"Off loopback" are addresses of a network namespace of the test's own; without one it is skipped.

tls_default.py BUILD
"""
import ctypes
import fcntl
import os
import pathlib
import re
import select
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

NODE, PATH, WAIT_S = "10.99.0.1", "10.99.0.2", 20
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFADDR, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8916, 0x8913, 0x8914, 1
HELLO, CHALLENGE, PROOF, WELCOME, LISTS, RESULTS = 1, 2, 3, 4, 5, 6
MAGIC, TLS_FIRST = bytes.fromhex("50414e4454435000"), 0x16
PLACE, VALUE = 0x3000000, 0x6b63617474612121


# --- a network of its own ---

def enter_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if libc.unshare(flags) != 0:
        lib.skip(f"no network namespace to be had: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, address in (("lo", "127.0.0.1"), ("lo:1", NODE), ("lo:2", PATH)):
            request = struct.pack("16sHH4s8x", name.encode(), socket.AF_INET, 0, socket.inet_aton(address))
            try:
                fcntl.ioctl(control, SIOCSIFADDR, request)
                request = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
                up = struct.unpack("16sH14x", request)[1] | IFF_UP
                fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), up))
            except OSError as error:
                lib.skip(f"cannot give a network namespace its addresses: {error}")


# --- the one on the path ---

def frame(kind, body, count=0):
    return struct.pack("<IBBH", len(body), kind, 0, count) + body


def wire_version():
    """What programs of this tree speak: another version is refused before anything else is looked at."""
    header = pathlib.Path(__file__).resolve().parents[2] / "src/fabric/tcp/wire_fmt.h"
    return int(re.search(r"\bWIRE_VERSION = (\d+)", header.read_text())[1])


def write_frame():
    """A list of one WRITE of 8 bytes, as a client's first."""
    op = PLACE.to_bytes(6, "little") + b"\x01\x00" + struct.pack("<II", 8, 0)
    body = op + VALUE.to_bytes(8, "little")
    return frame(LISTS, struct.pack("<IHH", 8 + len(body), 1, 0) + body, 1)


class Relay:
    """Takes one connection after another. `injects`: as soon as both sides have shaken hands it sends the WRITE in
    the client's place. `answers`: does not connect on, but says this to whatever comes. `resets`: loses what the
    server says last, when the client takes TLS for open, and resets the connection."""

    def __init__(self, target, injects=False, answers=None, resets=False, at=PATH):
        self.target, self.injects, self.answers, self.resets = target, injects, answers, resets
        self.first, self.seen = [], b""
        self.listener = socket.create_server((at, 0))
        self.address = f"{at}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client = self.listener.accept()[0]
            threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        client.settimeout(WAIT_S)
        try:
            self.first.append(client.recv(1, socket.MSG_PEEK)[0])
            if self.answers is not None:
                client.recv(4096)
                client.sendall(self.answers)
                client.recv(4096)
            else:
                host, port = self.target.rsplit(":", 1)
                with socket.create_connection((host, int(port)), timeout=WAIT_S) as server:
                    self.pass_on(client, server)
                    if self.resets:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (OSError, IndexError):
            pass
        client.close()

    def pass_on(self, client, server):
        """Until one side ends; or, to inject, until the server has welcomed the client: that is what it says second,
        behind the answer to the hello of TLS third."""
        said, asked, wanted = 0, 0, 3 if self.first[-1] == TLS_FIRST else 2
        while not self.injects or said < wanted:
            for source in select.select([client, server], [], [], WAIT_S)[0]:
                piece = source.recv(65536)
                if not piece:
                    return
                self.seen += piece
                said += source is server
                asked += source is client
                if self.resets and source is server and asked > 1:
                    continue
                (client if source is server else server).sendall(piece)
        server.sendall(write_frame())
        server.recv(4096)  # what came of it: it is done, or refused


# --- scenes ---

class World:
    def __init__(self, processes, build):
        self.processes, self.build = processes, build
        self.secret = processes.secret("secret", "the right secret of this pool")
        self.wrong = processes.secret("wrong", "another secret, of another pool")
        self.count = 0

    def memory(self, *options, host=NODE):
        self.count += 1
        return self.processes.start_memory(self.build, "--listen", f"{host}:0", "--size", "64M", "--secret-file",
                                           self.secret, *options, name=f"memory-{self.count}")

    def run(self, command, address, *options, secret=None, words=()):
        done = subprocess.run([self.build / "pando", command, "--pool", f"tcp:{address}", "--secret-file",
                               secret or self.secret, *options, *words], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def word(self, address, *options):
        code, out, err = self.run("shell", address, *options, words=("-c", f"read {PLACE:#x}"))
        assert code == 0, err
        return out

    def refused(self, address, text, *options, secret=None):
        code, _, err = self.run("status", address, *options, secret=secret)
        lines = err.strip().splitlines()
        assert code == 1 and text in err, f"expected '{text}' with {options}, got {code}: {err}"
        assert sum("memory node 0 at" in line for line in lines) == 1, err


def attack(world, memory, *options):
    """What is at the place afterwards, and whether the answer to the WRITE came in the clear."""
    before = world.word(memory.address, *options)
    relay = Relay(memory.address, injects=True)
    code, _, err = world.run("status", relay.address, *options)
    assert relay.first, "nobody came to the relay"
    after = world.word(memory.address, *options)
    return before != after, relay, code, err


def plain_scene(world):
    memory = world.memory("--insecure-tcp")
    line = world.processes.wait_for(memory, "can read and write all of the pool")
    assert "level=warn" in line, line
    changed, relay, _, err = attack(world, memory, "--insecure-tcp")
    assert err.count("leave --insecure-tcp out") == 1, err
    assert relay.first[0] != TLS_FIRST and MAGIC in relay.seen, relay.seen
    assert changed, "the attack of this test does not work: it says nothing"
    # A client that does not ask for it uses TLS with the same memory node.
    changed, relay, _, _ = attack(world, memory)
    assert relay.first[0] == TLS_FIRST
    near = world.memory("--insecure-tcp", host="127.0.0.1")
    code, _, err = world.run("status", near.address, "--insecure-tcp")
    assert code == 0 and "plain TCP" not in err, err  # nobody else sees it
    print("plain TCP: an injected WRITE takes effect, and both sides say so")


def default_scene(world):
    memory = world.memory()
    changed, relay, code, err = attack(world, memory)
    assert relay.first and all(first == TLS_FIRST for first in relay.first), relay.first
    assert MAGIC not in relay.seen, "the handshake can be read"
    assert not changed, "an injected WRITE took effect"
    assert code == 1, (code, err)
    relay = Relay(memory.address)
    code, out, err = world.run("status", relay.address)
    assert code == 0 and "node 0" in out and not err, (code, err)
    print("default: it does not, and the handshake cannot be read")


def downgrade_scene(world):
    """The relay pretends that the memory node wants no TLS."""
    memory = world.memory()
    refusal = frame(WELCOME, struct.pack("<HHI", 14, 0, 0) + bytes(56))
    challenge = frame(CHALLENGE, bytes(32))
    for answer in (refusal, challenge, b"", b"\x15\x03\x01\x00\x02\x02\x46", b"-ERR this port does not speak TLS\r\n"):
        relay = Relay(memory.address, answers=answer)
        code, _, err = world.run("status", relay.address)
        assert code == 1 and "memory node 0 at" in err, (answer, code, err)
        assert relay.first and all(first == TLS_FIRST for first in relay.first), (answer, relay.first)
    # And to the memory node that the client wants none. One that has refused nobody yet: it says why at most
    # now and then.
    memory = world.memory()
    host, port = memory.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as plain:
        plain.sendall(frame(HELLO, MAGIC + struct.pack("<HHI", wire_version(), 0, 0) + bytes(32)))
        said = plain.recv(4096)
        assert said[4] == WELCOME and said[8] != 0, said
        assert not plain.recv(4096)
    world.processes.wait_for(memory, "plain TCP, where TLS is due")
    print("downgrade: neither side goes on in plain TCP")


def mismatch_scene(world, cert, key, other):
    keyed, plain = world.memory(), world.memory("--insecure-tcp")
    strict = world.memory("--require-tls", host="127.0.0.1")
    certified = world.memory("--tls-cert", cert, "--tls-key", key)
    mutual = world.memory("--tls-cert", cert, "--tls-key", key, "--tls-ca", cert)
    world.refused(keyed.address, "leave --insecure-tcp out, or give it on both sides", "--insecure-tcp")
    world.refused(keyed.address, "wrong secret", secret=world.wrong)
    world.refused(keyed.address, "it has no certificate; leave --tls-ca out", "--tls-ca", cert)
    world.refused(strict.address, "give --require-tls")
    world.refused(certified.address, "give --tls-ca")
    world.refused(certified.address, "give --tls-ca", "--insecure-tcp")
    world.refused(certified.address, "wrong authority", "--tls-ca", other)
    world.refused(certified.address, "wrong secret", "--tls-ca", cert, secret=world.wrong)
    relay = Relay(certified.address)
    world.refused(relay.address, "for another host", "--tls-ca", cert)
    world.refused(mutual.address, "give --tls-cert and --tls-key", "--tls-ca", cert)
    # A busy machine may lose what the server says of that.
    relay = Relay(mutual.address, resets=True, at=NODE)
    world.refused(relay.address, "give --tls-cert and --tls-key", "--tls-ca", cert)
    for node, options in ((keyed, ()), (plain, ()), (plain, ("--insecure-tcp",)), (strict, ("--require-tls",)),
                          (certified, ("--tls-ca", cert)),
                          (mutual, ("--tls-ca", cert, "--tls-cert", cert, "--tls-key", key))):
        code, out, err = world.run("status", node.address, *options)
        assert code == 0 and "node 0" in out, (options, err)
    for options, text in ((("--insecure-tcp", "--require-tls"), "contradict"),
                          (("--insecure-tcp", "--tls-ca", cert), "contradict"),
                          (("--tls-cert", cert, "--tls-key", key), "needs --tls-ca")):
        code, _, err = world.run("status", keyed.address, *options)
        assert code == 2 and text in err and err.count("\n") == 1, (options, code, err)
    print("mismatches: each is told which option to give")


def ports_scene(world):
    """The only port of the kernel's choice is taken: that is not the port that was asked for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{port} {port}")
        for host in ("127.0.0.1:0", f"127.0.0.1:{port}"):
            done = subprocess.run([world.build / "pando", "memory", "--listen", host, "--size", "64M", "--secret-file",
                                   world.secret], text=True, capture_output=True, timeout=60, check=False)
            expected = "no port is free" if host.endswith(":0") else "port in use"
            assert done.returncode == 1 and expected in done.stderr and done.stderr.count("\n") == 1, done.stderr
    print("ports: none free and one in use are told apart")


def certificate(directory, name):
    lib.need("openssl", "openssl")
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                           "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{NODE},IP:127.0.0.1",
                           "-keyout", key, "-out", cert], capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    key.chmod(0o600)
    return cert, key


def main():
    build = lib.build_directory()
    enter_namespace()
    with lib.Processes() as processes:
        world = World(processes, build)
        cert, key = certificate(processes.directory, "right")
        other = certificate(processes.directory, "other")[0]
        plain_scene(world)
        default_scene(world)
        downgrade_scene(world)
        mismatch_scene(world, cert, key, other)
        ports_scene(world)


if __name__ == "__main__":
    main()
