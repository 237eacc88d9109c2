#!/usr/bin/env python3
"""A C program with Redis' own client library, against pando serve."""
import pathlib
import subprocess
import sys

import lib


def main():
    build = lib.build_directory()
    found = subprocess.run(["pkg-config", "--cflags", "--libs", "hiredis"], capture_output=True, text=True)
    if found.returncode != 0:
        lib.skip("no hiredis; Debian's package libhiredis-dev has it")
    source = pathlib.Path(__file__).resolve().parent / "hiredis_client.c"
    with lib.Processes() as processes:
        program = processes.directory / "hiredis_client"
        subprocess.run(["cc", "-O1", "-Wall", "-o", program, source, *found.stdout.split()], check=True)
        server = processes.start_pando(build)
        return subprocess.run([program, str(server.port)], timeout=60).returncode


if __name__ == "__main__":
    sys.exit(main())
