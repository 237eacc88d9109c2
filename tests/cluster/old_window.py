#!/usr/bin/env python3
"""A window of another format version is refused with the steps to take, and what is in it stays as
it is: the fabric's version and the pool's, older and newer ones. With its own version it is served.

old_window.py BUILD
"""
import hashlib
import os
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

WINDOW_FIRST = 32768  # up to here the window is the fabric's
VERSIONS = {"window": 8, "pool": WINDOW_FIRST + 8}  # where the versions are, 4 bytes each
STEPS = ("its contents are untouched", "(pando dump)", "(pando load)", "under another name")


def read_version(path, at):
    with open(path, "rb") as file:
        file.seek(at)
        return struct.unpack("<I", file.read(4))[0]


def write_version(path, at, version):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(struct.pack("<I", version))


def contents(path):
    with open(path, "rb") as file:
        file.seek(WINDOW_FIRST)
        return hashlib.file_digest(file, "sha256").hexdigest()


def refused(build, memory, path, what, version):
    at = VERSIONS[what]
    own = read_version(path, at)
    write_version(path, at, version)
    before = contents(path)
    done = subprocess.run([build / "pando", "memory", *memory], capture_output=True, text=True,
                          timeout=60)
    said = done.stderr.strip()
    assert done.returncode == 1 and len(said.splitlines()) == 1, (done.returncode, said)
    assert f"{what} format version {version}, this program has {own}" in said, said
    assert all(step in said for step in STEPS), said
    assert contents(path) == before, f"a window of another {what} version was changed"
    print(said, flush=True)
    write_version(path, at, own)


def steps(processes, build, name):
    path, memory = f"/dev/shm/pando-{name}", ["--shm", name, "--size", "64M"]

    def serve(number):
        node = processes.start_memory(build, *memory, name=f"memory{number}")
        server = processes.start_pando(build, pool=f"shm:{name}", name=f"server{number}")
        return node, server, lib.Connection(server.port)

    def end(*children):
        for child in children:
            child.terminate()
            assert child.wait(30) == 0

    node, server, call = serve(1)
    assert call("set", "key", "value") == "OK"
    end(server, node)
    for what, at in VERSIONS.items():
        own = read_version(path, at)
        refused(build, memory, path, what, own - 1)
        refused(build, memory, path, what, own + 1)
    node, server, call = serve(2)
    assert call("get", "key") == b"value"
    end(server, node)


def main():
    build = lib.build_directory()
    name = f"test-{os.getpid()}-old"
    with lib.Processes() as processes:
        try:
            steps(processes, build, name)
        finally:
            for path in pathlib.Path("/dev/shm").glob(f"pando-{name}*"):
                path.unlink()
    print("old_window: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
