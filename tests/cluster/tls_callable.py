#!/usr/bin/env python3
"""Commands that work together with servers, in a pool whose memory nodes have certificates and whose clients have none:
they verify, spread and dump. Where a server cannot be called, because it wants certificates or listens nowhere,
`table spread` says so, and what can do without calling it works.

tls_callable.py BUILD
"""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402
from tls_errors import certificate  # noqa: E402

KEYS = 500


def command(build, pool, options, *words):
    done = subprocess.run([build / "pando", *words, "--pool", pool, *options], text=True, capture_output=True,
                          timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def scene(processes, build, memory, name, serve, tool, called):
    pool, dump = f"tcp:{memory.address}", processes.directory / f"{name}.dump"
    server = processes.start_pando(build, "--engine", "dex", *serve, pool=pool, name=name)
    call = lib.Connection(server.port, timeout=60)
    for number in range(KEYS):
        call("set", f"key{number}", number)
    code, out, err = command(build, pool, tool, "table", "spread", "db0")
    if called:
        assert code == 0 and "spread over 1 process" in out, (name, code, out, err)
    else:
        assert code == 1 and "1 process owns its keys and cannot be called from here" in err, (name, code, out, err)
        assert err.count("\n") == 1, err
    code, out, err = command(build, pool, tool, "table", "verify", "db0")
    assert code == 0 and f"sound: {KEYS} pairs" in out and not err, (name, code, out, err)
    code, out, err = command(build, pool, tool, "dump", "--table", "db0", dump)
    assert code == 0 and f"{KEYS} pairs" in out and not err, (name, code, out, err)
    server.terminate()
    assert server.wait(60) == 0
    print(f"{name}: ok")


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        cert, key = certificate(processes.directory)
        secret = processes.secret()
        memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret,
                                        "--tls-cert", cert, "--tls-key", key)
        bare = ("--secret-file", secret, "--tls-ca", cert)
        own = (*bare, "--tls-cert", cert, "--tls-key", key)
        scene(processes, build, memory, "no certificates", bare, bare, True)
        scene(processes, build, memory, "certificates", own, own, True)
        scene(processes, build, memory, "the server's alone", own, bare, False)
        scene(processes, build, memory, "no ear", (*bare, "--peer-listen", "none"), bare, False)


if __name__ == "__main__":
    main()
