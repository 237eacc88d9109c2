#!/usr/bin/env python3
"""CONFIG at run time, and what the user `readonly` may not do. Takes some seconds."""
import json
import socket
import subprocess
import sys
import time

import lib


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def error_of(call, *words):
    try:
        return f"no error: {call(*words)!r}"
    except lib.Error as error:
        return str(error)


def closed(connection, seconds=10):
    connection.socket.settimeout(seconds)
    try:
        return connection.socket.recv(100) == b""
    except ConnectionResetError:
        return True
    except socket.timeout:
        return False


def get(call, name):
    return call("config", "get", name)[1].decode()


def several_or_none(call):
    failed = "ERR CONFIG SET failed (possibly related to argument '%s') - %s"
    for words, wanted in (
            (["timeout", "5", "maxclients", "none"], failed % ("maxclients", "argument couldn't be parsed into an integer")),
            (["timeout", "5", "maxclients", "0"],
             failed % ("maxclients", "argument must be between 1 and 4294967295 inclusive")),
            (["timeout", "5", "timeout", "6"], failed % ("timeout", "duplicate parameter")),
            (["timeout", "5", "databases", "16"], failed % ("databases", "can't set immutable config")),
            (["timeout", "5", "appendonly", "yes"],
             failed % ("appendonly", "can't set immutable config: this server has one value for it")),
            (["timeout", "5", "nosuch", "6"], "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
            (["timeout", "5", "loglevel", "loud"],
             failed % ("loglevel", "argument(s) must be one of the following: debug, verbose, notice, warning")),
            (["timeout", "5", "maxclients"], "ERR syntax error")):
        expect(words, error_of(call, "config", "set", *words), wanted)
        expect("nothing was changed", (get(call, "timeout"), get(call, "maxclients")), ("0", "10000"))
    expect("what it is already", call("config", "set", "appendonly", "no", "save", ""), "OK")
    expect("two", call("config", "set", "timeout", "600", "maxclients", "5000"), "OK")
    expect("both", (get(call, "timeout"), get(call, "maxclients")), ("600", "5000"))
    expect("rewrite", error_of(call, "config", "rewrite")[:43], "ERR CONFIG REWRITE is not supported: what C")
    expect("in INFO", b"maxclients:5000\r\n" in call("info", "clients"), True)
    many = error_of(call, "config", "set", "maxclients", "4000000000")
    if "no error" not in many:  # where that many files may be open
        expect("too many", "The operating system is not able to handle" in many, True)
    call("config", "set", "maxclients", "10000", "timeout", "0")


def max_clients(server):
    first = [lib.Connection(server.port) for _ in range(4)]
    for connection in first:
        connection("ping")
    now = int(first[0]("info", "clients").split(b"connected_clients:")[1].split()[0])
    first[0]("config", "set", "maxclients", now)
    refused = lib.Connection(server.port)
    expect("one more", error_of(refused, "ping"), "ERR max number of clients reached")
    first[0]("config", "set", "maxclients", now + 1)
    expect("room again", lib.Connection(server.port)("ping"), "PONG")
    first[0]("config", "set", "maxclients", "10000")


def idle(server):
    """Of clients on both threads, those that ask nothing are closed, when it is said and not before."""
    busy = lib.Connection(server.port)
    quiet = [lib.Connection(server.port) for _ in range(4)]
    for connection in quiet:
        connection("ping")
    busy("config", "set", "timeout", "1")
    end = time.monotonic() + 15
    while time.monotonic() < end and int(busy("info", "clients").split(b"connected_clients:")[1].split()[0]) > 1:
        time.sleep(0.1)
    for connection in quiet:
        expect("an idle client is closed", closed(connection), True)
    expect("a busy one is not", busy("ping"), "PONG")
    busy("config", "set", "timeout", "0")


def password(server):
    inside = [lib.Connection(server.port) for _ in range(4)]
    for connection in inside:
        connection("ping")
    expect("none", get(inside[0], "requirepass"), "")
    expect("set", inside[0]("config", "set", "requirepass", "open sesame"), "OK")
    for connection in inside:
        expect("who is in stays in", connection("ping"), "PONG")
    for _ in range(4):  # on every thread
        call = lib.Connection(server.port)
        expect("out", error_of(call, "get", "a"), "NOAUTH Authentication required.")
        expect("wrong", error_of(call, "auth", "open"),
               "WRONGPASS invalid username-password pair or user is disabled.")
        expect("right", call("auth", "open sesame"), "OK")
        expect("in", call("get", "a"), None)
    expect("shown", get(call, "requirepass"), "open sesame")
    expect("another", call("config", "set", "requirepass", "two", "timeout", "0"), "OK")
    expect("the old one", error_of(lib.Connection(server.port), "auth", "open sesame")[:9], "WRONGPASS")
    expect("the new one", lib.Connection(server.port)("auth", "default", "two"), "OK")
    expect("reset", call("reset"), "RESET")
    expect("out", error_of(call, "get", "a"), "NOAUTH Authentication required.")
    expect("taken away", inside[0]("config", "set", "requirepass", ""), "OK")
    expect("open to all", lib.Connection(server.port)("get", "a"), None)


def log_level(server):
    call = lib.Connection(server.port)
    expect("at first", get(call, "loglevel"), "warning")
    for name in ("debug", "verbose", "notice", "warning"):
        expect(name, call("config", "set", "loglevel", name), "OK")
        expect(name, get(call, "loglevel"), name)
    before = server.log.read_text().count("setting changed by a client")
    call("config", "set", "loglevel", "notice")
    call("config", "set", "timeout", "0")
    expect("it logs again", server.log.read_text().count("setting changed by a client") > before, True)


def may_not(build, processes):
    full, only = processes.secret("full", "correct horse battery staple"), processes.secret("only", "just looking around")
    server = processes.start_pando(build, "--password-file", full, "--readonly-password-file", only, "--threads", "2",
                                   name="users")
    owner, guest = lib.Connection(server.port), lib.Connection(server.port)
    expect("owner", owner("auth", "correct horse battery staple"), "OK")
    expect("a value", owner("set", "a", "1"), "OK")
    expect("guest", guest("auth", "readonly", "just looking around"), "OK")
    victim = owner("client", "id")
    denied = "NOPERM this user has no permissions to run the '%s' command"
    for words, name in (
            (["client", "kill", "id", victim], "client|kill"), (["client", "kill", "127.0.0.1:1"], "client|kill"),
            (["client", "list"], "client|list"), (["client", "no-evict", "on"], "client|no-evict"),
            (["config", "set", "timeout", "1"], "config|set"), (["config", "get", "requirepass"], "config|get"),
            (["config", "resetstat"], "config|resetstat"), (["config", "rewrite"], "config|rewrite"),
            (["slowlog", "reset"], "slowlog|reset"), (["slowlog", "get"], "slowlog|get"),
            (["latency", "reset"], "latency|reset"), (["latency", "latest"], "latency|latest"),
            (["memory", "purge"], "memory|purge"), (["set", "a", "2"], "set"), (["getex", "a"], "getex"),
            (["flushall"], "flushall"), (["ri.drop", "x"], "ri.drop"), (["copy", "a", "b"], "copy")):
        expect(words, error_of(guest, *words), denied % name)
    guest("multi")
    expect("inside of MULTI", error_of(guest, "client", "kill", "id", victim), denied % "client|kill")
    expect("that ends it", error_of(guest, "exec"), "EXECABORT Transaction discarded because of previous errors.")
    for words in (["get", "a"], ["client", "id"], ["client", "info"], ["client", "setname", "me"], ["info"], ["keys", "*"],
                  ["memory", "usage", "a"], ["command", "count"], ["dbsize"], ["scan", "0"], ["slowlog", "help"]):
        guest(*words)
    expect("the owner is there", owner("get", "a"), b"1")
    expect("by its name", f"id={victim} " in owner("client", "list", "id", victim).decode() and
           b" cmd=client|list " in owner("client", "list", "id", victim), True)


# Of every command a request that changes data if the command can change any, where prepare() made the data.
EXAMPLES = {
    "get": "a", "set": "a 2", "setnx": "new 2", "setex": "a 100 2", "psetex": "a 100000 2", "getdel": "a",
    "getex": "a ex 100", "getset": "a 2", "mget": "a new", "mset": "a 2 new 2", "msetnx": "new 2 new:2 2", "append": "a 2",
    "strlen": "a", "getrange": "a 0 1", "substr": "a 0 1", "setrange": "a 0 2", "incr": "a", "decr": "a", "incrby": "a 2",
    "decrby": "a 2", "incrbyfloat": "a 2", "del": "a new", "unlink": "a new", "exists": "a new", "touch": "a new",
    "type": "a", "rename": "a new", "renamenx": "a new", "copy": "a new", "expire": "a 100", "pexpire": "a 100000",
    "expireat": "a 4000000000", "pexpireat": "a 4000000000000", "ttl": "a", "pttl": "a", "expiretime": "a",
    "pexpiretime": "a", "persist": "ends", "randomkey": "", "keys": "*", "scan": "0 count 1", "dbsize": "",
    "flushdb": "", "flushall": "", "ri.create": "new", "ri.drop": "x", "ri.list": "", "ri.set": "x a 2", "ri.get": "x a",
    "ri.del": "x a", "ri.exists": "x a", "ri.mget": "x a", "ri.mset": "x a 2", "ri.scan": "x a count 1",
    "ri.range": "x a b", "ri.prefix": "x a", "ri.delprefix": "x a", "ri.len": "x", "ping": "", "echo": "a", "hello": "3",
    "auth": "readonly a", "quit": "", "reset": "", "select": "5", "client": "setname a", "command": "", "info": "",
    "config": "get timeout", "memory": "usage a", "slowlog": "len", "latency": "latest", "time": "", "multi": "",
    "exec": "", "discard": "", "watch": "a", "unwatch": "",
}


def prepare(owner):
    for name in owner("ri.list"):
        if name != b"x":
            owner("ri.drop", name)
    error_of(owner, "ri.create", "x")
    owner("ri.delprefix", "x", "")
    for words in ("flushall", "mset a 1 b 1", "set ends 1 pxat 4100000000000", "ri.mset x a 1 b 1"):
        owner(*words.split())


def data(owner):
    """All there is: what no command may change that is not flagged as a writer."""
    keys = owner("keys", "*")
    pairs = [(key, owner("get", key), owner("pexpiretime", key)) for key in keys]
    return pairs, [(name, owner("ri.range", name, "", "")) for name in sorted(owner("ri.list"))]


def every_command(build, owner, enter, tables, denied):
    """A command changes data, or makes a table, exactly if it is flagged as a writer; then it is denied, and whatever
    `readonly` asks for changes nothing. So one whose flag was forgotten is seen, and one that has no example here."""
    flags = {entry[0].decode(): entry[2] for entry in owner("command")}
    expect("commands without an example", sorted(set(flags) - set(EXAMPLES)), [])
    expect("examples without a command", sorted(set(EXAMPLES) - set(flags)), [])
    prepare(owner)
    before, there, denials = data(owner), tables(), set()
    for name, words in EXAMPLES.items():
        if error_of(enter("readonly"), name, *words.split()) == denied % name:
            denials.add(name)
        expect(f"what {name} of readonly changes", data(owner), before)
    expect("tables made by readonly", tables() - there, set())
    writers = 0
    for name, words in EXAMPLES.items():
        prepare(owner)
        before = data(owner)
        error_of(enter("default"), name, *words.split())
        changed = data(owner) != before
        writers += changed
        expect(f"{name} changes data, is flagged 'write', is denied",
               (changed, "write" in flags[name], name in denials), (changed,) * 3)
    expect("most of the writers there were", writers > 30, True)


def empty_to_readonly(owner, enter, tables):
    """`readonly` finds databases, and makes none: one that is not there is empty until somebody else makes it."""
    there = tables()
    guests = {}
    for number in (3, 7, 9):
        guest = guests[number] = enter("readonly")
        for words, wanted in (("select %d" % number, "OK"), ("get a", None), ("mget a b", [None, None]), ("exists a", 0),
                              ("strlen a", 0), ("getrange a 0 1", b""), ("type a", "none"), ("ttl a", -2), ("keys *", []),
                              ("scan 0", [b"0", []]), ("dbsize", 0), ("randomkey", None), ("memory usage a", None),
                              ("touch a", 0), ("get " + "long" * 50, None)):
            expect(f"{words} in database {number}", guest(*words.split()), wanted)
        guest.socket.sendall(guest.encode("get", "a") * 3 + guest.encode("get", "b"))
        expect("pipelined", [guest.read() for _ in range(4)], [None] * 4)
    expect("tables made by readonly", tables() - there, set())
    # Somebody else makes it, and readonly, who is there already, sees what is in it.
    for key in ("a", "long" * 50):
        other = enter("default")
        expect("made", (other("select", "7"), other("set", key, "7")), ("OK", "OK"))
        guest = guests[7]
        expect("seen", guest("get", key), b"7")
    expect("seen", (guest("dbsize"), sorted(guest("keys", "*")), guest("type", "a")), (2, [b"a", b"long" * 50], "string"))
    expect("tables", tables() - there, {"db7", "db7.long"})
    # Who may write from now on has it made, also by a long value that comes with the password.
    for number, value in ((3, b"1"), (9, b"x" * (3 << 20))):
        guest = guests[number]
        guest.socket.sendall(guest.encode("auth", "correct horse battery staple") + guest.encode("set", "a", value))
        expect("a writer now", (guest.read(), guest.read()), ("OK", "OK"))
        expect("written", guest("get", "a"), value)
    expect("tables", tables() - there, {f"db{number}{kind}" for number in (3, 7, 9) for kind in ("", ".long")})


def readonly(build, processes):
    """On a shared pool, whose tables others can list."""
    full, only = processes.secret("full-2", "correct horse battery staple"), processes.secret("only-2", "just looking around")
    secret = processes.secret()
    memory = processes.start_memory(build, "--listen", "127.0.0.1:0", "--size", "256M", "--secret-file", secret)
    pool = [f"tcp:{memory.address}", "--secret-file", secret]
    server = processes.start_pando(build, *pool[1:], "--password-file", full, "--readonly-password-file", only,
                                   "--threads", "2", pool=pool[0], name="readonly")

    def enter(user):
        call = lib.Connection(server.port)
        words = {"default": "correct horse battery staple", "readonly": "just looking around"}
        expect(user, call("auth", user, words[user]), "OK")
        return call

    def tables():
        listed = subprocess.run([build / "pando", "table", "list", "--json", "-", "--pool", *pool], check=True,
                                stdout=subprocess.PIPE, timeout=60)
        return {table["name"] for table in json.loads(listed.stdout)}

    owner = enter("default")
    every_command(build, owner, enter, tables, "NOPERM this user has no permissions to run the '%s' command")
    empty_to_readonly(owner, enter, tables)


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        server = processes.start_pando(build, "--threads", "2")
        several_or_none(lib.Connection(server.port))
        max_clients(server)
        password(server)
        log_level(server)
        idle(server)
        may_not(build, processes)
        readonly(build, processes)
    print("settings: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
