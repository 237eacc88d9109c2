#!/usr/bin/env python3
"""--durability: what was acknowledged by a server that is killed is there with `pool`; with `none` it is there after
an orderly end, and gone after a kill, as the manual says.

serve_durability.py BUILD
"""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

KEYS = 500


def begin(processes, build, memory, secret, durability):
    return processes.start_pando(build, "--secret-file", secret, "--engine", "dex", "--durability", durability,
                                 pool=f"tcp:{memory.address}")


def present(port, keys):
    call = lib.Connection(port, timeout=30)
    return sum(call("get", key) is not None for key in keys)


def run(build, durability, how):
    """How many of the keys outlive the server that acknowledged them."""
    with lib.Processes() as processes:
        secret = processes.secret()
        memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "256M", "--secret-file", secret)
        keys = [f"key{number}" for number in range(KEYS)]
        server = begin(processes, build, memory, secret, durability)
        call = lib.Connection(server.port)
        for key in keys:
            call("set", key, "value")
        server.send_signal(how)
        server.wait(20)
        left = present(begin(processes, build, memory, secret, "pool").port, keys)
        print(f"--durability {durability}, {how.name}: {left} of {KEYS} left", flush=True)
        return left


def main():
    build = lib.build_directory()
    assert run(build, "pool", signal.SIGKILL) == KEYS
    assert run(build, "none", signal.SIGTERM) == KEYS
    assert run(build, "none", signal.SIGKILL) < KEYS
    print("serve_durability: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
