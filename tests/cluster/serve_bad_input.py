#!/usr/bin/env python3
"""What clients should not send, to a real `pando serve`: it answers as Redis does or clearly, and goes on
serving everybody else."""
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

BUILD = lib.build_directory()
CHECKS = 0
TABLES_OF_64M = (64 << 20) // (32 << 10)  # each 32 KiB of node 0 has room for one


def expect(what, found, wanted):
    global CHECKS
    CHECKS += 1
    matches = found.startswith(wanted) if isinstance(wanted, bytes) and isinstance(found, bytes) else found == wanted
    if not matches:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def talk(port, data, timeout=5):
    """Everything the server says until it closes, or a second passes in silence."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as peer:
        peer.sendall(data)
        peer.settimeout(1)
        said = b""
        try:
            while True:
                piece = peer.recv(65536)
                if not piece:
                    return said, True
                said += piece
        except socket.timeout:
            return said, False
        except ConnectionResetError:
            return said, True


def error_of(call, *words):
    try:
        return f"no error: {call(*words)!r}"
    except lib.Error as error:
        return str(error)


def protocol(port):
    cases = [
        (b"*1\r\n$629145600\r\n", b"-ERR Protocol error: invalid bulk length\r\n", True),
        (b"*2\r\n$3\r\nGET\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length\r\n", True),
        (b"*3\r\n$3\r\nSET\r\nx\r\n", b"-ERR Protocol error: expected '$', got 'x'\r\n", True),
        (b"*abc\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", True),
        (b"*99999999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", True),
        (b"*2\r\n$abc\r\n", b"-ERR Protocol error: invalid bulk length\r\n", True),
        (b"SET a \"unbalanced\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", True),
        (b"x" * 70000, b"-ERR Protocol error: too big inline request\r\n", True),
        (b"*1\r\n$" + b"1" * 70000, b"-ERR Protocol error: too big bulk count string\r\n", True),
        (b"*" + b"1" * 70000, b"-ERR Protocol error: too big mbulk count string\r\n", True),
        (b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n$x", b"+PONG\r\n+PONG\r\n", False),
        (b"PING\r\n*1\r\n$x\r\n", b"+PONG\r\n-ERR Protocol error: invalid bulk length\r\n", True),
        (b"\r\n\r\n*0\r\n*-1\r\nPING\r\n", b"+PONG\r\n", False),
        (b"*2\r\n$4\r\nECHO\r\n$5\r\nhal", b"", False),
        (b"SET inline 'it''s'\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", True),
        (b"SET inline \"\\x41\\n\"\r\nGET inline\r\n", b"+OK\r\n$2\r\nA\n\r\n", False),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"-ERR Protocol error: this port does not speak TLS\r\n", True),
        (b"\x01\x02\xfe\xff \x80\x81 \x00\r\n", b"-ERR unknown command", False),
    ]
    for sent, wanted, closes in cases:
        said, closed = talk(port, sent)
        expect(f"reply to {sent[:40]!r}", said, wanted if wanted else b"")
        if not wanted:
            expect(f"silence after {sent[:40]!r}", said, b"")
        expect(f"closed after {sent[:40]!r}", closed, closes)


def unheard(peer, data):
    """What a client is told until the server closes, or does not."""
    peer.settimeout(10)
    said = b""
    try:
        peer.sendall(data)
        while piece := peer.recv(65536):
            said += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    except socket.timeout:
        said += b" (not closed)"
    return said


def web_pages(port, log, call, wrap=lambda raw: raw, before=b""):
    """A page that has a browser send lines to the server's port changes nothing: the connection ends at the first
    word that only HTTP has, without a reply to it, and what came behind it is not run."""
    expect("log level", call("config", "set", "loglevel", "warning"), "OK")
    pwned = b"SET pwned 1\r\nSET pwned:2 1\r\n" + call.encode("set", "pwned:3", "1")
    headers = b"Host: 127.0.0.1:6380\r\nContent-Length: 100\r\nOrigin: http://example.org\r\n\r\n"
    for begin in (b"POST / HTTP/1.1\r\n" + headers, b"post / HTTP/1.1\r\n", b"PUT / HTTP/1.1\r\n" + headers,
                  b"GET / HTTP/1.1\r\n" + headers, b"hOsT: x\r\n", call.encode("POST", "/"), call.encode("host:"),
                  b"MULTI\r\nPOST / HTTP/1.1\r\n", b"CLIENT REPLY OFF\r\nPOST / HTTP/1.1\r\n",
                  b"GET a\r\nGET b\r\nGET c\r\nPOST / HTTP/1.1\r\n"):
        said = unheard(wrap(socket.create_connection(("127.0.0.1", port))), before + begin + pwned)
        expect(f"keys set after {begin[:40]!r}", call("exists", "pwned", "pwned:2", "pwned:3"), 0)
        expect(f"reply to {begin[:40]!r}", b"post" in said.lower() or b"host:" in said.lower(), False)
        expect(f"closed after {begin[:40]!r}", b"not closed" in said, False)
    # What came before it in packets of its own was answered; and the page's lines may come later.
    first = lib.Connection(port, wrap=wrap)
    first.socket.sendall(before + b"SET page a\r\nGET page\r\n")
    expect("before it", [first.read() for _ in range(before.count(b"\n") + 2)][-1], b"a")
    first.send("multi")
    expect("before it", first.read(), "OK")
    expect("the end", unheard(first.socket, b"POST / HTTP/1.1\r\n"), b"")
    expect("others", (call("get", "page"), call("del", "page")), (b"a", 1))
    expect("in the log", "client closed: it speaks HTTP" in log.read_text(), True)
    expect("no command", error_of(call, "host", "x"), "ERR unknown command 'host', with args beginning with: 'x' ")
    expect("no command", error_of(call, "posts"), "ERR unknown command 'posts', with args beginning with: ")


def web_pages_everywhere(processes):
    """Also before a password is given, over TLS, and where commands of a connection overlap (a pool on tcp)."""
    guarded = processes.start_guarded(BUILD)
    call = lib.Connection(guarded.port)
    expect("in", call("auth", guarded.password), "OK")
    context = ssl.create_default_context(cafile=guarded.certificate)
    wrap = lambda raw: context.wrap_socket(raw, server_hostname="127.0.0.1")  # noqa: E731
    auth = b"AUTH %s\r\n" % guarded.password.encode()
    web_pages(guarded.tls_port, guarded.log, call, wrap, auth)
    for port, wrapped in ((guarded.port, lambda raw: raw), (guarded.tls_port, wrap)):
        for begin in (b"POST / HTTP/1.1\r\n", b"Host: x\r\n", call.encode("post")):
            said = unheard(wrapped(socket.create_connection(("127.0.0.1", port))), begin + auth + b"SET pwned 1\r\n")
            expect(f"before the password: {begin!r}", (said, call("exists", "pwned")), (b"", 0))
    secret = processes.secret("secret-web")
    memory = processes.start_memory(BUILD, "--listen", "127.0.0.1:0", "--size", "64M", "--secret-file", secret,
                                    name="memory-web")
    server = processes.start_pando(BUILD, "--secret-file", secret, pool=f"tcp:{memory.address}", name="web")
    web_pages(server.port, server.log, lib.Connection(server.port))
    for child in (guarded, server, memory):
        child.terminate()
        child.wait(20)


def values(call):
    expect("key of 1024 bytes", call("set", b"k" * 1024, "v"), "OK")
    expect("key of 1025 bytes", error_of(call, "set", b"k" * 1025, "v"),
           "ERR key of 1025 bytes: keys have at most 1024 here")
    expect("reading it", call("get", b"k" * 1025), None)
    expect("deleting it", call("del", b"k" * 1025, b"k" * 1024), 1)
    expect("mset of it", error_of(call, "mset", "fine", "1", b"k" * 1025, "v"),
           "ERR key of 1025 bytes: keys have at most 1024 here")
    expect("nothing was set", call("exists", "fine"), 0)
    for key in (b"", b"\x00", b"\xff" * 9, b"\r\n", bytes(range(256))):
        expect("binary key", call("set", key, b"value of " + key), "OK")
        expect("binary key", call("get", key), b"value of " + key)
    for value in (b"", b"\xf8", b"\xf9" * 8, b"\xf9" * 9, b"\xff" * 300, b"\x00" * 70000):
        expect("binary value", call("set", "binary", value), "OK")
        expect("binary value", call("get", "binary"), value)
        expect("its size", call("strlen", "binary"), len(value))
    large = os.urandom(1 << 20) * 15
    expect("15 MB", call("set", "large", large), "OK")
    expect("15 MB", call("get", "large") == large, True)
    expect("15 MB and as many", call("append", "large", large), 2 * len(large))
    expect("all there", call("strlen", "large"), 2 * len(large))
    expect("setrange far away", error_of(call, "setrange", "large", 536870912, "x"),
           "ERR string exceeds maximum allowed size (proto-max-bulk-len)")
    expect("a long value as a number", error_of(call, "incr", "large"), "ERR value is not an integer or out of range")
    expect("a long old value", error_of(call, "getdel", "large"),
           "ERR 'getdel' takes no old values of more than 16777216 bytes")
    call("del", "large", "binary")
    call("set", "n", "9223372036854775807")
    expect("overflow", error_of(call, "incr", "n"), "ERR increment or decrement would overflow")
    expect("overflow", error_of(call, "decrby", "n", "-9223372036854775808"), "ERR decrement would overflow")
    call("set", "n", "abc")
    expect("no number", error_of(call, "incr", "n"), "ERR value is not an integer or out of range")
    expect("no float", error_of(call, "incrbyfloat", "n", "1"), "ERR value is not a valid float")
    expect("unknown command", error_of(call, "lpush", "n", "1"),
           "ERR unknown command 'lpush', with args beginning with: 'n' '1' ")
    expect("arity", error_of(call, "get"), "ERR wrong number of arguments for 'get' command")


def ranges(call):
    expect("create", call("ri.create", "idx", "keymax", "32"), "OK")
    expect("create again", error_of(call, "ri.create", "idx"), "ERR index already exists")
    expect("engine", error_of(call, "ri.create", "other", "engine", "nosuch")[:33], "ERR no engine is called 'nosuch';")
    expect("key max", error_of(call, "ri.create", "other", "keymax", "5000"), "ERR KEYMAX is not from 1 to 1024")
    expect("no index", error_of(call, "ri.get", "nosuch", "a"),
           "ERR no such index 'nosuch': it was dropped, or never made; make it with RI.CREATE")
    expect("long key", error_of(call, "ri.set", "idx", "k" * 33, "v"),
           "ERR key of 33 bytes: this index has keys of at most 32")
    expect("name", error_of(call, "ri.create", "a b")[:22], "ERR invalid index name")
    for i in range(50):
        expect("set", call("ri.set", "idx", f"k{i:02}", f"v{i}"), "OK")
    expect("get", call("ri.get", "idx", "k07"), b"v7")
    expect("range", call("ri.range", "idx", "k03", "k05"), [b"k03", b"v3", b"k04", b"v4", b"k05", b"v5"])
    expect("backwards", call("ri.range", "idx", "k03", "k05", "rev"), [b"k05", b"v5", b"k04", b"v4", b"k03", b"v3"])
    expect("open end", call("ri.range", "idx", "k48", ""), [b"k48", b"v48", b"k49", b"v49"])
    expect("open, backwards", call("ri.range", "idx", "", "", "rev", "count", "1"), [b"k49", b"v49"])
    expect("count", call("ri.range", "idx", "", "", "count", "1"), [b"k00", b"v0"])
    expect("scan", call("ri.scan", "idx", "k2", "count", "1"), [b"k20", b"v20"])
    expect("prefix", len(call("ri.prefix", "idx", "k1")), 20)
    expect("prefix", call("ri.prefix", "idx", "k1", "count", "1"), [b"k10", b"v10"])
    expect("keys alone", call("ri.range", "idx", "k03", "k05", "novalues", "rev"), [b"k05", b"k04", b"k03"])
    expect("keys alone", call("ri.scan", "idx", "k2", "count", "2", "novalues"), [b"k20", b"k21"])
    expect("keys alone", call("ri.prefix", "idx", "k1", "novalues", "count", "2"), [b"k10", b"k11"])
    expect("len", call("ri.len", "idx"), 50)
    expect("mget", call("ri.mget", "idx", "k01", "nosuch"), [b"v1", None])
    expect("mset", call("ri.mset", "idx", "a", "1", "b", "2", "a", "3"), "OK")
    expect("mset", call("ri.mget", "idx", "a", "b"), [b"3", b"2"])
    expect("exists", call("ri.exists", "idx", "a", "b", "c"), 2)
    expect("del", call("ri.del", "idx", "a", "b", "c"), 2)
    expect("delprefix", call("ri.delprefix", "idx", "k1"), 10)
    expect("len", call("ri.len", "idx"), 40)
    expect("list", call("ri.list"), [b"idx"])
    expect("empty range", call("ri.range", "idx", "z", "a"), [])
    expect("syntax", error_of(call, "ri.scan", "idx", "a", "limit", "1"), "ERR syntax error")
    expect("syntax", error_of(call, "ri.scan", "idx", "a", "novalues", "novalues"), "ERR syntax error")
    expect("syntax", error_of(call, "ri.prefix", "idx", "a", "rev"), "ERR syntax error")
    expect("syntax", error_of(call, "ri.range", "idx", "a", "b", "count"), "ERR syntax error")
    expect("count", error_of(call, "ri.scan", "idx", "a", "count", "0"), "ERR COUNT must be positive")


def drop_index(call):
    expect("drop", call("ri.drop", "idx"), 1)
    expect("gone", error_of(call, "ri.get", "idx", "k07"), "ERR no such index 'idx': it was dropped, or never made; make it with RI.CREATE")
    expect("drop again", call("ri.drop", "idx"), 0)
    expect("a new one", call("ri.create", "idx"), "OK")
    expect("it is empty", call("ri.len", "idx"), 0)
    call("ri.drop", "idx")


def scans(call):
    call("flushall")
    keys = [b"key:%04d" % i for i in range(1000)] + [b"long:" + b"x" * 200 + b"%03d" % i for i in range(50)]
    for key in keys:
        call("set", key, "v")
    for options in ([], ["count", "7"], ["count", "100000"], ["match", "*1*"], ["match", "long*", "count", "3"],
                    ["type", "string"], ["type", "list"]):
        cursor, found, calls = b"0", [], 0
        while True:
            cursor, some = call("scan", cursor, *options)
            found += some
            calls += 1
            if cursor == b"0":
                break
            assert int(cursor) < 1 << 53
        wanted = keys
        if "*1*" in options:
            wanted = [key for key in keys if b"1" in key]
        if "long*" in options:
            wanted = [key for key in keys if key.startswith(b"long")]
        if "list" in options:
            wanted = []
        expect(f"scan {options}", found, sorted(wanted))
    expect("cursor nobody gave", error_of(call, "scan", "123456789")[:18], "ERR invalid cursor")
    expect("dbsize", call("dbsize"), len(keys))
    seen = {call("randomkey") for _ in range(200)}
    expect("random keys", len(seen) > 20 and seen <= set(keys), True)
    call("flushdb")
    expect("flushed", call("dbsize"), 0)
    expect("no random key", call("randomkey"), None)


def expiry(call):
    call("set", "soon", "v", "px", "50")
    call("set", "later", "v", "ex", "100")
    expect("there", call("get", "soon"), b"v")
    time.sleep(0.06)
    for words, wanted in ((["get", "soon"], None), (["exists", "soon"], 0), (["ttl", "soon"], -2),
                          (["del", "soon"], 0), (["incr", "soon"], 1), (["ttl", "soon"], -1),
                          (["ttl", "later"], 100), (["persist", "later"], 1), (["ttl", "later"], -1)):
        expect(words, call(*words), wanted)
    for i in range(100):
        call("set", f"sweep{i}", "v", "px", "20")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        info = call("info", "stats").decode()
        if int(info.split("expired_keys:")[1].split()[0]) >= 100:
            break
        time.sleep(0.1)
    expect("swept", int(info.split("expired_keys:")[1].split()[0]) >= 100, True)


def passwords(processes):
    full, readonly = processes.secret("full", "correct horse battery staple\n"), processes.secret("ro", "just looking around")
    server = processes.start_pando(BUILD, "--password-file", full, "--readonly-password-file", readonly, name="auth")
    call = lib.Connection(server.port)
    expect("before", error_of(call, "get", "a"), "NOAUTH Authentication required.")
    expect("ping before", error_of(call, "ping"), "NOAUTH Authentication required.")
    expect("hello before", error_of(call, "hello", "3")[:6], "NOAUTH")
    wrong = "WRONGPASS invalid username-password pair or user is disabled."
    expect("wrong", error_of(call, "auth", "correct horse battery stapl"), wrong)
    expect("wrong user", error_of(call, "auth", "nobody", "correct horse battery staple"), wrong)
    expect("wrong in hello", error_of(call, "hello", "3", "auth", "default", "x"), wrong)
    expect("still out", error_of(call, "get", "a"), "NOAUTH Authentication required.")
    said, closed = talk(server.port, b"*2\r\n$3\r\nGET\r\n$20000\r\n")
    expect("large before", (said, closed), (b"-ERR Protocol error: unauthenticated bulk length\r\n", True))
    said, closed = talk(server.port, b"*11\r\n")
    expect("many before", (said, closed), (b"-ERR Protocol error: unauthenticated multibulk length\r\n", True))
    expect("in", call("auth", "correct horse battery staple"), "OK")
    expect("set", call("set", "a", "1"), "OK")
    expect("reset", call("reset"), "RESET")
    expect("out again", error_of(call, "get", "a"), "NOAUTH Authentication required.")
    expect("readonly", call("auth", "readonly", "just looking around"), "OK")
    expect("may read", call("get", "a"), b"1")
    denied = "NOPERM this user has no permissions to run the '%s' command"
    for words in (["set", "a", "2"], ["flushdb"], ["del", "a"], ["ri.create", "x"], ["getdel", "a"]):
        expect(words, error_of(call, *words), denied % words[0])
    expect("config", error_of(call, "config", "get", "*"), denied % "config|get")
    expect("kill", error_of(call, "client", "kill", "127.0.0.1:1"), denied % "client|kill")
    expect("unchanged", call("get", "a"), b"1")
    expect("hello", call("hello", "3", "auth", "default", "correct horse battery staple", "setname", "me")[b"proto"], 3)
    expect("name", call("client", "getname"), b"me")
    open_file = processes.directory / "open"
    open_file.write_text("everybody may read this one")
    open_file.chmod(0o644)
    done = subprocess.run([BUILD / "pando", "serve", "--pool", "embedded:64M", "--listen", "127.0.0.1:0",
                           "--password-file", open_file], capture_output=True, text=True, timeout=20)
    expect("readable password file", (done.returncode, "others may read it" in done.stderr), (1, True))


def tls(processes):
    cert, key = processes.directory / "cert.pem", processes.directory / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    server = processes.start_pando(BUILD, "--serve-tls", "127.0.0.1:0", "--serve-tls-cert", cert,
                                   "--serve-tls-key", key, name="tls")
    port = int(processes.wait_for(server, " ready at ").split("tls:")[1].rsplit(":", 1)[1])
    context = ssl.create_default_context(cafile=cert)
    call = lib.Connection(port, wrap=lambda raw: context.wrap_socket(raw, server_hostname="127.0.0.1"))
    expect("over TLS", call("set", "secret", b"x" * 100000), "OK")
    expect("over TLS", call("get", "secret"), b"x" * 100000)
    call.socket.sendall(b"".join(call.encode("incr", "n") for _ in range(3000)))
    expect("pipelined", [call.read() for _ in range(3000)], list(range(1, 3001)))
    said, closed = talk(port, b"*1\r\n$4\r\nPING\r\n")
    expect("plain to TLS", (said, closed), (b"-ERR Protocol error: this port speaks TLS only\r\n", True))
    said, closed = talk(port, b"\x16\x03\x01\x00\x05hello")
    expect("half a hello", closed, True) if closed else None
    try:
        context.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1")
        raise AssertionError("TLS to the plain port went through")
    except (ssl.SSLError, OSError):
        pass
    expect("plain port", lib.Connection(server.port)("strlen", "secret"), 100000)


def limits(processes):
    server = processes.start_pando(BUILD, "--max-clients", "20", "--output-limit", "1M", "--stalled-timeout", "1s",
                                   name="limits")
    clients = [lib.Connection(server.port) for _ in range(19)]
    expect("19 clients", [client("ping") for client in clients], ["PONG"] * 19)
    silent = lib.Connection(server.port)
    time.sleep(0.1)
    clients.append(lib.Connection(server.port))
    expect("the 20th", clients[-1]("ping"), "PONG")
    expect("who said nothing had its place", silent.file.read(), b"")
    said, closed = talk(server.port, b"PING\r\n")
    expect("the 21st", (said, closed), (b"-ERR max number of clients reached\r\n", True))
    for client in clients[1:]:
        client.close()
    time.sleep(0.3)
    expect("room again", lib.Connection(server.port)("ping"), "PONG")
    # Replies over the limit close their client only.
    for i in range(40):
        clients[0]("set", f"big{i}", b"x" * 50000)
    try:
        clients[0]("mget", *[f"big{i}" for i in range(40)])
        raise AssertionError("a reply over the limit was sent")
    except (EOFError, ConnectionResetError):
        pass
    # One that takes nothing is not read from for ever, and is closed after a while.
    slow = socket.create_connection(("127.0.0.1", server.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(3)
    sent = 0
    try:
        while sent < 100 << 20:
            slow.sendall(lib.Connection.encode("get", "big1") * 1000)
            sent += 1000 * 30
    except (socket.timeout, OSError):
        pass
    expect("a slow reader is held back", sent < 100 << 20, True)
    fine = lib.Connection(server.port)
    expect("others are served", fine("get", "big2"), b"x" * 50000)
    time.sleep(2.5)
    expect("the slow one is closed", fine("info", "clients").decode().split("connected_clients:")[1].split()[0] in ("1", "2"), True)
    rss = int(pathlib.Path(f"/proc/{server.pid}/status").read_text().split("VmRSS:")[1].split()[0])
    expect("memory", rss < 200000, True)


def pool_full(processes):
    server = processes.start_pando(BUILD, pool="embedded:64M", name="full")
    call = lib.Connection(server.port, timeout=60)
    stored, error = 0, ""
    for i in range(4000):
        error = error_of(call, "set", f"key{i}", os.urandom(40000))
        if not error.startswith("no error"):
            break
        stored += 1
    expect("full", error, "OOM the pool is full: delete keys or drop indexes; more room takes a larger pool (dump, load)")
    expect("all that was acknowledged is there", all(call("strlen", f"key{i}") == 40000 for i in range(stored)), True)
    expect("delete", call("del", *[f"key{i}" for i in range(stored // 2)]), stored // 2)
    end = time.monotonic() + 30
    while time.monotonic() < end and not error_of(call, "set", "again", os.urandom(40000)).startswith("no error"):
        time.sleep(0.2)  # freed memory is used again when nobody can be reading it any more
    expect("room again", call("strlen", "again"), 40000)
    expect("larger than the pool", error_of(call, "set", "huge", bytes(100 << 20))[:20], "OOM the pool is full")
    expect("nothing of it", call("exists", "huge"), 0)


def larger_than_the_pool(processes, engine):
    """A value that the pool could not hold if it were empty is refused at once: it takes no room from others."""
    server = processes.start_pando(BUILD, "--engine", engine, pool="embedded:64M", name=f"larger-{engine}")
    upload, call = (lib.Connection(server.port, timeout=60) for _ in range(2))
    piece, pieces, each, value = bytes(1 << 20), 100, 10, os.urandom(10000)
    upload.socket.sendall(b"*3\r\n$3\r\nSET\r\n$4\r\nhuge\r\n$%d\r\n" % (pieces * len(piece)))
    for number in range(pieces):
        upload.socket.sendall(piece)
        for other in range(each):
            expect(f"a value beside MiB {number} of the upload",
                   error_of(call, "set", f"beside{number}-{other}", value), "no error: 'OK'")
    upload.socket.sendall(b"\r\n")
    expect("larger than the pool", error_of(upload.read)[:20], "OOM the pool is full")
    for number in range(300):
        expect("a value after the upload", error_of(call, "set", f"after{number}", value), "no error: 'OK'")
    expect("nothing of it", call("exists", "huge"), 0)


def no_room_for_a_table(processes):
    """No node of the pool has memory for one more table: one line that names it, and the rest goes on."""
    secret = processes.secret("secret-full")
    memory = processes.start_memory(BUILD, "--listen", "127.0.0.1:0", "--size", "64M", "--secret-file", secret, name="memory-full")
    pool = [f"tcp:{memory.address}", "--secret-file", secret]
    server = processes.start_pando(BUILD, *pool[1:], pool=pool[0], name="full-tables")
    call = lib.Connection(server.port, timeout=60)
    stored = {}
    for size in (40000, 4000, 400, 40):
        stored[size] = 0
        while error_of(call, "set", f"key{size}-{stored[size]}", bytes(size)).startswith("no error"):
            stored[size] += 1
            expect("a pool of 64 MiB is full at some time", stored[size] * size < 64 << 20, True)
    for number in range(1000):
        said = error_of(call, "ri.create", f"late{number}")
        if not said.startswith("no error"):
            break
    expect("ri.create", said, f"OOM cannot create the table 'ri:late{number}': pool is full")
    done = subprocess.run([BUILD / "pando", "table", "create", "later", "--pool", *pool], capture_output=True, text=True, timeout=60)
    print(done.stderr.strip())
    expect("table create", (done.returncode, done.stdout, len(done.stderr.splitlines())), (1, "", 1))
    expect("table create", "'later'" in done.stderr and "pool is full" in done.stderr, True)
    expect("get", call("get", "key40000-0"), bytes(40000))
    expect("del", call("del", *[f"key40000-{number}" for number in range(stored[40000] // 2)]), stored[40000] // 2)
    end = time.monotonic() + 30
    while (said := error_of(call, "ri.create", "again")).startswith("OOM") and time.monotonic() < end:
        time.sleep(0.1)  # what was freed may be read by others for a while
    expect("room again", said, "no error: 'OK'")
    expect("it is of use", (call("ri.set", "again", "a", "1"), call("ri.get", "again", "a")), ("OK", b"1"))


def too_many_indexes(processes):
    server = processes.start_pando(BUILD, pool="embedded:64M", name="indexes")
    call = lib.Connection(server.port, timeout=60)
    expect("a key", call("set", "key", "1"), "OK")
    errors, created = [], 0
    while not errors and created < 10000:
        names = [f"i{created + n}" for n in range(100)]
        # The smallest there are: the directory is full before the memory is.
        call.socket.sendall(b"".join(call.encode("ri.create", name, "keymax", "8", "inline", "8") for name in names))
        replies = [lib.parse_some(call.read_raw())[0] for _ in names]
        errors = [str(reply) for reply in replies if reply != "OK"]
        created += len(names) - len(errors)
    print(f"after {created} indexes: {errors[0]}")
    said = re.fullmatch(r"OOM cannot create the table 'ri:(i\d+)': the pool has (\d+) tables, and room for no more; drop some",
                        errors[0])
    expect("one line that says so", said is not None, True)
    expect("which it is", said[1], f"i{created}")
    expect("tables", int(said[2]), TABLES_OF_64M)
    # A database is two tables, and the servers' cursors are in one.
    expect("indexes", TABLES_OF_64M - 4 <= created <= TABLES_OF_64M - 2, True)
    expect("the others", (call("get", "key"), call("ri.set", "i0", "a", "1"), call("ri.get", "i0", "a")),
           (b"1", "OK", b"1"))
    expect("drop", call("ri.drop", "i0"), 1)
    end = time.monotonic() + 30
    while (said := error_of(call, "ri.create", "again")).startswith("OOM") and time.monotonic() < end:
        time.sleep(0.1)
    expect("room again", said.startswith("no error"), True)


def kills(processes):
    """Connections that end at any point leave nothing behind."""
    server = processes.start_pando(BUILD, "--threads", "2", name="kills")
    for i in range(300):
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.sendall(lib.Connection.encode("set", f"k{i}", b"x" * 1000)[:i * 3] if i % 3 else b"")
        if i % 2:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        peer.close()
    call = lib.Connection(server.port)
    other = lib.Connection(server.port)
    ident = other("client", "id")
    expect("client list", f"id={ident} " in call("client", "list").decode(), True)
    expect("client kill", call("client", "kill", "id", ident), 1)
    try:
        other("ping")
        raise AssertionError("a killed client was served")
    except (EOFError, ConnectionResetError, BrokenPipeError):
        pass
    time.sleep(0.3)
    expect("clients left", call("info", "clients").decode().split("connected_clients:")[1].split()[0], "1")
    expect("reply off", (call.send("client", "reply", "off"), call.send("set", "quiet", "1"),
                         call("client", "reply", "on"))[2], "OK")
    expect("was done", call("get", "quiet"), b"1")
    server.terminate()
    expect("SIGTERM", server.wait(10), 0)


def main():
    with lib.Processes() as processes:
        server = processes.start_pando(BUILD)
        call = lib.Connection(server.port)
        protocol(server.port)
        web_pages(server.port, server.log, call)
        web_pages_everywhere(processes)
        values(call)
        ranges(call)
        try:
            drop_index(call)
        except lib.Error as error:
            print(f"dropping an index: {error}")
            raise
        scans(call)
        expiry(call)
        passwords(processes)
        tls(processes)
        limits(processes)
        pool_full(processes)
        for engine in ("sherman", "dex"):
            larger_than_the_pool(processes, engine)
        no_room_for_a_table(processes)
        too_many_indexes(processes)
        kills(processes)
        expect("the first server", call("ping"), "PONG")
        server.terminate()
        expect("SIGTERM", server.wait(10), 0)
    print(f"serve_bad_input: {CHECKS} checks ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
