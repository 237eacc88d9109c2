#!/usr/bin/env python3
"""The same random commands to redis-server and to pando serve; every reply is compared byte for byte.

differential.py BUILD [SEED [SECONDS]]: a seed gives the same commands every time. What may differ is told
apart below: order of keys, times that pass, ids, and the texts of limits.
"""
import random
import re
import sys
import time

import lib

KEYS = [b"a", b"b", b"c", b"key:1", b"key:2", b"list", b"", b"\x00\xff\r\n", b"x" * 100, b"y" * 96,
        b"y" * 97, b"y" * 128, b"z" * 1024, b"h[e]llo", b"h*llo"]
VALUES = [b"", b"0", b"1", b"-1", b"10", b"007", b"9223372036854775807", b"-9223372036854775808",
          b"9223372036854775806", b"3.5", b"1e3", b"-0", b" 1", b"1 ", b"abc", b"hello world",
          b"\xf8", b"\xf9abcdefghij", b"\xff" * 20, b"\x00" * 9, b"v" * 64, b"w" * 255, b"w" * 256,
          b"w" * 257, b"u" * 5000, b"inf", b"nan", b"0x10", b"1.5e300"]
SHORT_VALUES = [value for value in VALUES if len(value) < 100]
NUMBERS = [b"0", b"1", b"2", b"-1", b"5", b"100", b"-100", b"9223372036854775807",
           b"-9223372036854775808", b"92233720368547758080", b"abc", b"", b"1.5", b"+1", b"01", b" 1"]
FLOATS = NUMBERS + [b"0.1", b"-2.25", b"1e20", b"3.0e3", b"inf", b"-inf", b"nan", b"1e4932", b".5", b"5.",
                    b"1e-5", b"123456789.123456789"]
# Far away, or long ago, or nonsense: nothing expires while the test runs.
MOMENTS = [b"4102444800", b"4102444801", b"4102444800000", b"1", b"0", b"-1", b"abc", b"1000",
           b"9223372036854775807", b"9223372036854775", b"9223372036854776"]
PATTERNS = [b"*", b"key:*", b"?", b"[ab]", b"[^a]", b"h\\[e\\]llo", b"h\\*llo", b"k*:[0-1]", b"", b"y*",
            b"[a-c]", b"[c-a]", b"*l*", b"a**", b"a?", b"[", b"\\", b"key:1"]
JUNK = [b"", b"x", b"EX", b"PX", b"NX", b"XX", b"GET", b"KEEPTTL", b"PERSIST", b"COUNT", b"MATCH", b"10",
        b"-1", b"DB", b"REPLACE", b"GT", b"LT", b"EXAT", b"TYPE", b"string", b"ASYNC", b"a b\r\nc"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, pool):
        return self.random.choice(pool)

    def key(self):
        return self.pick(KEYS)

    def set_options(self):
        words = []
        for _ in range(self.random.choice([0, 0, 1, 1, 1, 2, 3])):
            option = self.pick([b"NX", b"XX", b"GET", b"KEEPTTL", b"EXAT", b"pxat", b"EX", b"PX", b"bad"])
            words.append(option)
            if option in (b"EXAT", b"pxat"):
                words.append(self.pick(MOMENTS))
            elif option in (b"EX", b"PX"):
                words.append(self.pick([b"0", b"-5", b"abc", b"9223372036854775807", b"100000000"]))
        return words

    def getex_options(self):
        option = self.pick([None, b"PERSIST", b"EXAT", b"PXAT", b"bad"])
        if option is None:
            return []
        return [option, self.pick(MOMENTS)] if option in (b"EXAT", b"PXAT") else [option]

    def command(self):
        r = self.random
        name = self.pick([
            "get", "get", "set", "set", "set", "setnx", "setex", "psetex", "getdel", "getex", "getset",
            "mget", "mset", "msetnx", "append", "strlen", "getrange", "setrange", "incr", "decr", "incrby",
            "decrby", "incrbyfloat", "del", "unlink", "exists", "touch", "type", "rename", "renamenx",
            "copy", "expireat", "pexpireat", "expire", "pexpire", "ttl", "expiretime", "pexpiretime",
            "persist", "keys", "scan", "echo", "ping", "select", "flushdb", "dbsize", "substr", "unknown",
            "wrong", "client", "config", "hello", "command", "multi", "exec", "discard", "discard", "watch", "slowlog",
            "latency", "memory", "zero"])
        build = getattr(self, "do_" + name, None)
        if build:
            words = build()
        elif name in ("get", "getdel", "strlen", "incr", "decr", "type", "ttl", "expiretime",
                      "pexpiretime", "persist"):
            words = [name, self.key()]
        elif name in ("setnx", "getset", "append"):
            words = [name, self.key(), self.pick(VALUES)]
        elif name in ("mget", "del", "unlink", "exists", "touch"):
            words = [name] + [self.key() for _ in range(r.randint(1, 5))]
        elif name in ("mset", "msetnx"):
            words = [name] + [word for _ in range(r.randint(1, 4)) for word in (self.key(), self.pick(VALUES))]
        elif name in ("getrange", "substr"):
            words = [name, self.key(), self.pick(NUMBERS), self.pick(NUMBERS)]
        elif name in ("incrby", "decrby"):
            words = [name, self.key(), self.pick(NUMBERS)]
        elif name in ("rename", "renamenx"):
            words = [name, self.key(), self.key()]
        elif name in ("expireat", "pexpireat"):
            words = [name, self.key(), self.pick(MOMENTS)] + self.expire_options()
        elif name in ("expire", "pexpire"):
            words = [name, self.key(), self.pick([b"-1", b"abc", b"9223372036854775807", b"100000000",
                                                  b"0"])] + self.expire_options([b"NX", b"XX", b"bad"])
        else:
            raise AssertionError(name)
        if r.random() < 0.03:
            words = words + [self.pick(JUNK)]
        if r.random() < 0.03 and len(words) > 1:
            words = words[:-1]
        name = words[0] if isinstance(words[0], bytes) else words[0].encode()
        words[0] = self.pick([name, name.upper(), name.capitalize()])
        return words

    def expire_options(self, options=(b"NX", b"XX", b"GT", b"lt", b"bad")):
        return [self.pick(options)
                for _ in range(self.random.choice([0, 0, 0, 1, 1, 2]))]

    def do_set(self):
        return ["set", self.key(), self.pick(VALUES)] + self.set_options()

    def do_getex(self):
        return ["getex", self.key()] + self.getex_options()

    def do_setex(self):
        return ["setex", self.key(), self.pick([b"0", b"-1", b"abc", b"100000000"]), self.pick(VALUES)]

    def do_psetex(self):
        return ["psetex", self.key(), self.pick([b"0", b"-1", b"abc", b"100000000000"]), self.pick(VALUES)]

    def do_setrange(self):
        return ["setrange", self.key(), self.pick([b"0", b"1", b"5", b"300", b"-1", b"abc"]),
                self.pick(VALUES)]

    def do_incrbyfloat(self):
        return ["incrbyfloat", self.key(), self.pick(FLOATS)]

    def do_copy(self):
        words = ["copy", self.key(), self.key()]
        if self.random.random() < 0.4:
            words += [b"DB", self.pick([b"0", b"1", b"15", b"16", b"-1", b"abc"])]
        if self.random.random() < 0.4:
            words += [b"REPLACE"]
        return words

    def do_keys(self):
        return ["keys", self.pick(PATTERNS)]

    def do_scan(self):
        words = ["scan", self.pick([b"0", b"0", b"0", b"abc", b"x1", b""])]
        if self.random.random() < 0.5:
            words += [b"MATCH", self.pick(PATTERNS)]
        words += [b"COUNT", self.pick([b"1000", b"1000", b"0", b"-1", b"abc"])]
        if self.random.random() < 0.3:
            words += [b"TYPE", self.pick([b"string", b"STRING", b"list", b"hash"])]
        return words

    def do_echo(self):
        return ["echo", self.pick(VALUES)]

    def do_ping(self):
        return ["ping"] + [self.pick(VALUES) for _ in range(self.random.choice([0, 1, 1, 2]))]

    def do_select(self):
        return ["select", self.pick([b"0", b"0", b"0", b"1", b"15", b"16", b"-1", b"abc"])]

    def do_flushdb(self):
        return ["flushdb"] if self.random.random() < 0.3 else ["dbsize"]

    def do_dbsize(self):
        return ["dbsize"]

    def do_unknown(self):
        return [self.pick([b"foo", b"getx", b"", b"x" * 200, b"a\r\nb"])] + \
            [self.pick(VALUES) for _ in range(self.random.randint(0, 4))]

    def do_wrong(self):
        name = self.pick(["get", "set", "setnx", "mset", "mget", "incr", "incrby", "rename", "copy",
                          "keys", "getrange", "append", "getex", "type", "del", "echo",
                          "select", "dbsize", "ttl", "touch", "auth", "time", "randomkey"])
        return [name] + [self.pick(SHORT_VALUES) for _ in range(self.random.randint(0, 6))]

    def do_client(self):
        return ["client"] + self.pick([[b"getname"], [b"setname", b"me"], [b"setname", b"a b"], [b"nosuch"],
                                       [b"setname"], [b"setname", b""], [b"reply", b"bad"], [b"kill", b"1:1"],
                                       [b"list", b"type", b"bad"], [b"list", b"id", b"x"], [b"kill", b"id", b"0"],
                                       [b"kill", b"bad", b"1"], [b"kill", b"type", b"bad"],
                                       [b"kill", b"type", b"pubsub"], [b"kill", b"type", b"bad", b"id", b"0"], [b"no-evict", b"on"], [b"no-evict", b"x"]])

    def do_config(self):
        return ["config"] + self.pick([[b"get", b"save"], [b"get", b"appendonly"], [b"get", b"nosuch"],
                                       [b"get"], [b"nosuch"], [b"GET", b"DATABASES"], [b"resetstat"],
                                       [b"set", b"nosuch", b"1"], [b"set", b"timeout"], [b"set"],
                                       [b"set", b"timeout", b"abc"], [b"set", b"timeout", b"-1"],
                                       [b"set", b"timeout", b"2147483648"], [b"set", b"timeout", b"3600"],
                                       [b"set", b"timeout", b"7200", b"maxclients", b"x"],
                                       [b"set", b"timeout", b"1", b"Timeout", b"2"],
                                       [b"set", b"databases", b"16"], [b"set", b"timeout", b"1", b"nosuch", b"2"],
                                       [b"set", b"databases", b"1", b"nosuch", b"2"],
                                       [b"set", b"timeout", b"1", b"maxclients"], [b"set", b"maxclients", b"0"],
                                       [b"set", b"maxclients", b"-1"], [b"set", b"maxclients", b"3000"],
                                       [b"get", b"timeout"], [b"get", b"maxclients"], [b"get", b"TimeOut"],
                                       [b"get", b"timeout", b"timeou?"], [b"get", b"loglevel"],
                                       [b"set", b"loglevel", b"Verbose"], [b"set", b"loglevel", b"notice"],
                                       [b"set", b"loglevel", b"debug2"], [b"get", b"requirepass"],
                                       [b"set", b"requirepass", b""], [b"get", b"slowlog-log-slower-than"],
                                       [b"set", b"slowlog-log-slower-than", b"-2"],
                                       [b"set", b"slowlog-log-slower-than", b"-1"],
                                       [b"set", b"slowlog-log-slower-than", b"1000000"],
                                       [b"set", b"latency-monitor-threshold", b"-1"],
                                       [b"set", b"latency-monitor-threshold", b"0"],
                                       [b"get", b"latency-monitor-threshold"], [b"get", b"slowlog-max-len"],
                                       [b"set", b"slowlog-max-len", b"10"], [b"set", b"slowlog-max-len", b"x"],
                                       [b"set", b"save", b""], [b"set", b"appendonly", b"no"], [b"resetstat", b"x"],
                                       [b"rewrite", b"x"]])

    def do_hello(self):
        return ["hello"] + self.pick([[b"4"], [b"abc"], [b"1"], [b"2", b"bad"], [b"2", b"auth", b"x", b"y"],
                                      [b"3", b"setname", b"a b"]])

    def do_command(self):
        return ["command"] + self.pick([[b"nosuch"], [b"getkeys", b"get", b"a"], [b"getkeys", b"mset", b"a", b"b"],
                                        [b"getkeys", b"nosuch", b"a"], [b"getkeys", b"ping"],
                                        [b"count", b"x"], [b"info", b"nosuch"], [b"getkeys", b"memory", b"usage", b"a"],
                                        [b"list", b"x"], [b"list", b"filterby", b"module", b"x"], [b"info", b"get|key"],
                                        [b"list", b"filterby", b"pattern", b"GE[T]"], [b"list", b"filterby", b"x", b"y"],
                                        [b"list", b"filterby", b"pattern"]])

    def do_multi(self):
        return ["multi"]

    def do_exec(self):
        return ["exec"]

    def do_discard(self):
        return [self.pick([b"discard", b"discard", b"unwatch"])]

    def do_watch(self):
        return ["watch"] + [self.key() for _ in range(self.random.choice([0, 1, 2]))]

    def do_slowlog(self):
        return ["slowlog"] + self.pick([[b"len"], [b"get"], [b"get", b"0"], [b"get", b"-1"], [b"get", b"-2"], [b"get", b"x"],
                                        [b"reset"], [b"reset", b"x"], [b"nosuch"], [], [b"help"], [b"get", b"1", b"2"]])

    def do_latency(self):
        return ["latency"] + self.pick([[b"latest"], [b"history", b"command"], [b"history", b"x"], [b"history"], [b"reset"],
                                        [b"reset", b"x", b"y"], [b"nosuch"], [], [b"latest", b"x"], [b"doctor", b"x"],
                                        [b"histogram", b"nosuch"]])

    def do_memory(self):
        return ["memory"] + self.pick([[b"usage"], [b"usage", b"nosuch key"], [b"usage", self.key()], [b"purge"],
                                       [b"usage", self.key(), b"samples", b"5"], [b"usage", self.key(), b"samples"],
                                       [b"usage", self.key(), b"samples", b"-1"], [b"usage", self.key(), b"x", b"1"],
                                       [b"usage", self.key(), b"samples", b"x"], [b"nosuch"], [b"purge", b"x"]])

    def do_zero(self):  # not of commands: redis-server finds them sometimes, as its hashes fall
        return [self.pick([b"\0", b"nosuch\0get", b"\0get"])] + \
            [self.pick(VALUES) for _ in range(self.random.randint(0, 3))]


def comparable(words, raw):
    """What both must agree on."""
    name = words[0].lower()
    if name == b"watch" and len(words) > 1 and (raw == b"+OK\r\n" or raw.startswith(b"-ERR WATCH is not supported")):
        return b"WATCH"
    if [word.lower() for word in words] == [b"config", b"rewrite"]:
        return raw[:5]  # both refuse, for reasons of their own
    if raw.startswith(b"-"):
        return raw
    if name == b"memory" and words[1].lower() == b"usage":
        return b"usage"  # other numbers; and Redis has what has expired until it notices
    if name == b"latency" and words[1].lower() in (b"doctor", b"histogram"):
        return raw[:1]
    if name == b"slowlog" and raw[:1] in b":*":
        return raw[:1]  # something may take long on either
    if name in (b"keys", b"scan"):
        value = lib.parse(raw)
        return raw[:1], sorted(value if name == b"keys" else value[1])
    if name in (b"time", b"randomkey"):
        return raw[:1]
    if name == b"command" and (len(words) <= 2 or words[1].lower() == b"info"):
        return raw[:1]  # ours are described more briefly
    if name == b"hello":
        return re.sub(rb"\r\nid\r\n:\d+", b"", raw)
    if name == b"dbsize":
        return raw[:1]  # Redis counts what has expired until it has noticed; KEYS is compared
    if name in NEAR and raw.startswith(b":"):
        # Set and asked at different moments.
        return Near(lib.parse(raw), NEAR[name])
    return raw


NEAR = {b"ttl": 3, b"pttl": 3000, b"expiretime": 3, b"pexpiretime": 3000}


class Near:
    def __init__(self, value, tolerance):
        self.value, self.tolerance = value, tolerance

    def __eq__(self, other):
        if min(self.value, other.value) < 0:
            return self.value == other.value
        return abs(self.value - other.value) <= self.tolerance


def run(connections, seed, seconds, resp3):
    generator = Generator(seed)
    end = time.monotonic() + seconds
    count = 0
    for connection in connections:
        connection("flushall")
        connection("config", "set", "loglevel", "notice", "timeout", "0", "maxclients", "5000",
                   "slowlog-log-slower-than", "10000", "slowlog-max-len", "128")
        if resp3:
            connection("hello", "3")
    history = []
    while time.monotonic() < end:
        batch = []
        for _ in range(generator.random.choice([1, 1, 2, 5, 20])):
            words = generator.command()
            if words[0].lower() == b"exec":
                batch.append([b"nosuch"])  # so that it fails: Redis would run what we do not
            batch.append(words)
        for connection in connections:
            connection.socket.sendall(b"".join(connection.encode(*words) for words in batch))
        for words in batch:
            replies = [connection.read_raw() for connection in connections]
            history = history[-40:] + [(words, replies[0])]
            if comparable(words, replies[0]) != comparable(words, replies[1]):
                for old, reply in history:
                    print("   ", old, reply[:200])
                print(f"seed {seed}, command {count}: {words}\n  redis: {replies[0]!r}\n  pando: {replies[1]!r}")
                return None
            count += 1
    return count


def main():
    build = lib.build_directory()
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 4
    with lib.Processes() as processes:
        redis = processes.start_redis()
        pando = processes.start_pando(build)
        for resp3 in (False, True):
            connections = [lib.Connection(redis.port), lib.Connection(pando.port)]
            count = run(connections, seed + resp3, seconds, resp3)
            if count is None:
                return 1
            print(f"RESP{3 if resp3 else 2}: {count} commands, all replies equal")
        print("differential: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
