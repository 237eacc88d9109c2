#!/usr/bin/env python3
"""What is too large is answered before the connection ends, also while its sender goes on sending; names with a
zero byte; indexes that go while they are used, and FLUSHALL beside them. Takes five seconds."""
import socket
import ssl
import subprocess
import sys
import threading
import time

import lib


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def error_of(call, *words):
    try:
        return f"no error: {call(*words)!r}"
    except lib.Error as error:
        return str(error)


def send_all_then_read(port, head, size, wrap=None):
    """As most clients do: the whole request goes out first. What came back, and whether the end was clean."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer = wrap(peer) if wrap else peer
        peer.sendall(head)
        piece = b"v" * (1 << 20)
        sent = 0
        while sent < size:
            peer.sendall(piece[:size - sent])
            sent += min(len(piece), size - sent)
        said = b""
        try:
            while not said.endswith(b"\r\n"):
                more = peer.recv(65536)
                if not more:
                    break
                said += more
            if not wrap:
                expect("the end", peer.recv(10), b"")
        except ConnectionResetError:
            return said, "reset"
        return said, "closed"


def too_large(port):
    cases = [
        ("a value", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % ((512 << 20) + 1), 600 << 20,
         b"-ERR Protocol error: invalid bulk length\r\n"),
        ("a request", b"*3\r\n$4\r\nMSET\r\n$1\r\nk\r\n$%d\r\n" % (100 << 20), 100 << 20,
         b"-ERR Protocol error: request longer than 64mb\r\n"),
        ("a line", b"SET k ", 8 << 20, b"-ERR Protocol error: too big inline request\r\n"),
        ("words", b"*2000000\r\n", 8 << 20, b"-ERR Protocol error: invalid multibulk length\r\n"),
    ]
    for what, head, size, wanted in cases:
        for _ in range(5 if size < 50 << 20 else 1):
            expect(what, send_all_then_read(port, head, size), (wanted, "closed"))
    expect("others are served", lib.Connection(port)("ping"), "PONG")


def over_tls(processes, build):
    cert, key = processes.directory / "cert.pem", processes.directory / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
    server = processes.start_pando(build, "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", cert, "--serve-tls-key", key,
                                   name="tls")
    port = int(processes.wait_for(server, " ready at ").split("tls:")[1].rsplit(":", 1)[1])
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False
    said, _ = send_all_then_read(port, b"*2000000\r\n", 8 << 20, context.wrap_socket)
    expect("over TLS", said, b"-ERR Protocol error: invalid multibulk length\r\n")


def bounded(processes, build):
    """A stranger is not listened to for ever, and the server ends although somebody goes on sending."""
    server = processes.start_pando(build, "--password-file", processes.secret("pw", "correct horse battery staple"),
                                   name="strangers")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as peer:
        sent = 0
        try:
            peer.sendall(b"*99\r\n")
            while sent < 64 << 20:
                sent += peer.send(b"x" * 65536)
        except (ConnectionResetError, BrokenPipeError):
            pass
        expect("it was cut off", sent < 64 << 20, True)
    call = lib.Connection(server.port)
    call("auth", "correct horse battery staple")
    for _ in range(3):
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.sendall(b"*x\r\n")
    call.socket.sendall(b"*x\r\n")
    begin = time.monotonic()
    server.terminate()
    expect("it ends", server.wait(timeout=20), 0)
    expect("at once", time.monotonic() - begin < 10, True)


def zero_bytes(call):
    for name in (b"GET\0", b"get\0\0\0", b"\0", b"SET\0\0\0\0\0\0\0\0\0\0\0\0\0"):
        expect(name, error_of(call, name, "k")[:21], "ERR unknown command '")
    expect("a subcommand", error_of(call, "client", b"id\0")[:23], "ERR unknown subcommand ")


def dropped(port):
    """Somebody reads and writes an index while another drops it: he is told, and not that keys are missing."""
    call = lib.Connection(port)
    said = set()
    going = threading.Event()

    def use(words):
        mine = lib.Connection(port)
        try:
            while not going.is_set():
                mine.socket.sendall(mine.encode(*words) * 50)
                for _ in range(50):
                    try:
                        mine.read()
                    except lib.Error as error:
                        said.add(str(error))
        except (OSError, EOFError) as error:
            said.add(repr(error))

    words = (["ri.get", "idx", "k500"], ["ri.set", "idx", "k500", "v"], ["ri.range", "idx", "", ""], ["ri.len", "idx"],
             ["ri.mget", "idx", "k1", "k2"], ["ri.exists", "idx", "k1"], ["ri.mset", "idx", "k1", "v", "k2", "v"])
    users = [threading.Thread(target=use, args=(each,)) for each in words]
    call("ri.create", "idx")
    for user in users:
        user.start()
    for _ in range(20):
        error_of(call, "ri.create", "idx")
        call.socket.sendall(b"".join(call.encode("ri.set", "idx", f"k{i}", "v") for i in range(1000)))
        for _ in range(1000):
            call.read()
        expect("drop", call("ri.drop", "idx"), 1)
    going.set()
    for user in users:
        user.join()
    allowed = {"ERR no such index 'idx': it was dropped, or never made; make it with RI.CREATE",
               "ERR index 'idx' was dropped while the command ran"}
    expect("what was said of it", said - allowed, set())
    expect("it was said", "ERR no such index 'idx': it was dropped, or never made; make it with RI.CREATE" in said, True)


def flushall(call):
    """The indexes stay: they are made and dropped by name."""
    call("ri.create", "kept")
    call("ri.set", "kept", "a", "1")
    call("set", "k", "v")
    expect("flushall", call("flushall"), "OK")
    expect("no key", call("dbsize"), 0)
    expect("the index", (call("ri.list"), call("ri.get", "kept", "a")), ([b"kept"], b"1"))
    docs = call("command", "docs", "flushall")[1]
    expect("it says so", b"indexes stay" in docs[docs.index(b"summary") + 1], True)
    call("ri.drop", "kept")


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        server = processes.start_pando(build, "--threads", "2")
        too_large(server.port)
        over_tls(processes, build)
        bounded(processes, build)
        call = lib.Connection(server.port)
        zero_bytes(call)
        dropped(server.port)
        flushall(call)
    print("oversized: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
