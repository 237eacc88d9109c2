#!/usr/bin/env python3
"""Debian's redis-rb (ruby-redis) against pando serve: plainly, with a password and TLS, and while
the server is killed and started again."""
import pathlib
import subprocess
import sys

import lib


def main():
    build = lib.build_directory()
    ruby = lib.need("ruby", "ruby")
    if subprocess.run([ruby, "-e", "require 'redis'"], capture_output=True, timeout=60).returncode:
        lib.skip("ruby has no redis; Debian's package ruby-redis has it")
    client = [ruby, pathlib.Path(__file__).resolve().parent / "ruby_client.rb"]
    with lib.Processes() as processes:
        plain = processes.start_pando(build, "--threads", "2")
        lib.run_client([*client, "use", plain.port])
        guarded = processes.start_guarded(build)
        lib.run_client([*client, "use", guarded.tls_port, guarded.password, guarded.certificate])
        port, restart = processes.start_shared(build)
        lib.run_client([*client, "restart", port], restart=restart)
    print("ruby: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
