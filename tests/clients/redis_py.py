#!/usr/bin/env python3
"""Debian's redis-py (python3-redis) against pando serve: plainly, with a password and TLS, and
while the server is killed and started again."""
import pathlib
import sys

import lib


def main():
    build = lib.build_directory()
    python = lib.debian_python("redis")
    client = [*python, pathlib.Path(__file__).resolve().parent / "redis_py_client.py"]
    with lib.Processes() as processes:
        plain = processes.start_pando(build, "--threads", "2")
        lib.run_client([*client, "use", plain.port])
        guarded = processes.start_guarded(build)
        lib.run_client([*client, "use", guarded.tls_port, guarded.password, guarded.certificate])
        port, restart = processes.start_shared(build)
        lib.run_client([*client, "restart", port], restart=restart)
    print("redis_py: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
