#!/usr/bin/env python3
"""Django's cache and sessions in pando serve, by Debian's django-redis (python3-django-redis)."""
import pathlib
import sys

import lib


def main():
    build = lib.build_directory()
    python = lib.debian_python("django", "django_redis")
    here = pathlib.Path(__file__).resolve().parent
    client = [*python, here / "django_client.py", here.parent.parent / "examples"]
    with lib.Processes() as processes:
        plain = processes.start_pando(build, "--threads", "2")
        lib.run_client([*client, plain.port])
        guarded = processes.start_guarded(build)
        lib.run_client([*client, guarded.tls_port, guarded.password, guarded.certificate])
    print("django: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
