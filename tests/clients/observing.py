#!/usr/bin/env python3
"""INFO's numbers against what was done, SLOWLOG, LATENCY, MEMORY, and redis-cli's ways to look at a server. Takes
twelve seconds."""
import subprocess
import sys
import time

import lib


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def between(what, found, low, high):
    if not low <= found <= high:
        raise AssertionError(f"{what}: {found!r} is not from {low!r} to {high!r}")


def error_of(call, *words):
    try:
        return f"no error: {call(*words)!r}"
    except lib.Error as error:
        return str(error)


def fields(call, *sections):
    lines = call("info", *sections).decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def sections(call, *words):
    return [line[2:] for line in call("info", *words).decode().split("\r\n") if line.startswith("# ")]


def command(call, name):
    """What INFO says of one command."""
    text = fields(call, "commandstats").get(f"cmdstat_{name}")
    return {key: float(value) for key, value in (pair.split("=") for pair in text.split(","))} if text else None


def whole(call):
    usual = sections(call)
    for name in ("Server", "Clients", "Memory", "Stats", "CPU", "Keyspace", "Replication", "Persistence", "Cluster"):
        expect(f"{name} is in INFO", name in usual, True)
    for name in ("Commandstats", "Latencystats"):
        expect(f"{name} is asked for", (name in usual, name in sections(call, "all"), name in sections(call, name)),
               (False, True, True))
    expect("two of them", sections(call, "cpu", "keyspace"), ["CPU", "Keyspace"])


def keyspace(call):
    call("flushall")
    expect("nothing", sections(call, "keyspace"), ["Keyspace"])
    expect("nothing", fields(call, "keyspace"), {})
    for i in range(300):
        call("set", f"k{i}", "v")
    call("set", "y" * 200, "in the other table")
    call("set", "soon", "v", "px", "100000")
    call("set", "gone", "v", "px", "1")
    call("select", "7")
    call("set", "x", "1", "ex", "1000")
    time.sleep(0.01)
    found = fields(call, "keyspace")
    expect("databases", sorted(found), ["db0", "db7"])
    expect("keys", found["db0"].rsplit(",", 1)[0], "keys=302,expires=1")
    between("average", int(found["db0"].rsplit("=", 1)[1]), 90000, 100000)
    expect("keys", found["db7"].rsplit(",", 1)[0], "keys=1,expires=1")
    call("del", "x")
    call("select", "0")
    for i in range(100):
        call("del", f"k{i}")
    expect("after deletes", fields(call, "keyspace")["db0"].split(",")[0], "keys=202")


def many_keys(call):
    """More than are counted at once: the number comes a little later."""
    for start in range(0, 60000, 6000):
        call.socket.sendall(b"".join(call.encode("set", f"many:{i}", "v") for i in range(start, start + 6000)))
        for _ in range(6000):
            call.read()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = fields(call, "keyspace")["db0"].split(",")[0]
        if found == "keys=60202":
            break
        time.sleep(0.1)
    expect("many keys", found, "keys=60202")
    call("flushall")


def memory(call):
    before = fields(call, "memory")
    for name in ("used_memory", "used_memory_human", "used_memory_rss", "maxmemory", "pando_pool_memory"):
        expect(f"{name} is there", name in before, True)
    for i in range(40):
        call("set", f"large{i}", b"x" * (1 << 20))
    after = fields(call, "memory")
    between("40 MiB more", int(after["used_memory"]) - int(before["used_memory"]), 38 << 20, 64 << 20)
    between("of the pool", int(after["pando_pool_used_memory"]) - int(before["pando_pool_used_memory"]), 38 << 20, 60 << 20)
    expect("resident", int(after["used_memory_rss"]) > 40 << 20, True)
    expect("the pool's", int(after["pando_pool_memory"]) > 200 << 20, True)
    for i in range(40):
        call("del", f"large{i}")
    end = time.monotonic() + 20
    while time.monotonic() < end and int(fields(call, "memory")["used_memory"]) > int(before["used_memory"]) + (8 << 20):
        time.sleep(0.1)
    between("back again", int(fields(call, "memory")["used_memory"]), 0, int(before["used_memory"]) + (8 << 20))


def counters(call):
    expect("reset", call("config", "resetstat"), "OK")
    expect("none", command(call, "set"), None)
    call("config", "resetstat")
    for i in range(50):
        call("set", f"c{i}", "v")
    for i in range(30):
        call("get", f"c{i}")
    for i in range(5):
        call("get", f"nosuch{i}")
    error_of(call, "incr", "c0")
    error_of(call, "get")
    error_of(call, "getset", "c0")
    found = command(call, "set")
    expect("calls", (found["calls"], found["failed_calls"], found["rejected_calls"]), (50, 0, 0))
    between("their time in us", found["usec"], 1, 5e6)
    found = command(call, "get")
    expect("calls", (found["calls"], found["failed_calls"], found["rejected_calls"]), (35, 0, 1))
    expect("failed", command(call, "incr")["failed_calls"], 1)
    expect("rejected alone", (command(call, "getset")["calls"], command(call, "getset")["rejected_calls"]), (0, 1))
    found = fields(call, "stats")
    expect("hits", (found["keyspace_hits"], found["keyspace_misses"]), ("30", "5"))
    between("commands", int(found["total_commands_processed"]), 86, 110)
    call("client", "id")
    error_of(call, "client", "kill", "1:1")
    expect("subcommands", (command(call, "client|id")["calls"], command(call, "client|kill")["failed_calls"]), (1, 1))
    expect("of it", call("latency", "histogram", "client")[::2], [b"client|id", b"client|kill"])
    call("multi")
    call("set", "c0", "v")
    call("discard")
    expect("what was only queued", command(call, "set")["calls"], 50)
    used = fields(call, "cpu")
    start = float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
    end = time.monotonic() + 20
    while time.monotonic() < end and float(used["used_cpu_user"]) + float(used["used_cpu_sys"]) < start + 0.05:
        call.socket.sendall(call.encode("get", "c0") * 1000)
        for _ in range(1000):
            call.read()
        used = fields(call, "cpu")
    expect("CPU time grows", float(used["used_cpu_user"]) + float(used["used_cpu_sys"]) >= start + 0.05, True)


def slowlog(call):
    expect("usually", call("config", "get", "slowlog-*"),
           [b"slowlog-log-slower-than", b"10000", b"slowlog-max-len", b"128"])
    call("slowlog", "reset")
    call("config", "set", "slowlog-log-slower-than", "0", "slowlog-max-len", "10")
    for i in range(30):
        call("set", f"slow{i}", "v")
    expect("bounded", call("slowlog", "len"), 10)
    entries = call("slowlog", "get", "-1")
    expect("as many", len(entries), 10)
    expect("the newest first", [entry[0] for entry in entries], sorted((entry[0] for entry in entries), reverse=True))
    call("client", "setname", "me")
    call("mset", *[word for i in range(40) for word in (f"m{i}", "x" * 200)])
    entry = call("slowlog", "get", "1")[0]
    expect("its words", (len(entry[3]), entry[3][0], entry[3][1], entry[3][-1]),
           (32, b"mset", b"m0", b"... (50 more arguments)"))
    expect("a long one", entry[3][2], b"x" * 128 + b"... (72 more bytes)")
    between("when", entry[1], time.time() - 60, time.time() + 1)
    between("how long, in us", entry[2], 1, 10_000_000)
    expect("whose", (entry[4].startswith(b"127.0.0.1:"), entry[5]), (True, b"me"))
    for words, kept in ((["auth", "default", "secret word"], [b"auth", b"(redacted)", b"(redacted)"]),
                        (["hello", "2", "auth", "default", "secret word"],
                         [b"hello", b"2", b"auth", b"(redacted)", b"(redacted)"]),
                        (["config", "set", "requirepass", ""], [b"config", b"set", b"requirepass", b"(redacted)"])):
        call(*words)
        expect("secrets", call("slowlog", "get", "1")[0][3], kept)
    call.socket.sendall(b"".join(call.encode("get", f"piped{i}") for i in range(9)))
    for _ in range(9):
        call.read()
    expect("all of a pipeline", [entry[3][1] for entry in call("slowlog", "get", "9")],
           [b"piped%d" % i for i in range(8, -1, -1)])
    call("config", "set", "slowlog-max-len", "3")
    expect("fewer", call("slowlog", "len"), 3)
    call("config", "set", "slowlog-log-slower-than", "-1")
    call("slowlog", "reset")
    call("get", "a")
    expect("none", call("slowlog", "len"), 0)
    expect("count", error_of(call, "slowlog", "get", "-2"), "ERR count should be greater than or equal to -1")
    call("config", "set", "slowlog-log-slower-than", "10000", "slowlog-max-len", "128")


def slow_ones(call):
    """One that takes long, in the middle of a pipeline: the others are not named."""
    for start in range(0, 100000, 10000):
        call.socket.sendall(b"".join(call.encode("set", f"many:{i:06}", "v") for i in range(start, start + 10000)))
        for _ in range(10000):
            call.read()
    call("config", "set", "slowlog-log-slower-than", "2000", "latency-monitor-threshold", "2")
    call("slowlog", "reset")
    for before in range(4):
        call.socket.sendall(call.encode("get", "a") * before + call.encode("dbsize") + call.encode("get", "b") * 3)
        for _ in range(before + 4):
            call.read()
    slow = [entry for entry in call("slowlog", "get", "-1")]
    expect("each of them", sum(entry[3][0] == b"dbsize" for entry in slow), 4)
    event = [event for event in call("latency", "latest") if event[0] == b"command"][0]
    between("when", event[1], time.time() - 60, time.time() + 1)
    between("how long, in ms", event[2], 2, 10000)
    expect("the longest", event[3] >= event[2], True)
    expect("history", call("latency", "history", "command")[-1], [event[1], event[2]])
    expect("of what is not", call("latency", "history", "nosuch"), [])
    expect("doctor", b"command: slow in" in call("latency", "doctor"), True)
    expect("reset", (call("latency", "reset", "nosuch"), call("latency", "reset", "command", "fast-command") >= 1), (0, True))
    expect("gone", [event for event in call("latency", "latest") if event[0] == b"command"], [])
    call("config", "set", "slowlog-log-slower-than", "10000", "latency-monitor-threshold", "0")
    expect("told what to do", b"CONFIG SET latency-monitor-threshold" in call("latency", "doctor"), True)
    call("config", "resetstat")
    for _ in range(20):
        call("get", "a")
    found = call("latency", "histogram", "get", "nosuch")
    expect("a histogram", (found[0], found[1][0], found[1][1], found[1][2]), (b"get", b"calls", 20, b"histogram_usec"))
    counts = found[1][3][1::2]
    expect("rising", (counts, counts[-1]), (sorted(counts), 20))
    call("flushall")


def usage(call):
    call("set", "short", "x" * 10)
    call("set", "long", b"x" * 100000)
    call("set", "longer", b"x" * (3 << 20))
    expect("no key", call("memory", "usage", "nosuch"), None)
    between("short", call("memory", "usage", "short"), 15, 100)
    between("long", call("memory", "usage", "long", "samples", "0"), 100000, 120000)
    between("longer", call("memory", "usage", "longer", "samples", "5"), 3 << 20, 4 << 20)
    expect("samples", error_of(call, "memory", "usage", "short", "samples", "-1"), "ERR syntax error")
    expect("purge", call("memory", "purge"), "OK")


def redis_cli(port):
    def run(*words):
        done = subprocess.run([lib.need("redis-cli", "redis-tools"), "-p", str(port), *words], capture_output=True,
                              text=True, timeout=60)
        expect(f"redis-cli {words}", (done.returncode, done.stderr), (0, ""))
        return done.stdout

    call = lib.Connection(port)
    for i in range(500):
        call("set", f"key:{i}", "v" * (i + 1))
    child = subprocess.Popen([lib.need("redis-cli", "redis-tools"), "-p", str(port), "-i", "0.05", "--stat"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [child.stdout.readline() for _ in range(5)]
    finally:
        child.kill()
        child.wait()
    keys = [line.split()[0] for line in lines[2:]]
    expect("--stat", keys, ["503"] * 3)
    expect("--stat: memory", lines[2].split()[1][-1] in "KMG" and lines[2].split()[1] != "0B", True)
    found = run("--bigkeys")
    expect("--bigkeys", ("Sampled 503 keys" in found, 'Biggest string found so far \'"longer"\'' in found), (True, True))
    found = run("--memkeys")
    expect("--memkeys", ("Sampled 503 keys" in found, '"longer"' in found), (True, True))
    expect("info", "db0:keys=503" in run("info"), True)


def main():
    build = lib.build_directory()
    lib.need("redis-cli", "redis-tools")
    with lib.Processes() as processes:
        server = processes.start_pando(build, "--threads", "2")
        call = lib.Connection(server.port)
        for step in (whole, keyspace, many_keys, memory, counters, slowlog, slow_ones, usage):
            begin = time.monotonic()
            step(call)
            print(f"{step.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)
        redis_cli(server.port)
    print("observing: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
