#!/usr/bin/env python3
"""The first server of a pool cannot be called by others (--peer-listen none): it owns the keys, and
a second one that can or cannot be called serves the same data all the same, as does a command that checks the tables;
so do four of which two cannot be called. It is the same on shm. So it does if the first one can be called at a place where nobody answers, and if
it is not told where to be called and finds no free port, which it says. One that shall be called at a port that is taken
says so and ends, and nobody else is hurt.

uncallable.py BUILD
"""
import contextlib
import fcntl
import os
import pathlib
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS, TURNS = 300, 5
SAID_S = 10  # a part of a lease
TWICE_S = 10  # to find out a second time that nobody answers
INSIDE = "PANDO_UNCALLABLE_INSIDE"
PORTS = (40_000, 40_099)  # all that a network of its own gives out
SAID = "cannot call a member"
WARN = ("--log-level", "warn")
OTHER_PORTS = iter(range(30_000, 30_100))


def serve(processes, build, pool, peer, name, level=WARN):
    """Where it is called is its own choice if no peer is given."""
    called = () if peer is None else ("--peer-listen", peer)
    return processes.start_pando(build, "--engine", "dex", *(level or ()), *called, *pool[1:], pool=pool[0], name=name)


def together(build, pool, servers, keys):
    """Each reads what another wrote, in turn."""
    calls = [lib.Connection(server.port, timeout=60) for server in servers]
    for call in calls[1:]:
        for number in range(KEYS):
            assert call("get", f"key{number}") == b"%d" % number, number
    for turn in range(TURNS * (len(servers) - 1)):
        writer = turn % len(calls)
        for number in range(0, KEYS, keys):
            calls[writer]("set", f"key{number}", turn)
        for reader in range(1, len(calls)):
            for number in range(0, KEYS, keys):
                assert calls[writer - reader]("get", f"key{number}") == b"%d" % turn, (turn, number)
    verify = subprocess.run([build / "pando", "table", "verify", "--pool", pool[0], *pool[1:]], timeout=60, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert verify.returncode == 0, verify.stdout


def said(server, place):
    """Lines of its log that say that a member at a place cannot be called: one for each member."""
    lines = [line for line in server.log.read_text().splitlines() if SAID in line and line.endswith(f" at={place}")]
    members = {line.split(" member=")[1].split()[0] for line in lines if " table=" in line}
    assert len(members) == len(lines), lines  # however often it was asked for its keys
    return lines


def await_said(server, place):
    """When it has seen that the other one lives."""
    end = time.monotonic() + SAID_S
    while not (lines := said(server, place)) and time.monotonic() < end:
        time.sleep(0.1)
    assert lines, (place, server.log.read_text())
    return lines


def scene(processes, build, peers, keys):
    secret = processes.secret("secret-" + "-".join(peers).replace(":", "-"))
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret)
    serve_scene(processes, build, (f"tcp:{memory.address}", "--secret-file", secret), memory, peers, keys)
    print(f"--peer-listen {' and '.join(peers)}: ok")


def shm_scene(processes, build, peers, keys):
    window = pathlib.Path(f"/dev/shm/pando-uncallable-{os.getpid()}")
    try:
        memory = processes.start_memory(build, "--shm", window, "--size", "128M")
        serve_scene(processes, build, (f"shm:{window}",), memory, peers, keys)
    finally:
        window.unlink(missing_ok=True)
    print(f"shm, --peer-listen {' and '.join(peer or 'not given' for peer in peers)}: ok")


def serve_scene(processes, build, pool, memory, peers, keys):
    servers = [serve(processes, build, pool, peers[0], "first")]
    call = lib.Connection(servers[0].port, timeout=60)
    for number in range(KEYS):
        call("set", f"key{number}", number)
    servers += [serve(processes, build, pool, peer, f"server-{i}") for i, peer in enumerate(peers[1:])]
    together(build, pool, servers, keys)
    await_said(servers[1], "nowhere")
    for number, server in enumerate(servers):
        assert len(said(server, "nowhere")) <= (*peers[:number], *peers[number + 1:]).count("none")
    for child in (*servers[::-1], memory):
        child.terminate()
        assert child.wait(60) == 0


def silent_place(processes, build):
    """The first owner says where it can be called, and there nobody answers, as if packets were dropped on the way.
    To learn that takes five seconds, once, and is long enough to ask for the keys in another way."""
    secret = processes.secret("secret-silent")
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret)
    pool = (f"tcp:{memory.address}", "--secret-file", secret)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        advertised = pool + ("--peer-advertise", place)
        first = serve(processes, build, advertised, f"127.0.0.1:{lib.free_port()}", "first-silent")
        call = lib.Connection(first.port, timeout=60)
        for number in range(KEYS):
            call("set", f"key{number}", number)
        begin = time.monotonic()
        # Without an option: what concerns an operator is seen.
        second = serve(processes, build, pool, f"127.0.0.1:{lib.free_port()}", "second-silent", None)
        took = time.monotonic() - begin  # it asks for a key of the table of cursors
        assert took < TWICE_S, f"a server started for {took:.1f} s beside an owner that does not answer"
        together(build, pool, (first, second), 100)
        lines = await_said(second, place)
        assert len(lines) == 1 and "level=error" in lines[0], (place, second.log.read_text())
        print(lines[0])
        print(f"--peer-advertise of a silent place: ok, the second server started in {took:.1f} s")
        for child in (second, first, memory):
            child.terminate()
            assert child.wait(60) == 0


def taken_port(processes, build):
    """One line with what, to what, and what to do; the owner of the port goes on."""
    secret = processes.secret("secret-taken")
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret)
    pool = (f"tcp:{memory.address}", "--secret-file", secret)
    peer = f"127.0.0.1:{lib.free_port()}"
    first = serve(processes, build, pool, peer, "first-taken")
    call = lib.Connection(first.port, timeout=60)
    assert call("set", "key", "value") == "OK"
    done = subprocess.run([build / "pando", "serve", "--pool", *pool, "--listen", "127.0.0.1:0", "--peer-listen", peer],
                          capture_output=True, text=True, timeout=60)
    said = done.stderr.strip()
    assert done.returncode == 1 and len(said.splitlines()) == 1, (done.returncode, said)
    assert peer in said and "port in use" in said, said
    print(said)
    assert call("get", "key") == b"value"
    for child in (first, memory):
        child.terminate()
        assert child.wait(60) == 0


def free_port():
    """Of those that the network does not give out."""
    return next(OTHER_PORTS)


def take_all_ports(stack):
    """A connection from each port that the network gives out: nobody can listen there, and connections to elsewhere can
    be made from them."""
    pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{PORTS[0]} {PORTS[1]}")
    listener = stack.enter_context(socket.create_server(("127.0.0.1", free_port()), backlog=200))
    for _ in range(PORTS[0], PORTS[1] + 1):
        one = stack.enter_context(socket.create_connection(listener.getsockname()))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no trace when it ends
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", 0))
        raise AssertionError("there is a free port")


def start_without_ports(processes, build, pool, name):
    child = processes.start([build / "pando", "serve", "--pool", *pool, "--engine", "dex", "--log-level", "info", "--listen",
                             f"127.0.0.1:{free_port()}"], name)
    child.port = int(processes.wait_for(child, " ready at ", 60).split(" ready at ")[1].split()[0].rstrip(",").rsplit(":", 1)[1])
    return child


def no_free_port(processes, build):
    """In a network of its own: a server that nobody told where to be called says that it cannot be."""
    secret = processes.secret("secret-no-port")
    memory = processes.start_memory(build, "--listen", f"127.0.0.1:{free_port()}", "--size", "128M", "--secret-file", secret)
    pool = (f"tcp:{memory.address}", "--secret-file", secret)
    with contextlib.ExitStack() as stack:
        take_all_ports(stack)
        first = start_without_ports(processes, build, pool, "first-no-port")
        said = [line for line in first.log.read_text().splitlines() if "other members cannot call this one" in line]
        assert len(said) == 1 and "no port is free" in said[0], first.log.read_text()
        print(said[0])
        call = lib.Connection(first.port, timeout=60)
        for number in range(KEYS):
            call("set", f"key{number}", number)
    second = start_without_ports(processes, build, pool, "second-no-port")
    assert "cannot call this one" not in second.log.read_text(), second.log.read_text()
    together(build, pool, (first, second), 1)
    print("no free port: ok")
    for child in (second, first, memory):
        child.terminate()
        assert child.wait(60) == 0


def inside(build):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running
    with lib.Processes() as processes:
        no_free_port(processes, build)


def in_network_of_its_own(build):
    """False: that cannot be had here."""
    argv = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net"]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode != 0:
        return False
    done = subprocess.run([*argv, sys.executable, __file__, build], check=False, env={**os.environ, INSIDE: "1"})
    assert done.returncode == 0, "the first server without a free port"
    return True


def main():
    build = lib.build_directory()
    if os.environ.get(INSIDE):
        inside(build)
        return
    without_port = in_network_of_its_own(build)
    with lib.Processes() as processes:
        scene(processes, build, ("none", f"127.0.0.1:{lib.free_port()}"), 1)
        scene(processes, build, ("none", "none"), 100)  # keys change hands with every turn
        scene(processes, build, ("none", f"127.0.0.1:{lib.free_port()}", "none", f"127.0.0.1:{lib.free_port()}"), 100)
        shm_scene(processes, build, ("none", None), 1)
        shm_scene(processes, build, ("none", "none"), 100)
        silent_place(processes, build)
        taken_port(processes, build)
    if not without_port:
        lib.skip("no right to a network of its own (unshare --net) for the first server without a free port; the rest passed")


if __name__ == "__main__":
    main()
