#!/usr/bin/env python3
"""What strangers may cost a server: memory before the password, tries at passwords, slow requests for metrics, and all
of its descriptors.

strangers_cost.py BUILD
"""
import contextlib
import os
import pathlib
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

PATIENCE_S = 20
DEADLINE_S = 10  # of who gives no password
PASSWORD = "let me in please"
CROWD, CROWD_ADDRESSES, CROWD_BYTES_MAX = 4000, 16, 48 << 20
GUESSERS, GUESSING_S, GUESSES_AT_ONCE, GUESSES_PER_S = 16, 3, 20, 10


def connect(port, address="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=(address, 0))


def client(port, address="127.0.0.1", password=None):
    call = lib.Connection.__new__(lib.Connection)
    call.socket = connect(port, address)
    call.file = call.socket.makefile("rb")
    if password:
        assert call("auth", password) == "OK"
    return call


def gone(peer, seconds):
    """Whether the server closes the connection in time; what it says before does not matter."""
    peer.settimeout(seconds)
    try:
        while peer.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def metrics_port(processes, child):
    line = processes.wait_for(child, "metrics at ")
    return int(line.split("metrics at ")[1].split(",")[0].rsplit(":", 1)[1])


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return answer.read().decode()


# ---- tries at passwords --------------------------------------------------------------------------

def guess(port, address, words, end, counts, index):
    """One after the other until the time is over; counts those that were answered."""
    with contextlib.suppress(EOFError, OSError):
        call = client(port, address)
        while time.monotonic() < end:
            try:
                call("auth", words(index, counts[index]))
            except lib.Error as error:
                counts[index] += str(error).startswith("WRONGPASS")


@contextlib.contextmanager
def guessers(port, address, words, counts):
    begin = time.monotonic()
    threads = [threading.Thread(target=guess, args=(port, address, words, begin + GUESSING_S, counts, index))
               for index in range(len(counts))]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()
    counts.append(time.monotonic() - begin)


def passwords(server):
    at_work = client(server.port, password=PASSWORD)
    counts, logins = [0] * GUESSERS, 0
    with guessers(server.port, "127.0.0.2", lambda index, number: f"guess {index} {number}", counts):
        for _ in range(200):
            client(server.port, password=PASSWORD).close()
            assert at_work("incr", "counter") > 0
            logins += 1
    seconds = counts.pop()
    most = GUESSES_AT_ONCE + GUESSES_PER_S * seconds + GUESSERS
    print(f"{sum(counts)} guesses from one address in {seconds:.1f} s, {logins} logins from another meanwhile")
    assert sum(counts) <= most, f"{sum(counts)} wrong passwords looked at, more than {most:.0f}"
    call = client(server.port)
    try:
        call("auth", "a slip")
        raise AssertionError("a wrong password is right")
    except lib.Error as error:
        assert str(error).startswith("WRONGPASS"), error
    assert call("auth", PASSWORD) == "OK"


def wrongly_set_up(server):
    """Programs that come back with the same wrong password keep the others of their machine out no more than they
    have to."""
    counts, logins = [0] * 4, 0
    with guessers(server.port, "127.0.0.3", lambda index, number: "yesterday's password", counts):
        for _ in range(50):
            client(server.port, "127.0.0.3", PASSWORD).close()
            logins += 1
    seconds = counts.pop()
    print(f"{sum(counts)} tries with the same wrong password in {seconds:.1f} s, {logins} logins from the same address")
    most = GUESSES_AT_ONCE + GUESSES_PER_S * seconds + GUESSERS
    assert sum(counts) <= most, f"{sum(counts)} tries with one wrong password, more than {most:.0f}"


# ---- memory --------------------------------------------------------------------------------------

def resident_bytes(child):
    for line in pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def settle(call):
    """Until the server has read all that it is going to."""
    last, same = -1, 0
    end = time.monotonic() + PATIENCE_S
    while same < 3 and time.monotonic() < end:
        now = int(call("info", "stats").decode().split("total_net_input_bytes:")[1].split()[0])
        same = same + 1 if now - last < 1000 else 0
        last = now
        time.sleep(0.1)


def crowd(build, processes, size):
    server = processes.start_pando(build, "--password-file", processes.secret("crowd", PASSWORD),
                                   name=f"crowd{size}")
    call = client(server.port, password=PASSWORD)
    before, peers = resident_bytes(server), []
    for number in range(CROWD):
        peer = connect(server.port, f"127.0.0.{2 + number % CROWD_ADDRESSES}")
        peer.setblocking(False)
        with contextlib.suppress(OSError):
            peer.send(b"x" * size)
        peers.append(peer)
    settle(call)
    grown = resident_bytes(server) - before
    print(f"{CROWD} clients without a password, with {size} bytes each: {grown >> 20} MB")
    assert grown < CROWD_BYTES_MAX, f"{CROWD} clients that gave no password take {grown >> 20} MB"
    client(server.port, password=PASSWORD).close()
    for peer in peers:
        peer.close()
    server.terminate()
    assert server.wait(PATIENCE_S) == 0


# ---- metrics -------------------------------------------------------------------------------------

def slow_scrapers(port):
    """From the address of those that are served meanwhile."""
    for request in (b"", b"GET /metrics HTT", b"GET /metrics HTTP/1.0\r\n\r\n"):
        peers = []
        for _ in range(16):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            peer.connect(("127.0.0.1", port))
            peer.sendall(request)
            peers.append(peer)
        for _ in range(3):
            assert "pando_uptime_seconds" in scrape(port)
        for peer in peers:
            peer.close()
    print("metrics are there beside 16 slow connections")


# ---- descriptors ---------------------------------------------------------------------------------

def cpu_seconds(child):
    fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lines(child):
    return child.log.read_text(errors="replace").splitlines()


def without_descriptors(child, port, name, goes_on, let_in):
    """More connections than the process has descriptors for: it says so once, rests, and goes on when some are free.
    `let_in`: a new client that strangers have to make room for, or None."""
    limit = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
    now = len(os.listdir(f"/proc/{child.pid}/fd"))
    said = len(lines(child))
    resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (now + 5, limit[1]))
    peers = [connect(port, "127.0.0.4") for _ in range(40)]
    end = time.monotonic() + PATIENCE_S
    while not any("cannot accept" in line for line in lines(child)[said:]) and time.monotonic() < end:
        goes_on()
    begin, used = time.monotonic(), cpu_seconds(child)
    while time.monotonic() - begin < 1:  # what it uses while it can do nothing is to be seen
        goes_on()
        time.sleep(0.05)
    used = cpu_seconds(child) - used
    if let_in:
        let_in()
    told = [line for line in lines(child)[said:] if "cannot accept" in line]
    print(f"{name}: no descriptors left: {len(lines(child)) - said} lines of log, {used * 1000:.0f} ms of CPU time",
          flush=True)
    assert len(told) == 1, f"{name}: {len(told)} lines say that there are no descriptors: {told[:3]}"
    assert len(lines(child)) - said < 30, f"{name}: {len(lines(child)) - said} lines of log"
    assert used < 0.5, f"{name}: {used:.2f} s of CPU time in a second of waiting"
    for peer in peers:
        peer.close()
    resource.prlimit(child.pid, resource.RLIMIT_NOFILE, limit)


def descriptors(build, processes):
    secret = processes.secret()
    cert, key = processes.directory / "cert.pem", processes.directory / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days",
                    "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret,
                                    "--metrics", "0")
    pool, peer_port = f"tcp:{memory.address}", lib.free_port()
    server = processes.start_pando(build, "--secret-file", secret, "--metrics", "0", "--peer-listen",
                                   f"127.0.0.1:{peer_port}", "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", cert,
                                   "--serve-tls-key", key, pool=pool, name="server")
    tls_port = int(processes.wait_for(server, " ready at ").split("tls:")[1].split(",")[0].rsplit(":", 1)[1])
    call = client(server.port)

    def goes_on():
        assert call("incr", "counter") > 0

    def status():
        done = subprocess.run([build / "pando", "status", "--pool", pool, "--secret-file", secret], check=False,
                              timeout=PATIENCE_S, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    ports = metrics_port(processes, server), metrics_port(processes, memory)
    without_descriptors(memory, int(memory.address.rsplit(":", 1)[1]), "fabric", goes_on, status)
    without_descriptors(memory, ports[1], "memory's metrics", goes_on, lambda: scrape(ports[1]))
    without_descriptors(server, peer_port, "peer", goes_on, None)
    without_descriptors(server, tls_port, "RESP TLS", goes_on, None)
    without_descriptors(server, ports[0], "server's metrics", goes_on, lambda: scrape(ports[0]))
    without_descriptors(server, server.port, "RESP", goes_on, None)
    assert client(server.port)("incr", "counter") > 0
    slow_scrapers(ports[0])
    slow_scrapers(ports[1])
    for child in (server, memory):
        child.terminate()
        assert child.wait(PATIENCE_S) == 0


def main():
    build = lib.build_directory()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CROWD + 200:
        lib.skip(f"fewer than {CROWD + 200} open files are allowed here (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (CROWD + 200, hard))
    with lib.Processes() as processes:
        server = processes.start_pando(build, "--password-file", processes.secret("password", PASSWORD), name="guarded")
        late = [connect(server.port), client(server.port)]
        begin = time.monotonic()
        with contextlib.suppress(lib.Error):
            late[1]("ping")
        passwords(server)
        wrongly_set_up(server)
        descriptors(build, processes)
        for size in (5000, 60000):
            crowd(build, processes, size)
        left_s = DEADLINE_S + 5 - (time.monotonic() - begin)
        for peer in (late[0], late[1].socket):
            assert gone(peer, max(left_s, 1)), f"a client without a password is there after {DEADLINE_S} s"
        server.terminate()
        assert server.wait(PATIENCE_S) == 0


if __name__ == "__main__":
    main()
