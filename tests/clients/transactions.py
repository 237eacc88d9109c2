#!/usr/bin/env python3
"""MULTI without transactions: nothing between it and EXEC is run, however it arrives and however much it is, and EXEC
says why. Takes some ten seconds."""
import pathlib
import sys
import threading
import time

import lib

ABORT = ("EXECABORT Transaction discarded because of: this server has no transactions. None of its %d commands was "
         "run; send them without MULTI and EXEC")


MILLION, GROWTH_MAX = 1_000_000, 8 << 20


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def error_of(call, *words):
    try:
        return f"no error: {call(*words)!r}"
    except lib.Error as error:
        return str(error)


def one_by_one(call):
    expect("before", call("set", "a", "before"), "OK")
    expect("multi", call("multi"), "OK")
    for words in (["set", "a", "1"], ["incr", "n"], ["get", "a"], ["select", "3"], ["flushall"], ["config", "set",
                  "timeout", "7"], ["client", "reply", "off"], ["ri.create", "idx"], ["mset", "x", "1", "y", "2"]):
        expect(words, call(*words), "QUEUED")
    expect("exec", error_of(call, "exec"), ABORT % 9)
    expect("nothing was written", call("mget", "a", "n", "x", "y"), [b"before", None, None, None])
    expect("nothing was made", call("ri.list"), [])
    expect("nothing was set", call("config", "get", "timeout"), [b"timeout", b"0"])
    expect("out of it", call("set", "a", "after"), "OK")


def endings(call):
    expect("exec alone", error_of(call, "exec"), "ERR EXEC without MULTI")
    expect("discard alone", error_of(call, "discard"), "ERR DISCARD without MULTI")
    call("multi")
    expect("nested", error_of(call, "multi"), "ERR MULTI calls can not be nested")
    expect("watch inside", error_of(call, "watch", "a"), "ERR WATCH inside MULTI is not allowed")
    expect("queued", call("set", "a", "discarded"), "QUEUED")
    expect("discard", call("discard"), "OK")
    expect("not written", call("get", "a"), b"after")
    call("multi")
    expect("nothing to run", call("exec"), [])
    call("multi")
    call("set", "a", "reset")
    expect("reset", call("reset"), "RESET")
    expect("not written", call("get", "a"), b"after")
    expect("exec after reset", error_of(call, "exec"), "ERR EXEC without MULTI")
    expect("watch", error_of(call, "watch", "a")[:27], "ERR WATCH is not supported:")
    expect("unwatch", call("unwatch"), "OK")


def broken(call):
    previous = "EXECABORT Transaction discarded because of previous errors."
    for words, wanted in ((["nosuch", "x"], "ERR unknown command 'nosuch', with args beginning with: 'x' "),
                          (["get"], "ERR wrong number of arguments for 'get' command"),
                          (["client", "nosuch"], "ERR unknown subcommand 'nosuch'. Try CLIENT HELP."),
                          (["config", "set"], "ERR wrong number of arguments for 'config|set' command")):
        call("multi")
        expect("queued", call("set", "a", "broken"), "QUEUED")
        expect(words, error_of(call, *words), wanted)
        expect("still queued", call("set", "b", "broken"), "QUEUED")
        expect("exec", error_of(call, "exec"), previous)
        expect("not written", call("mget", "a", "b"), [b"after", None])
    call("multi")
    expect("exec with a word", error_of(call, "exec", "now"),
           "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command")
    expect("it is over", error_of(call, "exec"), "ERR EXEC without MULTI")


def in_one_piece(port):
    """As pipelines of redis-py and others send it."""
    call = lib.Connection(port)
    words = [["multi"]] + [["set", f"pipe{i}", "x"] for i in range(200)] + [["exec"], ["get", "pipe7"], ["dbsize"]]
    call.socket.sendall(b"".join(call.encode(*each) for each in words))
    expect("multi", call.read(), "OK")
    for _ in range(200):
        expect("queued", call.read(), "QUEUED")
    try:
        call.read()
        raise AssertionError("EXEC went through")
    except lib.Error as error:
        expect("exec", str(error), ABORT % 200)
    expect("not written", call.read(), None)
    expect("nothing was", call.read(), 1)


def long_value(port):
    """One that would be written into the pool while it arrives."""
    call = lib.Connection(port)
    size = 5 << 20
    expect("multi", call("multi"), "OK")
    call.socket.sendall(b"*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n$%d\r\n" % size)
    for _ in range(5):
        call.socket.sendall(b"v" * (1 << 20))
        time.sleep(0.05)  # so that it comes in pieces; nothing is waited for
    call.socket.sendall(b"\r\n")
    expect("queued", call.read(), "QUEUED")
    expect("exec", error_of(call, "exec"), ABORT % 1)
    expect("not written", call("exists", "long"), 0)
    call.socket.sendall(call.encode("multi") + call.encode("set", "long", b"w" * size) + call.encode("exec"))
    expect("multi", call.read(), "OK")
    expect("queued", call.read(), "QUEUED")
    try:
        call.read()
        raise AssertionError("EXEC went through")
    except lib.Error as error:
        expect("exec", str(error), ABORT % 1)
    expect("not written", call("exists", "long"), 0)
    expect("it can be", call("set", "long", b"x" * size), "OK")
    expect("it is", call("strlen", "long"), size)


def peak_bytes(server, reset=False):
    """The most memory that it has had since the last time with `reset`."""
    if reset:
        pathlib.Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    for line in pathlib.Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM")


def a_million(server):
    """As many commands of 1 KiB as nobody should keep, in one pipeline."""
    call = lib.Connection(server.port, timeout=120)
    piece, rounds = call.encode("set", "key", b"v" * 1000) * 1000, MILLION // 1000

    def send():
        for _ in range(rounds):
            call.socket.sendall(piece)

    expect("multi", call("multi"), "OK")
    before = peak_bytes(server, reset=True)
    sender = threading.Thread(target=send)
    sender.start()
    queued = b"+QUEUED\r\n" * 1000
    for _ in range(rounds):
        expect("queued", call.exactly(len(queued)) == queued, True)
    sender.join()
    grown = peak_bytes(server) - before
    expect("exec", error_of(call, "exec"), ABORT % MILLION)
    expect("not written", call("exists", "key"), 0)
    print(f"  {MILLION} commands of {len(piece) // 1000} bytes in one transaction: {grown >> 10} KiB more memory")
    expect("little memory", grown < GROWTH_MAX, True)
    call.close()


def seen_by_others(port):
    call, other = lib.Connection(port), lib.Connection(port)
    number = call("client", "id")
    call("multi")
    call("get", "a")
    call("get", "b")
    line = other("client", "list", "id", number).decode()
    expect("in the list", (" flags=x " in line, " multi=2 " in line), (True, True))
    call.close()


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "256M", "--secret-file",
                                        processes.secret())
        servers = [("embedded", processes.start_pando(build, "--threads", "2")),
                   ("overlapped", processes.start_pando(build, "--secret-file", processes.directory / "secret",
                                                        pool=f"tcp:{memory.address}", name="far"))]
        for kind, server in servers:
            call = lib.Connection(server.port)
            one_by_one(call)
            endings(call)
            broken(call)
            in_one_piece(server.port)
            long_value(server.port)
            seen_by_others(server.port)
            a_million(server)
            print(f"{kind}: ok")
    print("transactions: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
