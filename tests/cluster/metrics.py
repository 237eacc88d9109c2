#!/usr/bin/env python3
"""GET /metrics of memory nodes and of the server: what it says is well-formed and true, and whoever is
rude to it hurts nobody but himself."""
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import exposition  # noqa: E402

PANDO = pathlib.Path(sys.argv[1]).resolve() / "pando"
PREFIX = f"test-{os.getpid()}"
started = []


def fail(text):
    sys.exit(f"FAILED: {text}")


def check(condition, text):
    if not condition:
        fail(text)


def start(*arguments):
    """Starts pando; the process, and the words of the line that says it is ready."""
    process = subprocess.Popen([PANDO, *arguments], stdout=subprocess.PIPE, text=True)
    started.append(process)
    line = process.stdout.readline().strip()
    check(" ready at " in line, f"pando {' '.join(arguments)}: {line}")
    return process, line


def address_after(line, words):
    """host:port behind `words` of a line."""
    host, port = line.split(words, 1)[1].split(",")[0].split(" ")[0].rsplit(":", 1)
    return host, int(port)


def scrape(address, method="GET", path="/metrics"):
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    return response, response.read().decode()


def metrics(address):
    response, text = scrape(address)
    check(response.status == 200, f"status {response.status}")
    check(response.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8",
          f"type {response.getheader('Content-Type')}")
    try:
        return exposition.parse(text)
    except exposition.Wrong as wrong:
        fail(f"{wrong}\n{text}")


def value(samples, name, **labels):
    return samples.get((name, tuple(sorted(labels.items()))))


class Redis:
    def __init__(self, address):
        self.socket = socket.create_connection(address, 10)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        parts = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) +
                            b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        line = self.file.readline()
        if line[:1] == b"$" and line != b"$-1\r\n":
            line = self.file.read(int(line[1:]) + 2)
        return line.strip().decode()


def raw(address, data, wait_s=8):
    """What comes back for these bytes until the other side closes, and after how long."""
    begin = time.monotonic()
    with socket.create_connection(address, wait_s) as connection:
        connection.settimeout(wait_s)
        answer = b""
        try:
            connection.sendall(data)
        except OSError:
            pass
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        except TimeoutError:
            fail(f"{data[:40]!r}: no end after {wait_s} s")
    return answer, time.monotonic() - begin


def test_memory(node):
    address = address_after(node[1], "metrics at ")
    samples = metrics(address)
    check(value(samples, "pando_pool_bytes", node="0") > 100e6, "the size of the pool")
    check(value(samples, "pando_pool_members", state="alive") == 1, f"members: {samples}")
    check(value(samples, "pando_memory_connections") >= 1, "connections")
    check(value(samples, "pando_memory_calls_total", method="grant") >= 1, "calls")
    check(value(samples, "pando_memory_operations_total") > 100, "operations")
    names = [dict(labels).get("name") for name, labels in samples
             if name == "pando_pool_member_heartbeats_total"]
    check(names == ["pando serve"], f"names of members: {names}")


def test_server(address, client_address):
    before = metrics(address)
    check(value(before, "pando_pool_up") == 1, "the pool is not up")
    client = Redis(client_address)
    for i in range(500):
        check(client.ask("SET", f"key-{i}", "x" * 100) == "+OK", "SET")
    for i in range(1000):
        client.ask("GET", f"key-{i}")
    check(client.ask("INCR", "key-1").startswith("-ERR"), "INCR of a text")
    after = metrics(address)

    def grown(name, **labels):
        return value(after, name, **labels) - (value(before, name, **labels) or 0)

    check(grown("pando_commands_total", command="set") == 500, "SETs")
    check(grown("pando_commands_total", command="get") == 1000, "GETs")
    check(grown("pando_command_errors_total", command="incr") == 1, "errors")
    check(grown("pando_key_hits_total") == 500 and grown("pando_key_misses_total") == 500, "hits")
    check(grown("pando_duration_seconds_count") == 1501, "durations")
    check(value(after, "pando_clients") == 1, "clients")
    check(grown("pando_index_cache_hits_total") >= 1000, "cache hits")
    check(grown("pando_fabric_verbs_total", kind="write", target="memory") >= 500, "WRITEs")
    check(grown("pando_fabric_round_trips_total", target="memory") >= 500, "round trips")
    check(value(after, "pando_pool_used_bytes", node="0") > 0, "pool fill")
    quantiles = [value(after, "pando_command_duration_seconds", command="get", quantile=q)
                 for q in ("0.5", "0.9", "0.99", "0.999")]
    check(0 < quantiles[0] < 1 and quantiles == sorted(quantiles), f"quantiles {quantiles}")
    for key, count in before.items():
        if key[0].endswith("_total"):
            check(after[key] >= count, f"{key} fell")
    check(raw(client_address, b"*x\r\n")[0].startswith(b"-ERR Protocol"), "a protocol error")
    check(value(metrics(address), "pando_errors_total", kind="protocol") == 1, "protocol errors")


def status_of(answer):
    return int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/1.1 ") else None


def test_http(address):
    response, text = scrape(address, "HEAD")
    check(response.status == 200 and text == "", "HEAD")
    check(scrape(address, path="/metrics?x=1")[0].status == 200, "a query")
    check(scrape(address, path="/")[0].status == 404, "another path")
    response, _ = scrape(address, "POST")
    check(response.status == 405 and response.getheader("Allow") == "GET, HEAD", "POST")
    for data, status in ((b"GET /metrics HTTP/1.0\r\n\r\n", 200),
                         (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
                         (b"GET /metrics HTTP/2.0\r\nHost: a\r\n\r\n", 505),
                         (b"GET metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
                         (b"GET /metrics HTTP/1.1\nHost: a\n\n", 400),
                         (b"GET /metrics HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
                         (b"GET /m\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
                         (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", 413),
                         (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
                         (b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 100000, 431),
                         (b"\r\n" * 10, 400), (b"\x16\x03\x01\x02\x00\x01\n", 400)):
        answer, _ = raw(address, data)
        check(status_of(answer) == status or (status == 431 and answer == b""),
              f"{data[:60]!r}: {answer[:80]!r}")


def test_slow(address):
    """Many who say nothing, or half of it: they are sent away, and others are served meanwhile or
    soon after."""
    silent = [socket.create_connection(address, 10) for _ in range(60)]
    silent[0].sendall(b"GET /metrics HT")
    deadline = time.monotonic() + 10
    while True:
        try:
            if scrape(address)[0].status == 200:
                break
        except (OSError, http.client.HTTPException):
            pass
        check(time.monotonic() < deadline, "silent connections keep others out")
        time.sleep(0.2)
    for connection in silent:
        connection.settimeout(10)
        try:
            answer = connection.recv(100)
            check(answer == b"" or status_of(answer) == 408, f"a silent one got {answer!r}")
        except ConnectionResetError:
            pass
        except TimeoutError:
            fail("a silent connection stays")
        connection.close()
    check(metrics(address), "after that")


def stop(process, what):
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(15)
    check(code == 0, f"{what}: SIGTERM ended it with {code}")
    check(time.monotonic() - begin < 8, f"{what}: SIGTERM took {time.monotonic() - begin:.1f} s")


def main():
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder, "secret")
        secret.touch(0o600)
        secret.write_text(os.urandom(24).hex())
        memory = start("memory", "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", str(secret),
                       "--metrics", "0")
        shm = start("memory", "--shm", PREFIX, "--size", "64M", "--metrics", "127.0.0.1:0")
        pool = "%s:%d" % address_after(memory[1], "ready at tcp:")
        server = start("serve", "--pool", f"tcp:{pool}", "--secret-file", str(secret), "--listen",
                       "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--threads", "2")
        address = address_after(server[1], "metrics at ")
        test_server(address, address_after(server[1], "ready at "))
        test_memory(memory)
        check(value(metrics(address_after(shm[1], "metrics at ")), "pando_pool_bytes", node="0"),
              "metrics of a node on shared memory")
        test_http(address)
        test_slow(address)
        # Somebody who is connected and silent delays no stop.
        idle = [socket.create_connection(address_after(line, "metrics at "))
                for _, line in (memory, server)]
        stop(server[0], "serve")
        stop(memory[0], "memory")
        stop(shm[0], "memory on shm")
        for connection in idle:
            connection.close()
    print("metrics: ok")


try:
    main()
finally:
    for child in started:
        if child.poll() is None:
            child.kill()
            child.wait()
    for window in pathlib.Path("/dev/shm").glob(f"pando-{PREFIX}*"):
        window.unlink()
