"""What the client tests share: starting servers, talking RESP to them without any client library."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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

    def start_pando(self, build, *options, pool="embedded:256M", name="pando"):
        child = self.start([build / "pando", "serve", "--pool", pool, "--listen", "127.0.0.1:0",
                            *options], name)
        line = self.wait_for(child, " ready at ")
        child.port = int(line.split(" ready at ")[1].split()[0].rstrip(",").rsplit(":", 1)[1])
        return child

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
