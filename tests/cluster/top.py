#!/usr/bin/env python3
"""pando top: what it prints is true, the screens fit a terminal of 80 by 24 and a smaller one, keys change
them, colours and characters are those that the terminal is said to know, and the terminal is left as it was,
whichever way it ends."""
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

PANDO = str(pathlib.Path(sys.argv[1]).resolve() / "pando")
PREFIX = f"test-{os.getpid()}"
TRIES = 20
started = []


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def start(*arguments):
    process = subprocess.Popen([PANDO, *arguments], stdout=subprocess.PIPE, text=True)
    started.append(process)
    line = process.stdout.readline().strip()
    check(" ready at " in line, f"pando {' '.join(arguments)}: {line}")
    return line


class Load(threading.Thread):
    """SETs and GETs, one after the other, until it is stopped."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.socket = socket.create_connection(address, 10)
        self.over = False

    def run(self):
        i = 0
        while not self.over:
            i += 1
            key = b"key-%06d" % (i % 5000)
            self.socket.sendall(b"*3\r\n$3\r\nSET\r\n$10\r\n%s\r\n$1\r\nx\r\n"
                                b"*2\r\n$3\r\nGET\r\n$10\r\n%s\r\n" % (key, key))
            answer = b""
            while answer.count(b"\r\n") < 3:
                answer += self.socket.recv(100)
        self.socket.close()


def once(*arguments):
    done = subprocess.run([PANDO, "top", "--once", *arguments], capture_output=True, text=True,
                          timeout=20)
    return done.returncode, done.stdout, done.stderr


def shows(*patterns, arguments):
    """What --once prints when it has all of them: of a busy machine, one look may be at a standstill."""
    for _ in range(TRIES):
        code, text, error = once(*arguments, "--interval", "300ms")
        check(code == 0 and not error, f"{arguments}: {code}: {error}")
        missing = [pattern for pattern in patterns if not re.search(pattern, text, re.MULTILINE)]
        if not missing:
            return text
    sys.exit(f"FAILED: {arguments}: no {missing} in: {text}")


def test_once(pool, metrics):
    text = shows(r"^operations  ([0-9.]*[1-9][0-9.]*)(| k| M)/s   errors 0/s   clients 1   servers 1",
                 r"^latency     p50 [0-9.]+ [um]s   p90 ",
                 r"^commands    (set|get) [0-9.]+( k|)/s \(",
                 r"^fabric .* [0-9.]*[1-9][0-9]* round trips, [0-9.]+ READ, [0-9.]*[1-9][0-9]* WRITE",
                 r"^node 0  .*\[#*\.+\] +[0-9.]+ %",
                 r"alive  .* pando serve$", arguments=["--metrics", metrics])
    check("\033" not in text, "--once prints escape sequences")

    text = shows(r"^node 0  ", r"alive  .* pando serve$", r"alive  .* pando top$", arguments=["--pool", pool])
    check("operations" not in text, f"--pool alone knows of no operations: {text}")
    shows(r"^tables      3$", r"^  NAME +ENGINE +MEMORY", r"^  db0 +dex +[0-9.]+ [KM]iB .*1, the busiest 100 %$",
          arguments=["--pool", pool, "--tables"])
    code, _, error = once("--metrics", metrics, "--tables")
    check(code == 2 and "--pool" in error, f"--tables without a pool: {code}: {error}")
    code, _, error = once("--metrics", "127.0.0.1:1")
    check(code == 1 and "nobody answers" in error, f"nobody there: {code}: {error}")
    code, _, error = once()
    check(code == 2 and "--metrics" in error, f"nothing to look at: {code}: {error}")


def read_for(terminal, seconds):
    data, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                data += os.read(terminal, 65536)
            except OSError:
                break
    return data


def screens_of(data):
    """Their texts, without what only terminals understand."""
    return [re.sub(rb"\033\[[0-9;?]*[a-zA-Z]", b"", screen).replace(b"\r", b"").decode()
            for screen in data.split(b"\033[H")[1:]]


def check_screens(data, rows, columns, part="members"):
    screens = screens_of(data)
    check(len(screens) >= 2, f"screens: {len(screens)}: {data!r}")
    for text in screens:
        lines = text.split("\n")
        check(len(lines) <= rows, f"{len(lines)} lines: {text!r}")
        check(all(len(line) <= columns for line in lines), f"too wide: {text!r}")
        check("pando top" in lines[0] and (part in text or "keys  " in text), f"screen: {text!r}")


class Screen:
    """A terminal with `pando top` in it."""

    def __init__(self, rows, columns, *arguments, **environment):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
        self.process = subprocess.Popen([PANDO, "top", "--interval", "100ms", *arguments], stdin=self.slave,
                                        stdout=self.slave, stderr=self.slave,
                                        env={**base, "TERM": "xterm", "LANG": "C.UTF-8", **environment})
        started.append(self.process)
        self.data = b""

    def until(self, text):
        """Reads on until a screen that came from now on is whole and has the text; that screen."""
        begin, end = len(self.data), time.monotonic() + 10
        while True:
            done = self.data[begin:].rsplit(b"\033[J", 1)[0]
            for screen in screens_of(done):
                if re.search(text, screen, re.MULTILINE):
                    return screen
            check(time.monotonic() < end, f"no {text!r} on the screen: {self.data[-4000:]!r}")
            self.data += read_for(self.master, 0.05)

    def press(self, key):
        os.write(self.master, key)

    def close(self):
        self.press(b"q")
        self.data += read_for(self.master, 0.3)
        check(self.process.wait(10) == 0, f"exit status {self.process.returncode}")
        os.close(self.master)
        os.close(self.slave)
        return self.data


def test_keys(pool, metrics):
    screen = Screen(24, 80, "--pool", pool, "--metrics", metrics)
    screen.until(r"^history     ops +\S\S+  at most [0-9.]+")
    text = screen.until(r"^            memory +\S+  at most [0-9.]+ [KM]iB")
    check(re.search(r"^            p99 +\S+  at most [0-9.]+ [um]?s", text, re.MULTILINE), text)
    check(re.search(r"[▁▂▃▄▅▆▇█]{2}", text), f"no bars: {text}")
    screen.press(b"h")
    check("operations  commands answered" in screen.until(r"^keys        h or \?"), "the help has no words")
    screen.press(b"x")
    screen.until(r"^commands    ")
    screen.press(b"t")
    text = screen.until(r"^tables      3$")
    check(re.search(r"^  db0 +dex +[0-9.]+ [KM]iB ", text, re.MULTILINE), text)
    screen.until(r"^tables      3$")
    screen.press(b"t")
    screen.until(r"^commands    ")
    data = screen.close()
    check(b"\033[32m" in data and b"\033[36m" in data, "no colours on a terminal")
    check_screens(data, 24, 80, part="")

    screen = Screen(24, 80, "--metrics", metrics)
    screen.until(r"^commands    ")
    screen.press(b"t")
    screen.until(r"^tables      not known: start it with --pool")
    screen.close()


def test_environment(metrics):
    """NO_COLOR, a terminal that knows nothing, and one without more than ASCII."""
    for environment, colored, blocks in (({}, True, True), ({"NO_COLOR": "1"}, False, True), ({"NO_COLOR": ""}, True, True),
                                         ({"TERM": "dumb"}, False, True), ({"LC_ALL": "C"}, True, False)):
        screen = Screen(30, 100, "--metrics", metrics, **environment)
        screen.until(r"^history     ops +\S\S+  at most [0-9.]+")
        data = screen.close()
        check((re.search(rb"\033\[[0-9;]*m", data) is not None) == colored, f"{environment}: {data[:2000]!r}")
        check(bool(re.search("[▁▂▃▄▅▆▇█]", data.decode())) == blocks, f"{environment}: {data[:2000]!r}")
        check_screens(data, 30, 100)


def test_terminal(rows, columns, arguments, end):
    """`end` makes it end; the terminal's settings and screen are then as before."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    before = termios.tcgetattr(slave)
    process = subprocess.Popen([PANDO, "top", "--interval", "200ms", *arguments], stdin=slave,
                               stdout=slave, stderr=slave)
    started.append(process)
    data = read_for(master, 1.2)
    check(termios.tcgetattr(slave) != before, "the terminal was not changed: nothing was tested")
    end(process, master)
    data += read_for(master, 0.6)
    check(process.wait(5) == 0, f"exit status {process.returncode}")
    check(data.startswith(b"\033[?1049h\033[?25l"), f"begins with {data[:40]!r}")
    check(data.rstrip().endswith(b"\033[?25h\033[?1049l"), f"ends with {data[-60:]!r}")
    check_screens(data, rows, columns)
    check(termios.tcgetattr(slave) == before, "the terminal's settings are not as they were")
    os.close(master)
    os.close(slave)


def main():
    start("memory", "--shm", PREFIX, "--size", "128M")
    line = start("serve", "--pool", f"shm:{PREFIX}", "--listen", "127.0.0.1:0", "--metrics", "0")
    host, port = re.search(r"ready at ([^,]*):(\d+)", line).groups()
    metrics = re.search(r"metrics at (\S+)", line)[1]
    load = Load((host, int(port)))
    load.start()
    test_once(f"shm:{PREFIX}", metrics)
    test_terminal(24, 80, ["--metrics", metrics], lambda process, master: os.write(master, b"q"))
    test_terminal(24, 80, ["--pool", f"shm:{PREFIX}", "--metrics", metrics],
                  lambda process, master: process.send_signal(signal.SIGTERM))
    test_terminal(11, 40, ["--metrics", metrics],
                  lambda process, master: process.send_signal(signal.SIGINT))
    test_keys(f"shm:{PREFIX}", metrics)
    test_environment(metrics)
    load.over = True
    load.join(5)
    print("top: ok")


try:
    main()
finally:
    for child in started:
        if child.poll() is None:
            child.kill()
            child.wait()
    for window in pathlib.Path("/dev/shm").glob(f"pando-{PREFIX}*"):
        window.unlink()
