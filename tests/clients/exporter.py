#!/usr/bin/env python3
"""Debian's prometheus-redis-exporter reads a server of ours: redis_up is 1, and it logs no errors. Takes two
seconds."""
import re
import sys
import time
import urllib.request

import lib


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return answer.read().decode()


def value(text, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    if not found:
        raise AssertionError(f"no {name} in:\n{text}")
    return float(found[1])


def ready(child, port):
    end = time.monotonic() + 20
    while time.monotonic() < end and child.poll() is None:
        try:
            return scrape(port)
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"the exporter does not answer:\n{child.log.read_text(errors='replace')}")


def look(build, processes, exporter, name, password):
    options = ["--password-file", processes.secret("password", password)] if password else []
    server = processes.start_pando(build, "--threads", "2", *options, name=name)
    call = lib.Connection(server.port)
    if password:
        call("auth", password)
    for i in range(123):
        call("set", f"k{i}", "v")
    call("set", "soon", "v", "ex", "1000")
    for i in range(7):
        call("get", "k1")
    call("config", "set", "slowlog-log-slower-than", "0")
    call("get", "k2")
    call("config", "set", "slowlog-log-slower-than", "10000")
    port = lib.free_port()
    child = processes.start([exporter, "-redis.addr", f"redis://127.0.0.1:{server.port}", "-redis.password", password or "",
                             "-web.listen-address", f"127.0.0.1:{port}", "-debug"], f"exporter-{name}")
    ready(child, port)
    text = scrape(port)
    expect("redis_up", value(text, "redis_up"), 1)
    expect("errors", value(text, 'redis_exporter_last_scrape_error{err=""}'), 0)
    expect("keys", value(text, 'redis_db_keys{db="db0"}'), 124)
    expect("expiring", value(text, 'redis_db_keys_expiring{db="db0"}'), 1)
    expect("calls", value(text, 'redis_commands_total{cmd="get"}'), 8)
    expect("clients", value(text, "redis_connected_clients") >= 1, True)
    expect("memory", value(text, "redis_memory_used_bytes") > 1000, True)
    expect("maxclients", value(text, "redis_config_maxclients"), 10000)
    expect("slow ones", value(text, "redis_slowlog_length") >= 1, True)
    log = child.log.read_text(errors="replace")
    wrong = [line for line in log.splitlines() if re.search(r"level=(error|warning|fatal)", line) or
             re.search(r"\berr(or)?[:=]|ERR ", line)]
    expect("lines of errors", wrong, [])
    child.terminate()
    child.wait()
    print(f"{name}: {text.count(chr(10))} lines, no error", flush=True)


def main():
    build = lib.build_directory()
    exporter = lib.need("prometheus-redis-exporter", "prometheus-redis-exporter")
    with lib.Processes() as processes:
        look(build, processes, exporter, "open", None)
        look(build, processes, exporter, "locked", "correct horse battery staple")
    print("exporter: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
