#!/usr/bin/env python3
"""npm's `redis` and `ioredis` against pando serve: plainly, and with a password and TLS."""
import pathlib
import sys

import lib

LIBRARIES = {"redis": "^5.0.0", "ioredis": "^5.4.1"}


def main():
    build = lib.build_directory()
    modules = lib.npm_modules(build / "clients", LIBRARIES)
    client = pathlib.Path(__file__).resolve().parent / "node_client.js"
    with lib.Processes() as processes:
        plain = processes.start_pando(build, "--threads", "2")
        guarded = processes.start_guarded(build)
        for library in LIBRARIES:
            lib.run_client(["node", client, modules, library, plain.port])
            lib.run_client(["node", client, modules, library, guarded.tls_port, guarded.password,
                            guarded.certificate])
    print("node: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
