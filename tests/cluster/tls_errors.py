#!/usr/bin/env python3
"""Clients that end a TLS connection badly disturb nobody else: others close without close_notify, or send records
and hellos that are garbage, to a server's TLS port and to a memory node. Connections of the same thread stay, and
commands in the TLS pool succeed. (OpenSSL keeps one queue of errors for each thread.) And clients that come back
with the TLS session they had are served; where they have certificates, these are looked at again.

tls_errors.py BUILD
"""
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

INNOCENT, ROUNDS, COMMANDS = 60, 6, 12
WAIT_S = 20
BAD_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)
BAD_HELLO = b"\x16\x03\x01\x00\x20" + bytes(32)


def certificate(directory):
    lib.need("openssl", "openssl")
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                           "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                           directory / "key.pem", "-out", directory / "cert.pem"], capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    (directory / "key.pem").chmod(0o600)
    return directory / "cert.pem", directory / "key.pem"


def raw_of(wrapped):
    """The socket below TLS: what is sent there is no record of that connection."""
    return socket.socket(fileno=os.dup(wrapped.fileno()))


def until_closed(raw):
    """Reads until the other side is done with it."""
    raw.settimeout(WAIT_S)
    try:
        while raw.recv(4096):
            pass
    except ConnectionError:
        pass


def shake_hands(context, port):
    plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def bad_record(context, port):
    wrapped = shake_hands(context, port)
    raw = raw_of(wrapped)
    raw.sendall(BAD_RECORD)
    until_closed(raw)
    raw.close()
    wrapped.close()


def bad_hello(_, port):
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as raw:
        raw.sendall(BAD_HELLO)
        until_closed(raw)


def cut_off(context, port):
    """No close_notify. Only this direction is shut at first: a close with bytes unread would be a reset."""
    wrapped = shake_hands(context, port)
    raw = raw_of(wrapped)
    raw.shutdown(socket.SHUT_WR)
    until_closed(raw)
    raw.close()
    wrapped.close()


OFFENCES = (bad_record, bad_hello, cut_off)


def server_scene(processes, build, context, cert, key):
    server = processes.start_pando(build, "--threads", "1", "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", cert,
                                   "--serve-tls-key", key, pool="embedded:64M", name="serve")
    line = processes.wait_for(server, " ready at ")
    port = int(line.split(" and tls:")[1].split()[0].rstrip(",").rsplit(":", 1)[1])
    innocent = [lib.Connection(port, wrap=lambda plain: context.wrap_socket(plain, server_hostname="127.0.0.1"))
                for _ in range(INNOCENT)]
    assert all(call("ping") == "PONG" for call in innocent)
    lost = {}
    for turn in range(ROUNDS):
        offence = OFFENCES[turn % len(OFFENCES)]
        offence(context, port)
        for number, call in enumerate(innocent):
            if number in lost:
                continue
            try:
                for _ in range(2):
                    assert call("ping") == "PONG"
            except (OSError, EOFError) as error:
                lost[number] = f"{offence.__name__}: {error!r}"
    assert not lost, f"server: {len(lost)} of {INNOCENT} innocent connections were lost, the first by {next(iter(lost.items()))}"
    print(f"server: {INNOCENT} innocent connections stayed while {ROUNDS} others ended badly")


def pool_scene(processes, build, context, cert, key):
    secret = processes.secret()
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "128M", "--secret-file", secret,
                                    "--tls-cert", cert, "--tls-key", key)
    port = int(memory.address.rsplit(":", 1)[1])
    pool = ("--secret-file", secret, "--tls-ca", cert, "--log-level", "warn")
    server = processes.start_pando(build, *pool, "--peer-listen", "none", pool=f"tcp:{memory.address}", name="member")
    call = lib.Connection(server.port)
    for turn in range(ROUNDS):
        OFFENCES[turn % len(OFFENCES)](context, port)
        assert call("set", f"key{turn}", turn) == "OK"
        assert call("get", f"key{turn}") == b"%d" % turn
    broken = [line for line in server.log.read_text().splitlines() if "endpoint broken" in line]
    assert not broken, f"memory node: a member's connections were cut, {len(broken)} times: {broken[0]}"
    for number in range(COMMANDS):
        offence = OFFENCES[number % len(OFFENCES)]
        command = subprocess.Popen([build / "pando", "table", "list", "--pool", f"tcp:{memory.address}", *pool],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while command.poll() is None:
            offence(context, port)
        out = command.communicate()[0]
        assert command.returncode == 0 and "endpoint broken" not in out, f"command {number}, {offence.__name__}: {out}"
    text = server.log.read_text()
    assert "recovering a dead member" not in text, f"a command left as if it had died:\n{text}"
    print(f"memory node: a member and {COMMANDS} commands worked while others ended badly")


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def authority(directory, name):
    """An authority, and a context of a client with a certificate of it."""
    ca, ca_key, request, cert, key = (directory / f"{name}-{end}" for end in ("ca.pem", "ca.key", "csr", "cert.pem", "key.pem"))
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new, "-days", "2", "-subj", f"/CN={name}", "-keyout", ca_key, "-out", ca)
    openssl("req", *new, "-subj", f"/CN=client-{name}", "-keyout", key, "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-out", cert)
    return ca, (cert, key)


def come_back(context, port, session=None):
    """A connection that gives the session of a former one: what PING is answered, whether that was resumed, and the
    session it has then."""
    wrap = lambda plain: context.wrap_socket(plain, server_hostname="127.0.0.1", session=session)  # noqa: E731
    try:
        call = lib.Connection(port, wrap=wrap)
        said = call("ping")
    except (OSError, EOFError) as error:
        return repr(error), False, None
    resumed, kept = call.socket.session_reused, call.socket.session
    call.close()
    return said, resumed, kept


def hang_up(child):
    """SIGHUP, until the process says that it has read its files again."""
    word = "SIGHUP: read its files again"
    before = child.log.read_text().count(word)
    child.send_signal(signal.SIGHUP)
    end = time.monotonic() + WAIT_S
    while child.log.read_text().count(word) == before:
        assert child.poll() is None and time.monotonic() < end, child.log.read_text()
        time.sleep(0.02)


def sessions_scene(processes, build, context, cert, key):
    """Sessions of a server that asks for certificates are not resumed: the certificate is looked at each time, so that
    its expiry, and an authority that is taken away, count at once. Where it asks for none they are, until SIGHUP."""
    directory = processes.directory
    first, one = authority(directory, "first")
    second, two = authority(directory, "second")
    trusted = directory / "trusted.pem"
    shutil.copy(first, trusted)
    options = ["--log-level", "info", "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", cert, "--serve-tls-key", key]
    server = processes.start_pando(build, *options, "--serve-tls-ca", trusted, pool="embedded:64M", name="asks")
    contexts = [ssl.create_default_context(cafile=cert) for _ in range(2)]
    for mine, pair in zip(contexts, (one, two)):
        mine.load_cert_chain(*pair)
    said, _, session = come_back(contexts[0], server.tls_port)
    assert said == "PONG", f"a client with a certificate: {said}"
    for _ in range(3):
        said, resumed, session = come_back(contexts[0], server.tls_port, session)
        assert (said, resumed) == ("PONG", False), f"a client with a certificate that comes back: {said}, resumed: {resumed}"
    assert come_back(contexts[1], server.tls_port)[0] != "PONG", "a certificate of nobody who is trusted"
    shutil.copy(second, trusted)
    hang_up(server)
    said, resumed, _ = come_back(contexts[0], server.tls_port, session)
    assert said != "PONG", f"a session outlived its authority: {said}, resumed: {resumed}"
    assert come_back(contexts[1], server.tls_port)[0] == "PONG", "a certificate of the new authority"

    server = processes.start_pando(build, *options, pool="embedded:64M", name="asks-nothing")
    said, _, session = come_back(context, server.tls_port)
    said, resumed, session = come_back(context, server.tls_port, session)
    assert (said, resumed) == ("PONG", True), f"a client without a certificate that comes back: {said}, resumed: {resumed}"
    hang_up(server)
    said, resumed, _ = come_back(context, server.tls_port, session)
    assert (said, resumed) == ("PONG", False), f"after SIGHUP: {said}, resumed: {resumed}"
    print("sessions: clients with certificates show them each time, others resume until SIGHUP")


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        cert, key = certificate(processes.directory)
        context = ssl.create_default_context(cafile=cert)
        failures = []
        for scene in (server_scene, pool_scene, sessions_scene):
            try:
                scene(processes, build, context, cert, key)
            except AssertionError as failure:
                failures.append(str(failure))
        assert not failures, "\n".join(failures)


if __name__ == "__main__":
    main()
