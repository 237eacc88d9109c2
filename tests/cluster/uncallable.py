#!/usr/bin/env python3
"""The first server of a pool cannot be called by others (--peer-listen none): it owns the keys, and
a second one that can or cannot be called serves the same data all the same, as does a command that checks the tables.

uncallable.py BUILD
"""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS, TURNS = 300, 5


def serve(processes, build, pool, peer, name):
    return processes.start_pando(build, "--engine", "dex", "--peer-listen", peer, *pool[1:], pool=pool[0], name=name)


def together(build, pool, first, second, keys):
    """Each reads what the other wrote, in turn."""
    calls = [lib.Connection(server.port, timeout=60) for server in (first, second)]
    for number in range(KEYS):
        assert calls[1]("get", f"key{number}") == b"%d" % number, number
    for turn in range(TURNS):
        writer, reader = calls[turn % 2], calls[1 - turn % 2]
        for number in range(0, KEYS, keys):
            writer("set", f"key{number}", turn)
        for number in range(0, KEYS, keys):
            assert reader("get", f"key{number}") == b"%d" % turn, (turn, number)
    verify = subprocess.run([build / "pando", "table", "verify", "--pool", pool[0], *pool[1:]], timeout=60, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert verify.returncode == 0, verify.stdout


def scene(processes, build, first_peer, second_peer, keys):
    secret = processes.secret(f"secret-{first_peer}-{second_peer}".replace(":", "-"))
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret)
    pool = (f"tcp:{memory.address}", "--secret-file", secret)
    first = serve(processes, build, pool, first_peer, "first")
    call = lib.Connection(first.port, timeout=60)
    for number in range(KEYS):
        call("set", f"key{number}", number)
    second = serve(processes, build, pool, second_peer, "second")
    together(build, pool, first, second, keys)
    for child in (second, first, memory):
        child.terminate()
        assert child.wait(60) == 0
    print(f"--peer-listen {first_peer} and {second_peer}: ok")


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        scene(processes, build, "none", f"127.0.0.1:{lib.free_port()}", 1)
        scene(processes, build, "none", "none", 100)  # keys change hands with every turn


if __name__ == "__main__":
    main()
