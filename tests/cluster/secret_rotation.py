#!/usr/bin/env python3
"""A pool's secret is changed step by step, as docs/SECURITY.md says, with its commands, while a memory node and a server
are up. At each step clients with a secret that is in use get in, the server goes on, and what has been taken away
is refused.

secret_rotation.py BUILD
"""
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

GUIDE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "SECURITY.md"
AGAIN = "SIGHUP: read its files again"


def commands():
    """The three steps of the guide, without the signals, which are sent here."""
    steps = [[], [], []]
    step = None
    for line in GUIDE.read_text().splitlines():
        begin = re.match(r"([123])\. ", line)
        if begin:
            step = int(begin[1]) - 1
        elif line and not line.startswith(" "):
            step = None
        if step is not None and line.startswith("       ") and "kill -HUP" not in line:
            steps[step].append(line.strip())
    assert [len(step) for step in steps] == [2, 1, 1], steps
    return steps


def hang_up(processes, child):
    before = child.log.read_text().count(AGAIN)
    child.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while child.log.read_text().count(AGAIN) == before:
        assert child.poll() is None and time.monotonic() < end, child.log.read_text()
        time.sleep(0.02)


def gets_in(build, memory, secret, options):
    done = subprocess.run([build / "pando", "status", "--pool", f"tcp:{memory.address}", "--secret-file", secret,
                           *options], text=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode == 0) == ("wrong secret" not in done.stderr), done.stderr
    return done.returncode == 0


def scene(processes, build, options):
    folder = processes.directory / ("tls" if options else "plain")
    folder.mkdir()
    current, old, new = folder / "pando.secret", folder / "old.secret", folder / "new.secret"
    for path in (current, old):
        path.write_text("the secret of the first days\n")
        path.chmod(0o600)
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", current,
                                    *options, name=f"memory-{folder.name}")
    server = processes.start_pando(build, "--secret-file", current, *options, pool=f"tcp:{memory.address}",
                                   name=f"serve-{folder.name}")
    call = lib.Connection(server.port, timeout=60)
    # Who gets in after each step: with the old secret, the new one, and the file as it then is.
    expected = ((True, True, True), (True, True, True), (False, True, True))
    for number, (step, who) in enumerate(zip(commands(), expected)):
        for line in step:
            subprocess.run(["bash", "-c", line], cwd=folder, check=True)
        assert current.stat().st_mode & 0o777 == 0o600
        for child in (memory, server):
            hang_up(processes, child)
        for secret, may in zip((old, new, current), who):
            assert gets_in(build, memory, secret, options) == may, (number + 1, secret.name, may)
        assert call("set", "step", number) == "OK" and call("get", "step") == b"%d" % number
    assert current.read_bytes() == new.read_bytes()
    current.write_text("short\n")
    memory.send_signal(signal.SIGHUP)
    processes.wait_for(memory, "shorter than 16 bytes")
    assert gets_in(build, memory, new, options), "a file that cannot be used has changed something"
    for child in (server, memory):
        child.terminate()
        assert child.wait(60) == 0
    print(f"{folder.name}: changed in three steps, and nobody was shut out before the last")


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        scene(processes, build, ())
        scene(processes, build, ("--require-tls",))


if __name__ == "__main__":
    main()
