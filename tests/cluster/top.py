#!/usr/bin/env python3
"""pando top: what it prints is true, the screen fits a terminal of 80 by 24 and a smaller one, and the
terminal is left as it was, whichever way it ends."""
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


def test_once(pool, metrics):
    code, text, error = once("--metrics", metrics, "--interval", "300ms")
    check(code == 0 and not error, f"--once: {code}: {error}")
    check("\033" not in text, "--once prints escape sequences")
    rate = re.search(r"^operations  ([0-9.]+)(| k| M)/s   errors 0/s   clients 1   servers 1", text,
                     re.MULTILINE)
    check(rate and float(rate[1]) > 0, text)
    check(re.search(r"^latency     p50 [0-9.]+ [um]s   p90 ", text, re.MULTILINE), text)
    check(re.search(r"^commands    (set|get) [0-9.]+( k|)/s \(", text, re.MULTILINE), text)
    check(re.search(r"^fabric .* [0-9.]*[1-9][0-9]* round trips, [0-9.]+ READ, [0-9.]*[1-9][0-9]* WRITE", text, re.MULTILINE),
          text)
    check(re.search(r"^node 0  .*\[#*\.+\] +[0-9.]+ %", text, re.MULTILINE), text)
    check(re.search(r"alive  .* pando serve$", text, re.MULTILINE), text)

    code, text, error = once("--pool", pool, "--interval", "300ms")
    check(code == 0, f"--pool: {code}: {error}")
    check("operations" not in text, f"--pool alone knows of no operations: {text}")
    check(re.search(r"^node 0  ", text, re.MULTILINE), text)
    check(re.search(r"alive  .* pando serve$", text, re.MULTILINE), text)
    check(re.search(r"alive  .* pando top$", text, re.MULTILINE), text)
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


def check_screens(data, rows, columns):
    screens = data.split(b"\033[H")[1:]
    check(len(screens) >= 2, f"screens: {len(screens)}: {data!r}")
    for screen in screens:
        text = re.sub(rb"\033\[[0-9;?]*[a-zA-Z]", b"", screen).replace(b"\r", b"")
        lines = text.split(b"\n")
        check(len(lines) <= rows, f"{len(lines)} lines: {text!r}")
        check(all(len(line) <= columns for line in lines), f"too wide: {text!r}")
        check(b"pando top" in lines[0] and b"members" in text, f"screen: {text!r}")


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
