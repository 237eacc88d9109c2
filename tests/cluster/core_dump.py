#!/usr/bin/env python3
"""What a core dump would have of servers at work: neither the pool's secret, nor a password, also when clients
have given, set and read it, nor a private key, nor values of users that lie in windows. Looks at the memory
itself, as the kernel does when it writes one: all that is private or anonymous, but for what is marked to be
left out."""
import os
import pathlib
import re
import ssl
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
from lib import Connection, Processes, build_directory, need, skip  # noqa: E402

BUILD = build_directory()
CHUNK = 1 << 24
LIMIT = 1 << 30  # a mapping larger than that would be of no use to look at


def dumped(pid):
    """Beginning and end of each mapping that a core dump has."""
    found = None
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        mapping = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+)", line)
        if mapping:
            found = int(mapping[1], 16), int(mapping[2], 16), mapping[3], mapping[4] != "0"
        elif line.startswith("VmFlags:"):
            begin, end, permissions, file = found
            shared_file = "s" in permissions and file
            if "r" in permissions and not shared_file and "dd" not in line.split() and "io" not in line.split():
                yield begin, end


def occurrences(pid, wanted):
    """For each name, where its bytes are in what would be dumped; and how much was looked at."""
    places, looked = {name: [] for name in wanted}, 0
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end in dumped(pid):
            for at in range(begin, min(end, begin + LIMIT), CHUNK):
                try:
                    memory.seek(at)
                    part = memory.read(min(CHUNK + 256, end - at))
                except (OSError, ValueError, OverflowError):
                    continue  # such as [vvar]
                looked += len(part)
                for name, word in wanted.items():
                    if word in part:
                        places[name].append(hex(at + part.index(word)))
    return places, looked


def private_bytes(key):
    """What must stay secret of an RSA or EC key: its exponent or number, and the primes."""
    text = subprocess.run(["openssl", "pkey", "-in", key, "-noout", "-text"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout
    numbers = {}
    for name, digits in re.findall(r"^(priv|privateExponent|prime1|prime2):\n((?: +[0-9a-f:]+\n)+)", text, re.M):
        number = bytes.fromhex(re.sub(r"[\s:]", "", digits)).lstrip(b"\0")
        numbers[name] = number[:24]
        numbers[name + ", as a number of the machine"] = number[::-1][:24]
    assert numbers, text
    return numbers


def certificate(processes, kind, *options):
    key, cert = processes.directory / f"{kind}.key", processes.directory / f"{kind}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", kind, *options, "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True,
                   stderr=subprocess.DEVNULL)
    key.chmod(0o600)
    return cert, key


def look(child, what, wanted):
    places, looked = occurrences(child.pid, wanted)
    assert looked > 1 << 20, f"only {looked} bytes of the {what} could be looked at"
    found = {name: where for name, where in places.items() if where}
    print(f"{what}: {looked >> 20} MiB looked at, {len(wanted)} secrets, found: {found or 'none'}")
    return found


def in_pieces(client, request, at):
    """Sent so that the server reads the first part alone."""
    client.socket.sendall(request[:at])
    time.sleep(0.05)
    client.socket.sendall(request[at:])


def give_passwords(server, given, readonly, certificate):
    """In every way in which a password comes to the server or goes out of it. Returns those that were set, as what to
    look for, and clients that stay, as their buffers might."""
    long = os.urandom(1500).hex().encode()
    words, clients = {"long, begin": long[:48], "long, end": long[-48:]}, []

    def client(wrap=None, port=None):
        clients.append(Connection(port or server.port, wrap=wrap))
        return clients[-1]

    def new(name):
        words[name] = os.urandom(24).hex().encode()
        return words[name]

    context = ssl.create_default_context(cafile=certificate)
    first = client()
    assert first("auth", given) == "OK"
    assert first("config", "get", "requirepass") == [b"requirepass", given]
    tls = client(lambda raw: context.wrap_socket(raw, server_hostname="127.0.0.1"), server.tls_port)
    assert tls("auth", given) == "OK" and tls("config", "get", "*pass")[1] == given
    in_pieces(tls, Connection.encode("auth", "default", given), 60)
    assert tls.read() == "OK"
    assert client()("hello", 3, "auth", "readonly", readonly)[b"proto"] == 3
    # In a pipeline, between values: what comes behind moves what was before.
    pipe = client()
    assert pipe("auth", given) == "OK"
    requests = [Connection.encode("set", "filler", b"x" * 9000), Connection.encode("auth", given)] * 20
    in_pieces(pipe, b"".join(requests), sum(map(len, requests[:8])) - 30)
    assert {pipe.read() for _ in requests} == {"OK"}
    in_pieces(pipe, Connection.encode("config", "set", "requirepass", new("set in pieces")), 55)
    assert pipe.read() == "OK"
    line = client()  # unescaped where it lies, which is shorter
    line.socket.sendall(b'auth "\\x%02x%s"\r\n' % (words["set in pieces"][0], words["set in pieces"][1:]))
    assert line.read() == "OK"
    half = client()  # it has a part of it
    half.socket.sendall(b'config set requirepass "' + words["set in pieces"])
    unquoted = client()
    assert unquoted("auth", words["set in pieces"]) == "OK"
    unquoted.socket.sendall(b'config set requirepass "' + new("no end of quotes") + b"\r\n")
    assert b"unbalanced quotes" in unquoted.read_raw()
    assert first("config", "set", "requirepass", long) == "OK"
    stranger = client()
    in_pieces(stranger, Connection.encode("auth", long), 2500)
    assert stranger.read() == "OK" and stranger("config", "get", "requirepass")[1] == long
    silent = client()
    assert silent("auth", long) == "OK"
    silent.send("client", "reply", "off")
    silent.send("config", "get", "requirepass")
    silent.send("client", "reply", "on")
    assert silent.read() == "OK"
    refused = client()
    refused.send("config", "set", "requirepass", new("of a stranger"))
    assert refused.read_raw().startswith(b"-NOAUTH")
    half.close()  # in the middle
    gone = client()
    gone.socket.sendall(Connection.encode("auth", long)[:2800])
    time.sleep(0.05)
    gone.close()
    assert first("config", "set", "requirepass", new("set last")) == "OK"
    time.sleep(0.2)
    return words, clients


def main():
    need("openssl", "openssl")
    bad = {}
    with Processes() as processes:
        secret, password, readonly = (processes.secret(name) for name in ("secret", "password", "readonly"))
        ec, rsa = certificate(processes, "ec", "-pkeyopt", "ec_paramgen_curve:P-256"), certificate(processes, "rsa:2048")
        tls = ["--tls-cert", ec[0], "--tls-key", ec[1]]
        memory = processes.start_memory(BUILD, "--listen", "127.0.0.1:0", "--size", "256M", "--secret-file", secret, *tls)
        server = processes.start_pando(
            BUILD, "--secret-file", secret, "--tls-ca", ec[0], "--password-file", password,
            "--readonly-password-file", readonly, "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", rsa[0],
            "--serve-tls-key", rsa[1], "--peer-listen", "none", pool=f"tcp:{memory.address}")
        client = Connection(server.port)
        client.send("AUTH", "not-the-password")
        assert client.read_raw().startswith(b"-WRONGPASS")
        try:
            pathlib.Path(f"/proc/{memory.pid}/mem").open("rb").close()
        except PermissionError:
            skip("the memory of another process may not be looked at here")
        words = {path.name: path.read_bytes() for path in (secret, password, readonly)}
        bad |= look(memory, "memory node", {**words, **private_bytes(ec[1])})
        bad |= look(server, "server", {**words, **private_bytes(rsa[1])})
        given, clients = give_passwords(server, words["password"], words["readonly"], rsa[0])
        bad |= look(server, "server that was given passwords", {**words, **given})
        for each in (client, *clients):
            each.close()
    assert not bad, "a core dump would have secrets"
    print("core_dump: ok")


main()
