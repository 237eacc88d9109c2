#!/usr/bin/env python3
"""A server that starts before its memory nodes waits for them, says so once, and serves when they are there.
It does not wait for ever, nor for what will not pass (a wrong secret), and ends in order while it waits.

serve_waits.py BUILD
"""
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

WAITS = "waits up to"


def begin(processes, build, name, pool, *options):
    return processes.start([build / "pando", "serve", "--pool", pool, "--listen", "127.0.0.1:0", *options], name)


def said(child):
    return child.log.read_text(errors="replace")


def memory(processes, build, node, port, secret):
    return processes.start_memory(build, "--listen", f"127.0.0.1:{port}", "--size", "128M", "--node", node,
                                  "--secret-file", secret, name=f"memory{node}-{port}")


def comes_later(processes, build, secret):
    """Two nodes, one after the other."""
    ports = [lib.free_port(), lib.free_port()]
    server = begin(processes, build, "later", f"tcp:127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", "--secret-file", secret)
    line = processes.wait_for(server, WAITS)
    assert "60 s" in line and f"127.0.0.1:{ports[0]}" in line and "memory node 0" in line, line
    nodes = [memory(processes, build, 0, ports[0], secret)]
    assert server.poll() is None, said(server)
    nodes.append(memory(processes, build, 1, ports[1], secret))
    ready = processes.wait_for(server, " ready at ", 30)
    call = lib.Connection(int(ready.split(" ready at ")[1].split()[0].rsplit(":", 1)[1]))
    assert call("set", "greeting", "hello") == "OK"
    assert call("get", "greeting") == b"hello"
    assert said(server).count(WAITS) == 1, said(server)
    call.close()
    for child in (server, *nodes):
        child.terminate()
        assert child.wait(20) == 0, said(child)


def is_bounded(processes, build, secret):
    begun = time.monotonic()
    server = begin(processes, build, "bounded", f"tcp:127.0.0.1:{lib.free_port()}", "--secret-file", secret, "--pool-wait",
                   "500ms")
    assert server.wait(30) == 1, said(server)
    assert time.monotonic() - begun >= 0.5
    assert said(server).count("memory node 0") == 2, said(server)  # waits for it; gave up on it
    server = begin(processes, build, "at-once", f"tcp:127.0.0.1:{lib.free_port()}", "--secret-file", secret, "--pool-wait", "0")
    assert server.wait(30) == 1 and WAITS not in said(server), said(server)
    server = begin(processes, build, "no-shm", f"shm:test-{server.pid}-nobody", "--pool-wait", "200ms")
    assert server.wait(30) == 1 and WAITS in said(server), said(server)


def no_wait_for_a_wrong_secret(processes, build, secret):
    port = lib.free_port()
    node = memory(processes, build, 0, port, secret)
    begun = time.monotonic()
    server = begin(processes, build, "denied", f"tcp:127.0.0.1:{port}", "--secret-file", processes.secret("wrong"))
    assert server.wait(40) == 1 and WAITS not in said(server), said(server)
    assert time.monotonic() - begun < 40
    node.terminate()
    assert node.wait(20) == 0


def ends_while_it_waits(processes, build, secret):
    for number in (signal.SIGTERM, signal.SIGINT):
        server = begin(processes, build, f"ends-{number}", f"tcp:127.0.0.1:{lib.free_port()}", "--secret-file", secret)
        processes.wait_for(server, WAITS)
        server.send_signal(number)
        assert server.wait(20) == 0, said(server)


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        secret = processes.secret()
        for scene in (comes_later, is_bounded, no_wait_for_a_wrong_secret, ends_while_it_waits):
            scene(processes, build, secret)
            print(f"{scene.__name__}: ok")


if __name__ == "__main__":
    main()
