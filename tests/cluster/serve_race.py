#!/usr/bin/env python3
"""Two servers, two threads each, on one pool over TCP: INCRs, APPENDs and SET NX of both race; nothing is
lost and nothing counted twice. A pipeline overlaps and keeps its order."""
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

CLIENTS, ROUNDS, BATCH = 8, 100, 20


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def race(number, port, won, failures):
    try:
        call = lib.Connection(port, timeout=60)
        for round_ in range(ROUNDS):
            batch = b"".join(call.encode("incr", "sum") + call.encode("incr", f"sum{i % 3}") for i in range(BATCH))
            batch += call.encode("append", "log", f"{number}.") + call.encode("setnx", f"race{round_}", number)
            batch += call.encode("set", f"lock{round_}", number, "nx", "get")
            call.socket.sendall(batch)
            seen = [call.read() for _ in range(2 * BATCH)]
            sums = seen[::2]
            assert sums == sorted(sums) and len(set(sums)) == BATCH, sums
            call.read()
            won[number] += call.read()
            call.read()
    except Exception as error:  # noqa: BLE001
        failures.append(f"client {number}: {error!r}")


def racing(servers):
    won, failures = [0] * CLIENTS, []
    threads = [threading.Thread(target=race, args=(i, servers[i % 2].port, won, failures)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise AssertionError("; ".join(failures))
    calls = [lib.Connection(server.port) for server in servers]
    for call in calls:
        expect("sum", call("get", "sum"), b"%d" % (CLIENTS * ROUNDS * BATCH))
        parts = [int(call("get", f"sum{i}")) for i in range(3)]
        expect("sums", sum(parts), CLIENTS * ROUNDS * BATCH)
        log = call("get", "log").decode()
        for i in range(CLIENTS):
            expect(f"appends of {i}", log.count(f"{i}."), ROUNDS)
    expect("each race was won once", sum(won), ROUNDS)


def sharing(servers):
    """What one server does the other sees at once; cursors of SCAN are good at both."""
    a, b = [lib.Connection(server.port) for server in servers]
    a("flushall")
    for i in range(300):
        a("set", f"key{i:03}", i)
    cursor, found, turn = b"0", [], 0
    while True:
        cursor, some = (a, b)[turn % 2]("scan", cursor, "count", "7")
        found += some
        turn += 1
        if cursor == b"0":
            break
    expect("a scan over two servers", found, [b"key%03d" % i for i in range(300)])
    a("set", "short", "1", "px", "1")
    expect("expiry", b("pttl", "short") < 2, True)
    expect("rename", a("rename", "key000", "renamed"), "OK")
    expect("renamed", b("get", "renamed"), b"0")
    expect("msetnx", b("msetnx", "renamed", "x", "other", "y"), 0)
    expect("nothing of it", a("exists", "other"), 0)
    a("select", "3")
    a("set", "there", "3")
    b("select", "3")
    expect("other database", b("get", "there"), b"3")
    expect("index", a("ri.create", "shared"), "OK")
    expect("index", b("ri.set", "shared", "k", "v"), "OK")
    expect("index", a("ri.get", "shared", "k"), b"v")
    expect("drop", a("ri.drop", "shared"), 1)
    try:
        b("ri.get", "shared", "k")
        raise AssertionError("a dropped index was read")
    except lib.Error as error:
        expect("dropped elsewhere", str(error), "ERR no such index 'shared': it was dropped, or never made; make it with RI.CREATE")
    expect("a new one", b("ri.create", "shared"), "OK")
    expect("empty", a("ri.get", "shared", "k"), None)
    expect("a value", b("ri.set", "shared", "k", "new"), "OK")
    expect("the new value", a("ri.get", "shared", "k"), b"new")


def ordering(servers):
    """Of one connection: same keys in order, replies in order, whatever overlaps."""
    call = lib.Connection(servers[0].port)
    call("flushdb")
    words = []
    for i in range(2000):
        words += [("set", f"o{i % 50}", i), ("get", f"o{i % 50}"), ("incr", "n"), ("append", f"s{i % 3}", "x"),
                  ("exists", f"o{i % 50}", "nosuch"), ("mget", f"o{i % 50}", "n")]
    call.socket.sendall(b"".join(call.encode(*word) for word in words))
    for i in range(2000):
        expect("set", call.read(), "OK")
        expect("get", call.read(), b"%d" % i)
        expect("incr", call.read(), i + 1)
        expect("append", call.read(), i // 3 + 1)
        expect("exists", call.read(), 1)
        expect("mget", call.read(), [b"%d" % i, b"%d" % (i + 1)])


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        secret = processes.secret()
        memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "512M", "--secret-file", secret)
        servers = [processes.start_pando(build, "--threads", "2", "--secret-file", secret,
                                         pool=f"tcp:{memory.address}", name=f"server{i}") for i in range(2)]
        racing(servers)
        sharing(servers)
        ordering(servers)
        for server in servers:
            server.terminate()
            expect("SIGTERM", server.wait(20), 0)
    print(f"serve_race: {CLIENTS * ROUNDS * BATCH} INCRs of two servers, exact; ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
