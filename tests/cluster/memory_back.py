#!/usr/bin/env python3
"""A pool of 256 MiB is filled with values of one size until it is full, and emptied, then with another size, again and
again, with both engines, embedded and over tcp. It holds at least 200 MiB of long values when it is fresh and after any of
that, and an empty one is of use again when the grace period is over.

memory_back.py BUILD
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

SIZES = (100_000, 1_000, 30_000, 100_000, 700_000, 100_000)
LEAST_BYTES = {100_000: 200 << 20}  # of others 180 MiB
BATCH_BYTES = 500_000
GRACE_S = 2  # lease and a second
AGAIN_S = 10  # and what a busy machine takes


def fill(call, size, room):
    """How many values fit."""
    count, value = 0, b"v" * size
    batch = max(1, BATCH_BYTES // size)
    while True:
        call.socket.sendall(b"".join(call.encode("set", f"{size}-{count + i}", value) for i in range(batch)))
        replies = [lib.parse_some(call.read_raw())[0] for _ in range(batch)]
        stored = sum(reply == "OK" for reply in replies)
        count += stored
        strange = [reply for reply in replies if reply != "OK" and not str(reply).startswith("OOM")]
        assert not strange, strange[0]
        if stored < batch:
            return count
        assert count * size < room, f"{count} values of {size} bytes do not fit into the pool"


def await_room(call, size):
    """Until a value of that size can be stored again; how long that took."""
    begin = time.monotonic()
    while True:
        try:
            call("set", "probe", b"v" * size)
            call("del", "probe")
            return time.monotonic() - begin
        except lib.Error as error:
            assert str(error).startswith("OOM"), error
            assert time.monotonic() - begin < GRACE_S + AGAIN_S, f"still full after {GRACE_S + AGAIN_S} s: {error}"
            time.sleep(0.1)


def cycle(name, port):
    call, held = lib.Connection(port, timeout=120), []
    for size in SIZES:
        await_room(call, size)
        time.sleep(GRACE_S + 1)  # not only one of them: all that was freed
        count = fill(call, size, 256 << 20)
        held.append(f"{count * size / 2**20:.0f} MiB of {size}")
        assert call("get", f"{size}-0") == b"v" * size
        least = LEAST_BYTES.get(size, 180 << 20)
        assert count * size >= least, f"{name}: {count} values of {size} bytes fit, {least // size} should; {held}"
        assert call("flushdb") == "OK"
        assert call("dbsize") == 0
    print(f"{name}: {', '.join(held)}")


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        for engine in ("sherman", "dex"):
            server = processes.start_pando(build, "--engine", engine, pool="embedded:256M", name=f"embedded-{engine}")
            cycle(f"embedded, {engine}", server.port)
            server.terminate()
            server.wait()
        secret = processes.secret()
        for engine in ("sherman", "dex"):
            memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "256M", "--secret-file", secret,
                                            name=f"memory-{engine}")
            server = processes.start_pando(build, "--engine", engine, "--secret-file", secret, pool=f"tcp:{memory.address}",
                                           name=f"tcp-{engine}")
            cycle(f"tcp, {engine}", server.port)
            for child in (server, memory):
                child.terminate()
                child.wait()


if __name__ == "__main__":
    main()
