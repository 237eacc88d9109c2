#!/usr/bin/env python3
"""SIGHUP: servers and memory nodes read their certificates again and open their log files again, servers also
the passwords of their clients. What is connected goes on, a file that cannot be read leaves the former in use,
and a terminal that is closed still ends a server that was started in it.

reload.py BUILD
"""
import contextlib
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

AGAIN, STAYS = "SIGHUP: read its files again", "stays in use"


def openssl(*words, text=None):
    subprocess.run(["openssl", *map(str, words)], input=text, text=True, check=True, capture_output=True)


class Certificates:
    """An authority, and as many certificates of it as are wanted; those in use are `now`."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        self.ca, self.ca_key = folder / "ca.pem", folder / "ca.key"
        self.cert, self.key = folder / "now.pem", folder / "now.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", "/CN=authority", "-keyout", self.ca_key, "-out", self.ca)
        self.renew()

    def renew(self):
        self.count += 1
        key, request, cert, names = (self.folder / f"{self.count}.{end}" for end in ("key", "csr", "pem", "ext"))
        names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/CN=number-{self.count}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-days", "2",
                "-extfile", names, "-out", cert)
        os.chmod(key, 0o600)
        for source, target in ((key, self.key), (cert, self.cert)):
            shutil.copy2(source, target)

    def context(self):
        context = ssl.create_default_context(cafile=str(self.ca))
        context.check_hostname = False
        return context

    def shown_by(self, port):
        """The name on the certificate that a new connection is shown."""
        with socket.create_connection(("127.0.0.1", port), 20) as plain:
            with self.context().wrap_socket(plain) as secure:
                subject = secure.getpeercert()["subject"]
                with contextlib.suppress(OSError):  # it may have closed already
                    secure.unwrap()
        return dict(pair for group in subject for pair in group)["commonName"]


def said(child):
    return child.log.read_text(errors="replace")


def hang_up(processes, child, word):
    """Sends SIGHUP and waits until the process has said so once more."""
    before = said(child).count(word)
    child.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while said(child).count(word) == before:
        assert child.poll() is None, f"SIGHUP ended it ({child.returncode}): {said(child)}"
        assert time.monotonic() < end, said(child)
        time.sleep(0.02)


def certificates(processes, build):
    ours = Certificates(processes.directory)
    secret = processes.secret()
    tls = ["--tls-cert", ours.cert, "--tls-key", ours.key, "--tls-ca", ours.ca]
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret, *tls[:4])
    port = int(memory.address.rsplit(":", 1)[1])
    server = processes.start([build / "pando", "serve", "--pool", f"tcp:{memory.address}", "--secret-file", secret, *tls,
                              "--listen", "none", "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", ours.cert,
                              "--serve-tls-key", ours.key], "server")
    ready = processes.wait_for(server, " ready at ")
    tls_port = int(ready.split("tls:")[1].split()[0].rsplit(":", 1)[1])
    early = lib.Connection(tls_port, wrap=ours.context().wrap_socket)
    assert early("set", "key", "early") == "OK"
    assert [ours.shown_by(port), ours.shown_by(tls_port)] == ["number-1"] * 2

    ours.renew()
    for child, its_port in ((memory, port), (server, tls_port)):
        assert ours.shown_by(its_port) == "number-1"
        hang_up(processes, child, AGAIN)
        assert ours.shown_by(its_port) == "number-2"
    assert early("get", "key") == b"early" and early("set", "key", "late") == "OK"
    status = subprocess.run([build / "pando", "status", "--pool", f"tcp:{memory.address}", "--secret-file", secret, *tls],
                            capture_output=True, text=True, timeout=60)
    assert status.returncode == 0, status.stderr

    # A certificate that is cut off, and one that does not go with its key.
    ours.cert.write_text(ours.cert.read_text()[:200])
    for child, its_port in ((memory, port), (server, tls_port)):
        hang_up(processes, child, STAYS)
        assert str(ours.cert) in said(child), said(child)
        assert ours.shown_by(its_port) == "number-2"
    shutil.copy2(processes.directory / "1.pem", ours.cert)
    for child, its_port in ((memory, port), (server, tls_port)):
        hang_up(processes, child, STAYS)
        assert ours.shown_by(its_port) == "number-2"
    ours.renew()
    for child, its_port in ((memory, port), (server, tls_port)):
        hang_up(processes, child, AGAIN)
        assert ours.shown_by(its_port) == "number-3"
    assert early("get", "key") == b"late"
    early.close()
    for child in (server, memory):
        child.terminate()
        assert child.wait(20) == 0, said(child)


def log_files(processes, build):
    folder = processes.directory / "logs"
    folder.mkdir()
    secret = processes.secret("log-secret")
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret,
                                    "--log-level", "debug", "--log-format", "json", "--log-file", folder / "memory.log",
                                    name="log-memory")
    server = processes.start_pando(build, "--secret-file", secret, "--log-level", "debug", "--log-format", "json",
                                   "--log-file", folder / "serve.log", pool=f"tcp:{memory.address}", name="log-serve")
    call = lib.Connection(server.port)
    for child, name in ((memory, "memory.log"), (server, "serve.log")):
        path, former = folder / name, folder / f"{name}.1"
        assert path.stat().st_mode & 0o777 == 0o600
        path.rename(former)
        hang_up(processes, child, AGAIN)
        lines = [json.loads(line) for line in (former.read_text() + path.read_text()).splitlines()]
        assert all({"time", "level", "msg"} <= set(line) for line in lines), lines
        assert AGAIN in path.read_text() and AGAIN not in former.read_text()
        # A folder that is away: the file stays, and that is said.
        folder.rename(processes.directory / "away")
        hang_up(processes, child, STAYS)
        (processes.directory / "away").rename(folder)
        assert STAYS in path.read_text()
    assert call("ping") == "PONG"
    call.close()
    for child in (server, memory):
        child.terminate()
        assert child.wait(20) == 0, said(child)


def lets_in(port, user, password):
    call = lib.Connection(port)
    try:
        return call("auth", user, password) == "OK"
    except lib.Error as error:
        assert str(error).startswith("WRONGPASS"), error
        return False
    finally:
        call.close()


def passwords(processes, build):
    files = {"default": processes.secret("clients"), "readonly": processes.secret("readers")}
    server = processes.start_pando(build, "--password-file", files["default"], "--readonly-password-file",
                                   files["readonly"], name="guarded")
    port = server.port
    early = {}
    for user, file in files.items():
        former = file.read_text()
        early[user] = lib.Connection(port)
        assert early[user]("auth", user, former) == "OK"
        processes.secret(file.name)
        assert lets_in(port, user, former) and not lets_in(port, user, file.read_text())
        hang_up(processes, server, AGAIN)
        assert lets_in(port, user, file.read_text()), f"{user}: the new password is not known"
        assert not lets_in(port, user, former), f"{user}: the former password is let in"
        assert early[user]("get", "key") is None

    # The later of CONFIG SET and the file counts: a file that is as it was brings nothing back.
    by_command, in_file = "set-by-a-command-1", files["default"].read_text()
    assert early["default"]("config", "set", "requirepass", by_command) == "OK"
    hang_up(processes, server, AGAIN)
    assert lets_in(port, "default", by_command) and not lets_in(port, "default", in_file)
    assert early["default"]("config", "set", "requirepass", "") == "OK"
    hang_up(processes, server, AGAIN)
    assert lib.Connection(port)("ping") == "PONG"
    in_file = processes.secret("clients").read_text()
    hang_up(processes, server, AGAIN)
    assert lets_in(port, "default", in_file) and not lets_in(port, "default", by_command)

    # What others may read, and what is gone, leaves the former: one line for each SIGHUP.
    for user, file in files.items():
        former = file.read_text()
        processes.secret(file.name).chmod(0o644)
        refused = file.read_text()
        before = said(server).splitlines()
        hang_up(processes, server, STAYS)
        new = said(server).splitlines()[len(before):]
        assert len([line for line in new if "SIGHUP" in line]) == 1 and str(file) in new[-1], new
        assert lets_in(port, user, former) and not lets_in(port, user, refused)
        file.unlink()
        hang_up(processes, server, STAYS)
        assert lets_in(port, user, former)
        processes.secret(file.name, former)
    server.terminate()
    assert server.wait(20) == 0, said(server)


def in_terminal(build, *, nohup):
    """A server as the only program of a terminal: its process id, and the terminal's other end."""
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        os.execv(build / "pando", ["pando", "serve", "--pool", "embedded:64M", "--listen", "127.0.0.1:0"])
    read_until(master, b" ready at ")
    return pid, master


def read_until(master, text):
    data, end = b"", time.monotonic() + 20
    while text not in data:
        assert select.select([master], [], [], max(0, end - time.monotonic()))[0], data
        data += os.read(master, 4096)
    return data


def ended(pid, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


def terminals(_processes, build):
    pid, master = in_terminal(build, nohup=False)
    try:
        os.kill(pid, signal.SIGHUP)
        read_until(master, AGAIN.encode())
        os.close(master)
        assert ended(pid, 20) == 0, "a server outlives its terminal"
        pid, master = in_terminal(build, nohup=True)
        os.close(master)
        assert ended(pid, 1) is None, "nohup does not help"
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main():
    build = lib.build_directory()
    lib.need("openssl", "openssl")
    with lib.Processes() as processes:
        for scene in (certificates, passwords, log_files, terminals):
            scene(processes, build)
            print(f"{scene.__name__}: ok")


if __name__ == "__main__":
    main()
