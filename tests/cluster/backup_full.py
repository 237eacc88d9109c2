#!/usr/bin/env python3
"""`pando backup create` onto a disk that is too small: one line that says so, nothing that looks finished, and the same
command goes on when there is room. The disk is a tmpfs in a mount namespace of its own; without the right to make one
the test is skipped.

backup_full.py BUILD
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

INSIDE = "PANDO_BACKUP_FULL_INSIDE"


def create(build, folder, pool):
    return subprocess.run([build / "pando", "backup", "create", folder, "--pool", pool], capture_output=True,
                          text=True, timeout=60, check=False)


def inside(build):
    """In the namespace: what is mounted here goes with it."""
    name = f"test-{os.getpid()}-full"
    with lib.Processes() as processes:
        try:
            processes.start_memory(build, "--shm", name, "--size", "128M")
            server = processes.start_pando(build, pool=f"shm:{name}")
            call = lib.Connection(server.port, timeout=60)
            for number in range(100):
                call("set", f"key{number}", os.urandom(20_000))
            disk = processes.directory / "disk"
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
            folder = disk / "backup"
            for _ in range(2):
                done = create(build, folder, f"shm:{name}")
                print(done.stderr, end="", flush=True)
                assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
                assert "No space left on device" in done.stderr and "run the same command again" in done.stderr
                assert "db0.dump" in done.stderr and not (folder / "manifest.json").exists()
                assert not (folder / "db0.dump").exists(), os.listdir(folder)
            subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
            done = create(build, folder, f"shm:{name}")
            assert done.returncode == 0, done
            done = subprocess.run([build / "pando", "backup", "verify", folder], timeout=60, check=False)
            assert done.returncode == 0
            subprocess.run(["umount", disk], check=True)
        finally:
            pathlib.Path(f"/dev/shm/pando-{name}").unlink(missing_ok=True)


def main():
    build = lib.build_directory()
    if os.environ.get(INSIDE):
        inside(build)
        return
    if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True,
                      check=False).returncode != 0:
        lib.skip("no right to mount a tmpfs in a namespace of its own; run it as root")
    done = subprocess.run(["unshare", "--mount", sys.executable, __file__, build], check=False,
                          env={**os.environ, INSIDE: "1"})
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
