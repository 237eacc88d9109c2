#!/usr/bin/env python3
"""A bit that flips in the middle of a long value, of both engines: commands that need the damaged
segment say so, soon and more than once, and change nothing; others go on, verify names the damage,
and when the key is deleted all is well. A long value whose time has come is none to any command.

damaged_long.py BUILD
"""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402
from damage import end, flip, pando  # noqa: E402

MIB = 1 << 20
SIZE, AT = 20 * MIB, 10 * MIB  # so long that whoever changes it writes another beside it
ANSWER_S = 10


def said(port, *words):
    """A reply, an error as text, or what came before the end of the connection; in time."""
    call = lib.Connection(port, timeout=60)
    begin = time.monotonic()
    try:
        reply = call(*words)
    except lib.Error as error:
        reply = str(error)
    except EOFError:
        reply = EOFError
    took = time.monotonic() - begin
    assert took < ANSWER_S, f"{words[0]} was answered after {took:.1f} s"
    call.close()
    return reply


def expect(what, found, wanted):
    shown = found if not isinstance(found, bytes) else f"{len(found)} bytes"
    assert found == wanted, f"{what}: {shown}"


def corrupt(port, *words):
    for _ in range(2):
        reply = said(port, *words)
        assert isinstance(reply, str) and "corrupt" in reply.lower(), f"{words[0]}: {reply!r:.80}"


def check_damaged(port, body):
    reply = said(port, "get", "big")
    assert reply is EOFError or "corrupt" in str(reply)[:200].lower(), "GET gave a whole value"
    expect("GETRANGE before it", said(port, "getrange", "big", 0, MIB), body[:MIB + 1])
    expect("GETRANGE behind it", said(port, "getrange", "big", SIZE - MIB, -1), body[-MIB:])
    corrupt(port, "getrange", "big", AT, AT + 10)
    corrupt(port, "append", "big", "x")
    corrupt(port, "setrange", "big", 5, "x")
    corrupt(port, "expire", "big", 1000)
    corrupt(port, "rename", "big", "bigger")
    corrupt(port, "copy", "big", "copied")
    expect("STRLEN", said(port, "strlen", "big"), SIZE)
    expect("TTL", said(port, "ttl", "big"), -1)
    expect("EXISTS", said(port, "exists", "big", "bigger", "copied"), 1)
    expect("other keys", said(port, "get", "other") == body[::-1], True)
    expect("DBSIZE", said(port, "dbsize"), 2)


def check_expired(port):
    """INCR, GETDEL and MSETNX of long values whose time has come, perhaps before the sweep came."""
    keys = [f"soon{i}" for i in range(3)]
    for key in keys:
        expect("SET", said(port, "set", key, b"x" * (2 * MIB), "px", 1), "OK")
    time.sleep(0.002)
    expect("INCR", said(port, "incr", keys[0]), 1)
    expect("GETDEL", said(port, "getdel", keys[1]), None)
    expect("MSETNX", said(port, "msetnx", keys[2], "1"), 1)
    expect("DEL", said(port, "del", *keys), 2)


def steps(processes, build, engine, name):
    uri, needle = f"shm:{name}", os.urandom(16)
    node = processes.start_memory(build, "--shm", name, "--size", "256M", name=f"memory-{engine}")
    server = processes.start_pando(build, "--engine", engine, pool=uri, name=engine)
    body = bytes(AT) + needle + bytes(SIZE - AT - len(needle))
    expect("SET", said(server.port, "set", "big", body), "OK")
    expect("SET", said(server.port, "set", "other", body[::-1]), "OK")
    check_expired(server.port)
    assert flip(f"/dev/shm/pando-{name}", needle) == 1
    check_damaged(server.port, body)
    status, text, _ = pando(build, uri, "table", "verify", "db0")
    assert status != 0 and "0x" in text, (status, text)
    print(f"{engine}: verify: {text.strip()}", flush=True)
    expect("DEL", said(server.port, "del", "big"), 1)
    expect("SET again", said(server.port, "set", "big", body), "OK")
    expect("GET", said(server.port, "get", "big") == body, True)
    status, text, _ = pando(build, uri, "table", "verify", "db0")
    assert status == 0, text
    end(server)
    end(node)


def main():
    build = lib.build_directory()
    name = f"test-{os.getpid()}-long"
    with lib.Processes() as processes:
        for engine in ("dex", "sherman"):
            try:
                steps(processes, build, engine, name)
            finally:
                for path in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
                    path.unlink()
    print("damaged_long: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
