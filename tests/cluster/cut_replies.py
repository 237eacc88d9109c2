#!/usr/bin/env python3
"""Long values that cannot be read to their end because a memory node is away: a client that has asked for many of
them at once gets each value whole, or an error, or the end of its connection; never bytes of another reply.

cut_replies.py BUILD
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

SIZES = (300_000, 700_000, 1_000_000, 3_000_000)  # of two pieces and more; the last is sent as it is read
VALUES, ROUNDS = 24, 3


def value(i):
    unit = b"%06d" % i
    return unit * (SIZES[i % len(SIZES)] // len(unit))


def replies(call, commands):
    """What is answered, until the connection ends."""
    call.socket.sendall(b"".join(call.encode(*words) for words in commands))
    for _ in commands:
        try:
            yield lib.parse_some(call.read_raw())[0]
        except (OSError, EOFError):
            return


def ask(server):
    """How many values were whole, and how many were refused."""
    call = lib.Connection(server.port, timeout=120)
    whole = refused = 0
    for i, reply in enumerate(replies(call, [("get", f"key{i}") for i in range(VALUES)])):
        if isinstance(reply, lib.Error):
            refused += 1
        elif reply == value(i):
            whole += 1
        else:
            raise AssertionError(f"GET key{i}: {len(reply)} bytes that are not its value, {reply[:20]}")
    call.close()
    return whole, refused


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        secret = processes.secret()
        nodes = [processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "256M", "--node", i,
                                        "--secret-file", secret, name=f"memory{i}") for i in range(3)]
        server = processes.start_pando(build, "--secret-file", secret, "--engine", "dex",
                                       pool="tcp:" + ",".join(node.address for node in nodes))
        call = lib.Connection(server.port, timeout=120)
        for i in range(VALUES):
            assert call("set", f"key{i}", value(i)) == "OK"
        assert ask(server) == (VALUES, 0), "not all is there"
        nodes[2].kill()
        nodes[2].wait()
        for _ in range(ROUNDS):
            whole, refused = ask(server)
            print(f"{whole} of {VALUES} values whole, {refused} refused", flush=True)
            assert whole < VALUES, "no value needs the node that is away"
    return 0


if __name__ == "__main__":
    sys.exit(main())
