#!/usr/bin/env python3
"""RANDOMKEY: every key comes, each about as often, whatever the keys look like, counted or not. Takes a minute.

The chances are those of chi-square at six standard deviations: an even choice fails one time in a billion.
"""
import collections
import math
import random
import sys
import time

import lib

UNCOUNTED = 500000


def draw(call, count):
    found = collections.Counter()
    for start in range(0, count, 500):
        now = min(500, count - start)
        call.socket.sendall(call.encode("randomkey") * now)
        found.update(call.read() for _ in range(now))
    return found


def fill(call, keys):
    call("flushall")
    for start in range(0, len(keys), 5000):
        part = keys[start:start + 5000]
        call.socket.sendall(b"".join(call.encode("set", key, "v") for key in part))
        for _ in part:
            call.read()


def even(what, found, groups, slack=0.0):
    """groups: name -> share of all keys. slack: by how much a share may be off, as part of it."""
    draws = sum(found.values())
    chi = 0.0
    for name, share in groups.items():
        wanted = draws * share
        off = max(0.0, abs(found[name] - wanted) - slack * wanted)
        chi += off * off / wanted
    freedom = max(1, len(groups) - 1)
    limit = freedom + 6 * math.sqrt(2 * freedom) + 12
    if chi > limit:
        worst = sorted(groups, key=lambda name: -abs(found[name] - draws * groups[name]))[:5]
        raise AssertionError(f"{what}: chi-square {chi:.0f} of {freedom}, more than {limit:.0f}: " +
                             ", ".join(f"{name!r} {found[name]} times for {draws * groups[name]:.0f}" for name in worst))
    print(f"{what}: chi-square {chi:.0f} of {freedom}", flush=True)


def small(call):
    sets = {
        "two keys": [b"a", b"b"],
        "two keys far apart": [b"\x00", b"zzzzzzzz"],
        "one beside many": [b"user:%04d" % i for i in range(99)] + [b"zebra"],
        "prefixes of each other": [b"a" * i for i in range(1, 60)],
        "short and long": [b"k%d" % i for i in range(30)] + [b"L" * 200 + b"%d" % i for i in range(20)],
        "skewed by powers": [b"%d" % (2 ** i) for i in range(64)],
        "with the empty one": [b"", b"x", b"\xff" * 9],
    }
    for what, keys in sets.items():
        fill(call, keys)
        found = draw(call, 60 * len(keys) + 400)
        if set(found) != set(keys):
            raise AssertionError(f"{what}: {len(found)} of {len(keys)} keys came, and {set(found) - set(keys)}")
        even(what, found, {key: 1 / len(keys) for key in keys})


def large(call):
    """More than are all read: a dense run of numbers, some far away, and long keys."""
    keys = [b"dense:%06d" % i for i in range(6000)] + [b"z%d" % (7 ** i) for i in range(40)] + \
        [b"\x00\x01" + bytes([i]) for i in range(160)] + [b"Q" * 300 + b"%d" % i for i in range(1500)]
    fill(call, keys)
    group_of, groups = {}, collections.Counter()
    for key in keys:
        if key.startswith(b"dense:"):
            group = b"dense:" + key[8:10]
        else:
            group = key[:1]
        group_of[key] = group
        groups[group] += 1 / len(keys)
    end = time.monotonic() + 30
    while time.monotonic() < end:  # until it was counted as it is now
        if f"keys={len(keys)}," in call("info", "keyspace").decode():
            break
        time.sleep(0.05)
    found = draw(call, 10000)
    by_group = collections.Counter()
    for key, count in found.items():
        by_group[group_of[key]] += count
    even("a dense run, and others", by_group, groups)
    if len(found) < 4500:  # of 7,700 keys 10,000 draws meet some 5,600
        raise AssertionError(f"only {len(found)} keys came in 10000 draws")
    rare = [key for key in keys if key.startswith(b"z")]
    missing = set(rare)
    for _ in range(400):
        missing -= set(draw(call, 1000))
        if not missing:
            break
    if missing:
        raise AssertionError(f"these never came: {sorted(missing)}")


def changed(call):
    """Keys that came since the last count can come, and those that went do not."""
    call("del", *[b"dense:%06d" % i for i in range(0, 6000, 2)])
    for i in range(300):
        call("set", b"dense:000001:new%d" % i, "v")
    found = draw(call, 10000)
    gone = [key for key in found if key.startswith(b"dense:") and len(key) == 12 and int(key[6:]) % 2 == 0]
    if gone:
        raise AssertionError(f"deleted keys came: {gone[:5]}")
    if not any(b":new" in key for key in found):
        raise AssertionError("no new key came")


def expired(call):
    call("flushall")
    for i in range(50):
        call("set", b"short%d" % i, "v", "px", "1")
    call("set", "stays", "v")
    time.sleep(0.01)
    found = draw(call, 100)
    if set(found) != {b"stays"}:
        raise AssertionError(f"expired keys came: {found}")
    call("flushall")
    if call("randomkey") is not None:
        raise AssertionError("a key of an empty database")


def uncounted(call):
    """Of a database that nobody has counted keys from all over come at once, about evenly: a sample of places, whose
    shares are right on average and not to the last percent. A count of these takes longer than the first waits."""
    source = random.Random(9)
    groups = collections.Counter()
    for start in range(0, UNCOUNTED, 10000):
        numbers = [b"n:%d:" % i + b"x" * 80 for i in range(start, start + 5000)]
        words = [b"w:" + source.randbytes(45).hex().encode() for _ in range(5000)]
        call("mset", *[word for key in numbers + words for word in (key, b"v")])
        for key in numbers + words:
            groups[key[:3]] += 1 / UNCOUNTED
    begin = time.monotonic()
    found = draw(call, 150)
    took = time.monotonic() - begin
    by_place = collections.Counter()
    for key, count in found.items():
        by_place[key[:3]] += count
    even("nobody has counted", by_place, groups, slack=0.25)
    if len(found) < 145 or took > 60:
        raise AssertionError(f"150 draws of {UNCOUNTED} keys met {len(found)} in {took:.1f} s")
    print(f"150 draws in {took:.1f} s", flush=True)


def grown(call):
    """Between two keys that are remembered from the last count come very many; and before the first."""
    fill(call, [b"m:%06d" % i for i in range(0, 200000, 50)])
    end = time.monotonic() + 30
    while call("info", "keyspace").decode().count("keys=4000,") == 0 and time.monotonic() < end:
        time.sleep(0.05)
    draw(call, 1)
    new = [b"m:1000%02d.%05d" % (1 + i % 40, i) for i in range(40000)] + [b"early:%d" % i for i in range(50)]
    for start in range(0, len(new), 10000):
        call("mset", *[word for key in new[start:start + 10000] for word in (key, b"v")])
    found = draw(call, 15000)
    came = collections.Counter(key[:8] for key in found.elements() if b"." in key)
    if len(came) < 25 or sum(came.values()) < 50:
        raise AssertionError(f"of a place that has grown only these came: {came}")
    first = sum(count for key, count in came.items() if key in (b"m:100001", b"m:100002"))
    if first > sum(came.values()) / 3:
        raise AssertionError(f"of a place that has grown mostly the first keys came: {came}")
    if not any(key.startswith(b"early") for key in found):
        raise AssertionError("what came before the first key that was counted does not come")


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        server = processes.start_pando(build, pool="embedded:1G", name="uncounted")
        uncounted(lib.Connection(server.port, timeout=60))
        server.kill()
        server = processes.start_pando(build, "--threads", "2")
        call = lib.Connection(server.port)
        for step in (small, large, changed, expired, grown):
            begin = time.monotonic()
            step(call)
            print(f"{step.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)
    print("randomkey: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
