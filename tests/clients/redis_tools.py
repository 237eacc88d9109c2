#!/usr/bin/env python3
"""redis-cli and redis-benchmark, as Debian has them, against pando serve."""
import subprocess
import sys

import lib


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def cli(port, *words, **options):
    done = subprocess.run([lib.need("redis-cli", "redis-tools"), "-p", str(port), *words], capture_output=True,
                          text=True, timeout=30, **options)
    return done.stdout.strip()


def redis_cli(port):
    expect("ping", cli(port, "ping"), "PONG")
    expect("set", cli(port, "set", "greeting", "hello"), "OK")
    expect("get", cli(port, "get", "greeting"), "hello")
    expect("RESP3", cli(port, "-3", "get", "nosuch"), "")
    expect("RESP3", cli(port, "-3", "hello", "3").split("\n")[0].split()[0], "server")
    expect("database", cli(port, "-n", "5", "set", "there", "5"), "OK")
    expect("database", cli(port, "-n", "5", "get", "there"), "5")
    expect("stdin", cli(port, "-x", "set", "from-stdin", input="a value"), "OK")
    expect("script on stdin", cli(port, input="incr n\nincr n\nscan 0 match n\n").split("\n")[:2], ["1", "2"])
    expect("error", cli(port, "incr", "greeting"), "ERR value is not an integer or out of range")
    expect("scan", cli(port, "--scan", "--pattern", "gree*"), "greeting")
    expect("bigkeys", "Sampled" in cli(port, "--memkeys") or "Sampled" in cli(port, "--bigkeys"), True)
    many = "".join(f"SET pipe:{i} {i}\r\n" for i in range(5000))
    expect("--pipe", "errors: 0, replies: 5000" in cli(port, "--pipe", input=many), True)
    expect("--pipe", cli(port, "get", "pipe:4999"), "4999")
    expect("info", "redis_version:7.0.15" in cli(port, "info", "server"), True)
    expect("command docs", "summary" in cli(port, "command", "docs", "get"), True)
    expect("ri", cli(port, "ri.create", "idx"), "OK")
    cli(port, "ri.mset", "idx", "b", "2", "a", "1", "c", "3")
    expect("ri", cli(port, "ri.range", "idx", "a", "b").split("\n"), ["a", "1", "b", "2"])


def redis_benchmark(port):
    """Its default list, as far as the commands exist; it ends with an error where one does not work."""
    tool = lib.need("redis-benchmark", "redis-tools")
    for options in ([], ["-P", "16"], ["-3"], ["-r", "1000", "-d", "500"]):
        done = subprocess.run([tool, "-p", str(port), "-n", "5000", "-c", "20", "-q", "-t",
                               "ping_inline,ping_mbulk,set,get,incr,mset", *options],
                              capture_output=True, text=True, timeout=120)
        names = [line.split(":")[0].strip() for line in done.stdout.replace("\r", "\n").split("\n")
                 if "requests per second" in line]
        wanted = ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"]
        if done.returncode != 0 or [name for name in names if name not in ("",)] != wanted or done.stderr.strip():
            raise AssertionError(f"redis-benchmark {options}: {done.returncode}, {names}\n{done.stdout}{done.stderr}")


def main():
    build = lib.build_directory()
    lib.need("redis-cli", "redis-tools")
    with lib.Processes() as processes:
        server = processes.start_pando(build, "--threads", "2")
        redis_cli(server.port)
        redis_benchmark(server.port)
    print("redis_tools: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
