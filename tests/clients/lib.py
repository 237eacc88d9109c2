"""What the client tests share: starting servers, talking RESP to them without any client library."""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

BUSY_PART = 0.1  # of the time somebody waited for a processor
LISTENED_PORTS = (15000, 32000)


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def build_directory():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    if not (build / "pando").exists():
        skip(f"{build}/pando is not built")
    return build


def need(program, package):
    found = shutil.which(program)
    if not found:
        skip(f"no {program}; Debian's package {package} has it")
    return found


def debian_python(*modules):
    """The words that start a python3 with Debian's modules; it need not be the first of the path.

    Modules are not looked for beside the program, where this folder's hiredis.py is."""
    for python in ("/usr/bin/python3", sys.executable):
        argv = [python, "-I"]
        found = subprocess.run([*argv, "-c", "import " + ", ".join(modules)], capture_output=True)
        if found.returncode == 0:
            return argv
    skip(f"no python3 with {', '.join(modules)}; Debian's packages are in scripts/deps")


def npm_modules(folder, libraries):
    """The folder of npm's packages, installed there if they are missing."""
    need("node", "nodejs")
    need("npm", "npm")
    modules = folder / "node_modules"
    if not all((modules / name / "package.json").exists() for name in libraries):
        folder.mkdir(parents=True, exist_ok=True)
        wanted = {"private": True, "dependencies": libraries}
        (folder / "package.json").write_text(json.dumps(wanted))
        try:
            done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"],
                                  cwd=folder, timeout=60, capture_output=True, text=True)
            failed = done.stderr if done.returncode != 0 else None
        except subprocess.TimeoutExpired:
            failed = "no end after 60 s"
        if failed is not None:
            print(failed)
            skip(f"npm could not install {', '.join(libraries)}; is there a network?")
    for name in libraries:
        print(name, json.loads((modules / name / "package.json").read_text())["version"], flush=True)
    return modules


def run_client(argv, seconds=120, **acts):
    """Runs a program that uses a server; fails unless it ends with 0.

    Where it prints "DO restart", acts["restart"] is called, and then the program gets a line."""
    child = subprocess.Popen([str(word) for word in argv], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(seconds, child.kill)
    watchdog.start()
    try:
        for line in child.stdout:
            print(line, end="", flush=True)
            if line.startswith("DO "):
                acts[line.split()[1]]()
                child.stdin.write("done\n")
                child.stdin.flush()
        if child.wait() != 0:
            raise RuntimeError(f"{argv[0]} ended with {child.returncode} (-9: after {seconds} s)")
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()


def processor_waits_s():
    """For how long some process of the machine had to wait for a processor, ever."""
    try:
        line = pathlib.Path("/proc/pressure/cpu").read_text().splitlines()[0]
        return float(line.split("total=")[1]) / 1e6
    except (OSError, IndexError):
        return None


def was_busy(before, after, seconds):
    """Whether the machine made processes wait in that time, by two figures of processor_waits_s, and so is no measure."""
    return before is None or after - before > BUSY_PART * seconds


def free_port():
    """Below those that the kernel gives to outgoing connections, which would take it before its server does."""
    for _ in range(100):
        port = random.randrange(*LISTENED_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port found")


class Processes:
    """Started here, stopped here, whatever happens."""

    def __init__(self):
        self.running = []
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="pando-clients-"))

    def __enter__(self):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, *_):
        for child in self.running:
            if child.poll() is None:
                child.kill()
            child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, argv, name):
        log = open(self.directory / f"{name}.log", "wb+")
        child = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=subprocess.STDOUT, cwd=self.directory)
        child.log = self.directory / f"{name}.log"
        self.running.append(child)
        return child

    def wait_for(self, child, text, seconds=10):
        """The first line of its output with the text."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in child.log.read_text(errors="replace").splitlines():
                if text in line:
                    return line
            if child.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"no '{text}' from {child.args}:\n{child.log.read_text(errors='replace')}")

    def start_pando(self, build, *options, pool="embedded:256M", name="pando", port=0):
        child = self.start([build / "pando", "serve", "--pool", pool,
                            "--listen", f"127.0.0.1:{port}", *options], name)
        line = self.wait_for(child, " ready at ", 60)
        child.port = int(line.split(" ready at ")[1].split()[0].rstrip(",").rsplit(":", 1)[1])
        if "tls:" in line:
            child.tls_port = int(line.split("tls:")[1].split()[0].rstrip(",").rsplit(":", 1)[1])
        return child

    def start_guarded(self, build):
        """Wants its `password`, and speaks TLS with its `certificate` on its `tls_port`."""
        password = self.secret("password")
        certificate, key = self.certificate()
        child = self.start_pando(build, "--threads", "2", "--password-file", password,
                                 "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", certificate,
                                 "--serve-tls-key", key, name="guarded")
        child.password, child.certificate = password.read_text(), certificate
        return child

    def certificate(self):
        """For 127.0.0.1, signed by itself; and its key."""
        certificate, key = self.directory / "cert.pem", self.directory / "key.pem"
        subprocess.run([need("openssl", "openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                        "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
                       check=True, capture_output=True)
        return certificate, key

    def start_memory(self, build, *options, name="memory"):
        child = self.start([build / "pando", "memory", *options], name)
        line = self.wait_for(child, " ready at ")
        child.address = line.split(" ready at tcp:")[1].split(",")[0] if "tcp:" in line else None
        return child

    def start_redis(self, *options):
        port = free_port()
        child = self.start([need("redis-server", "redis-server"), "--port", port, "--save", "",
                            "--appendonly", "no", "--bind", "127.0.0.1", *options], "redis")
        self.wait_for(child, "Ready to accept connections")
        child.port = port
        return child

    def start_shared(self, build):
        """A pool and a server's port, and a function that kills the server and starts the next."""
        secret = self.secret()
        memory = self.start_memory(build, "--listen", "127.0.0.1:0", "--size", "256M",
                                   "--secret-file", secret)
        pool, port, servers = f"tcp:{memory.address}", free_port(), []

        def start():
            servers.append(self.start_pando(build, "--secret-file", secret, "--threads", "2",
                                            pool=pool, port=port, name=f"shared{len(servers)}"))

        def restart():
            servers[-1].kill()
            servers[-1].wait()
            start()

        start()
        return port, restart

    def secret(self, name="secret", text=None):
        path = self.directory / name
        path.write_text(text or os.urandom(24).hex())
        path.chmod(0o600)
        return path


class Error(Exception):
    pass


class Connection:
    """Raw RESP: requests out, replies in, as bytes or as Python values."""

    def __init__(self, port, timeout=20, wrap=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wrap:
            self.socket = wrap(self.socket)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def close(self):
        self.file.close()
        self.socket.close()

    @staticmethod
    def encode(*words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def send(self, *words):
        self.socket.sendall(self.encode(*words))

    def read_raw(self):
        """One whole reply, byte for byte."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(f"connection closed after {line!r}")
        kind, rest = line[:1], line[1:-2]
        if kind in b"+-:_#,(":
            return line
        count = int(rest)
        if kind in b"$=":
            return line if count < 0 else line + self.exactly(count + 2)
        if kind in b"*~>%":
            items = max(count, 0) * (2 if kind == b"%" else 1)
            return line + b"".join(self.read_raw() for _ in range(items))
        raise ValueError(f"not RESP: {line!r}")

    def exactly(self, count):
        data = self.file.read(count)
        if len(data) != count:
            raise EOFError("connection closed inside a reply")
        return data

    def read(self):
        return parse(self.read_raw())

    def __call__(self, *words):
        self.send(*words)
        return self.read()


def parse(raw):
    value, rest = parse_some(raw)
    assert not rest
    if isinstance(value, Error):
        raise value
    return value


def parse_some(raw):
    line, _, rest = raw.partition(b"\r\n")
    kind, text = line[:1], line[1:]
    if kind == b"+":
        return text.decode(), rest
    if kind == b"-":
        return Error(text.decode(errors="replace")), rest
    if kind == b":":
        return int(text), rest
    if kind == b"_":
        return None, rest
    count = int(text)
    if kind in b"$=":
        if count < 0:
            return None, rest
        return rest[:count], rest[count + 2:]
    if count < 0:
        return None, rest
    items = []
    for _ in range(count * (2 if kind == b"%" else 1)):
        item, rest = parse_some(rest)
        items.append(item)
    if kind == b"%":
        return dict(zip(items[::2], items[1::2])), rest
    return items, rest
