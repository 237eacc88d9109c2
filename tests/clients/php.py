#!/usr/bin/env python3
"""PHP with Debian's phpredis (php-redis) against pando serve: its commands, and PHP's sessions."""
import pathlib
import subprocess
import sys

import lib


def main():
    build = lib.build_directory()
    php = lib.need("php", "php-cli")
    modules = subprocess.run([php, "-m"], capture_output=True, text=True, timeout=30).stdout.split()
    if "redis" not in modules:
        lib.skip("php has no redis; Debian's package php-redis has it")
    client = [php, pathlib.Path(__file__).resolve().parent / "php_client.php"]
    with lib.Processes() as processes:
        plain = processes.start_pando(build, "--threads", "2")
        lib.run_client([*client, "use", plain.port])
        guarded = processes.start_guarded(build)
        # PHP's sessions look there for authorities, and nowhere else.
        trusting = [php, "-d", f"openssl.cafile={guarded.certificate}", *client[1:]]
        lib.run_client([*trusting, "use", guarded.tls_port, guarded.password, guarded.certificate])
        port, restart = processes.start_shared(build)
        lib.run_client([*client, "restart", port], restart=restart)
    print("php: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
