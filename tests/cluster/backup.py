#!/usr/bin/env python3
"""`pando backup`: two databases of servers with two engines, long keys, values in pieces and expiries go to a directory
and into another pool, with both commands killed in the middle and run again, and once while servers write. Damage of every kind is found before
anything is changed, others' files and tables are left alone, and every refusal is one line.

backup.py BUILD
"""
import json
import os
import pathlib
import random
import shutil
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

MIB = 1 << 20
SMALL, MANY, LONG_KEYS = 2000, 300_000, 50
LONG = bytes(random.Random(7).randbytes(MIB)) * 17  # in pieces in a dump
SOON_S, LATE_S = 2000, 100_000
MOVING = 500  # keys that change while a backup is made


class World:
    def __init__(self, build, processes):
        self.build, self.processes, self.count = build, processes, 0
        self.dir = processes.directory / "backup"

    def argv(self, *words):
        return [str(self.build / "pando"), "backup", *map(str, words)]

    def run(self, *words, expect=0, says=(), directory=None):
        done = subprocess.run(self.argv(*words), capture_output=True, text=True, timeout=120, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == expect, f"{words}: exit {done.returncode}, not {expect}:\n{said}"
        if expect:
            assert len(done.stderr.splitlines()) == 1, f"{words}: not one line:\n{done.stderr}"
        for text in says:
            assert text in said, f"{words}: no '{text}' in:\n{said}"
        return said

    def pool(self, size="512M"):
        self.count += 1
        name = f"test-{os.getpid()}-backup{self.count}"
        self.processes.start_memory(self.build, "--shm", name, "--size", size, name=f"memory{self.count}")
        return f"shm:{name}"

    def server(self, pool, *options):
        self.count += 1
        return self.processes.start_pando(self.build, *options, pool=pool, name=f"server{self.count}")

    def killed(self, *words, before):
        """Starts it, and kills it as soon as it has said that a table is done and `before` is true; whether it was
        in the middle."""
        child = subprocess.Popen(self.argv(*words), stdout=subprocess.PIPE, text=True)
        line = child.stdout.readline()
        assert " pairs, " in line, line
        end = time.monotonic() + 60
        while child.poll() is None and not before() and time.monotonic() < end:
            time.sleep(0.001)
        child.kill()
        child.stdout.close()
        return child.wait() != 0


def end(server):
    server.terminate()
    assert server.wait(timeout=30) == 0


def fill(world, pool):
    """Returns when the keys that expire soon do, in seconds of the clock."""
    dex = world.server(pool, "--engine", "dex")
    call = lib.Connection(dex.port, timeout=60)
    for number in range(SMALL):
        call("set", f"key{number}", f"value {number}", "ex", SOON_S if number % 2 else LATE_S)
    for number in range(LONG_KEYS):
        call("set", f"{number:03}" + "k" * 500, b"\xf8\xff" + b"x" * number * 300)
    call("set", "piece", LONG, "ex", LATE_S)
    call("set", "", "an empty key")
    begun = time.time()
    assert call("scan", 0)[0] != b"0"  # a cursor is kept
    end(dex)
    sherman = world.server(pool, "--engine", "sherman")
    call = lib.Connection(sherman.port, timeout=60)
    call("select", 1)
    for at in range(0, MANY, 10_000):
        words = [word for number in range(at, at + 10_000) for word in (f"many{number:07}", f"v{number * 7}")]
        call("mset", *words)
    end(sherman)
    return begun


def check_all(world, pool, begun, moving=False):
    """What a server finds in a pool; `moving`: more keys than those of fill, in both databases."""
    server = world.server(pool)
    call = lib.Connection(server.port, timeout=60)
    elapsed = time.time() - begun

    def check_moving():
        found = call("mget", *(f"moving{number}" for number in range(MOVING)))
        assert any(found) == moving, "no key that changed is there" if moving else "a key too many"
        for value in filter(None, found):
            assert value == changing(int(value.split(b":")[0])), f"never written: {value[:40]}"
        return sum(value is not None for value in found)

    assert call("dbsize") == SMALL + LONG_KEYS + 2 + check_moving()
    assert call("mget", *(f"key{number}" for number in range(SMALL))) == [
        f"value {number}".encode() for number in range(SMALL)]
    for number in range(0, SMALL, 7):
        wanted = (SOON_S if number % 2 else LATE_S) - elapsed
        assert abs(call("ttl", f"key{number}") - wanted) < 30, "the expiry is another one"
    for number in range(LONG_KEYS):
        key = f"{number:03}" + "k" * 500
        assert call("get", key) == b"\xf8\xff" + b"x" * number * 300 and call("ttl", key) == -1
    assert call("get", "piece") == LONG and call("ttl", "piece") > SOON_S
    assert call("get", "") == b"an empty key"
    call("select", 1)
    assert call("dbsize") == MANY + check_moving()
    for at in range(0, MANY, 10_000):
        numbers = range(at, at + 10_000)
        assert call("mget", *(f"many{number:07}" for number in numbers)) == [
            f"v{number * 7}".encode() for number in numbers]
    end(server)


def changing(number):
    """A value that no other number has."""
    return b"%d:" % number + b"m" * (number % 3000)


class Writer(threading.Thread):
    """Sets and deletes keys of its own in a database, beside those of fill, until it is told to stop."""

    def __init__(self, server, database):
        super().__init__()
        self.call, self.count, self.stopping, self.error = lib.Connection(server.port, timeout=60), 0, False, None
        self.call("select", database)

    def run(self):
        try:
            while not self.stopping:
                key = f"moving{random.randrange(MOVING)}"
                if self.count % 5 == 4:
                    self.call("del", key)
                else:
                    self.call("set", key, changing(self.count))
                self.count += 1
        except Exception as error:  # whatever it is, the main thread tells
            self.error = error


def while_written(world, pool, begun):
    """Keys that nobody touches are in a backup, all of them, whatever is written beside them; of others a value that
    they had. No snapshot, but complete."""
    server, folder = world.server(pool), world.processes.directory / "written"
    writers = [Writer(server, database) for database in (0, 1)]
    for writer in writers:
        writer.start()
    while min(writer.count for writer in writers) < MOVING:
        assert not any(writer.error for writer in writers), [writer.error for writer in writers]
        time.sleep(0.01)
    before = [writer.count for writer in writers]
    world.run("create", folder, "--pool", pool)
    written = [writer.count - count for writer, count in zip(writers, before)]
    for writer in writers:
        writer.stopping = True
        writer.join(60)
        assert writer.error is None, writer.error
    end(server)
    print("written meanwhile:", *written, flush=True)
    assert min(written) > 20, "nothing to speak of was written while it was made"
    world.run("verify", folder, says=["all files are sound"])
    other = world.pool()
    world.run("restore", folder, "--pool", other)
    check_all(world, other, begun, moving=True)


def tables_of(world, pool):
    done = subprocess.run([world.build / "pando", "table", "list", "--pool", pool, "--json",
                           world.processes.directory / "tables.json"], capture_output=True, check=True)
    assert done.returncode == 0
    listed = json.loads((world.processes.directory / "tables.json").read_text())
    return {table["name"]: (table["engine"], table["key_max"], table["value_inline"]) for table in listed}


def create(world, pool):
    for _ in range(5):
        if world.killed("create", world.dir, "--pool", pool,
                        before=lambda: any(part.stat().st_size > MIB // 2
                                           for part in world.dir.glob("db1.dump.part-*"))):
            break
        shutil.rmtree(world.dir)
    else:
        raise AssertionError("it ends before it can be killed")
    names = sorted(path.name for path in world.dir.iterdir())
    print("killed with", *names, flush=True)
    world.number = next(int(name[-6:]) for name in names if ".part-" in name)  # of db1, which came after db0
    assert "begun.json" in names and "manifest.json" not in names and "db0.dump" in names, names
    world.run("verify", world.dir, expect=1, says=["not finished", "create again"])
    world.run("restore", world.dir, "--pool", pool, expect=1, says=["not finished"])
    (world.dir / "db0.long.dump").write_bytes(b"PANDODMP half a file")
    # What is in the part already is not read again: it keeps the value that this changes.
    server = world.server(pool)
    call = lib.Connection(server.port, timeout=60)
    call("select", 1)
    call("set", "many0000000", "changed")
    end(server)
    shutil.copy(world.dir / "begun.json", world.processes.directory / "begun.json")
    before = (world.dir / "db0.dump").stat().st_ino
    said = world.run("create", world.dir, "--pool", pool, says=["were there from before", "no snapshot"])
    assert (world.dir / "db0.dump").stat().st_ino == before and "db0.long: " in said, said
    world.run("verify", world.dir, says=["all files are sound"])
    assert stat.S_IMODE(world.dir.stat().st_mode) == 0o700
    manifest = json.loads((world.dir / "manifest.json").read_text())
    assert {table["file"] for table in manifest["tables"]} | {"manifest.json"} == set(os.listdir(world.dir))
    for path in world.dir.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert {table["name"]: (table["engine"], table["key_max"], table["value_inline"])
            for table in manifest["tables"]} == tables_of(world, pool)
    assert {table["engine"] for table in manifest["tables"]} == {"dex", "sherman"}
    assert sum(table["pairs"] for table in manifest["tables"]) >= SMALL + LONG_KEYS + 2 + MANY


def cut_parts(world, pool):
    """A part that was cut off anywhere, with something behind it, becomes the whole file."""
    whole = (world.dir / "db0.dump").read_bytes()
    copy = world.processes.directory / "parts"
    shutil.copytree(world.dir, copy)
    random.seed(5)
    value = whole.find(LONG[:64])
    assert value > 0
    cuts = [0, 100, 128, 5000, value + 64, value + 3 * MIB, value + len(LONG), len(whole) - 40, len(whole)]
    for cut in cuts:
        (copy / "manifest.json").unlink()
        (copy / "db0.dump").unlink()
        shutil.copy(world.processes.directory / "begun.json", copy / "begun.json")
        for number in range(1, world.number):  # one of them is the table's; the others are removed
            (copy / f"db0.dump.part-{number:06}").write_bytes(whole[:cut] + random.randbytes(cut % 50))
        world.run("create", copy, "--pool", pool, says=[" were there from before"])
        assert (copy / "db0.dump").read_bytes() == whole, f"cut at {cut}"
        assert set(os.listdir(copy)) == set(os.listdir(world.dir))


def others(world, pool):
    """What is not of a backup is not touched, and neither is a finished one."""
    folder = world.processes.directory / "mine"
    folder.mkdir(mode=0o755)
    for name in ("letter.txt", "db0.dump", "db0.dump.part-abcdef", "manifest.json"):
        (folder / name).write_text("mine")
        world.run("create", folder, "--pool", pool, expect=1, says=["give a"])
        assert (folder / name).read_text() == "mine" and os.listdir(folder) == [name]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        (folder / name).unlink()
    (folder / "db0.dump").symlink_to("/etc/passwd")
    world.run("create", folder, "--pool", pool, expect=1, says=["'db0.dump'"])
    world.run("create", world.dir, "--pool", pool, expect=1, says=["finished backup", "another directory"])
    world.run("create", "/proc/none/such", "--pool", pool, expect=1, says=["/proc/none/such"])
    world.run("verify", folder, expect=1, says=["no manifest.json"])
    world.run("verify", folder / "none", expect=1, says=["none"])


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1:]


def damaged(world, pool):
    """Each kind is found by verify, and by restore before it changes anything."""
    random.seed(11)
    copy = world.processes.directory / "copy"
    shutil.copytree(world.dir, copy)

    def bad(name, data, says):
        path = copy / name
        good = path.read_bytes() if path.exists() else None
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        done = subprocess.run(world.argv("verify", copy), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and says in done.stderr, f"{name}: {done.returncode} {done.stdout}{done.stderr}"
        assert good is None or name in done.stderr, done.stderr
        if good is not None:
            world.run("restore", copy, "--pool", pool, expect=1, says=[says])
            assert tables_of(world, pool) == {}, "something was changed"
            path.write_bytes(good)
        else:
            path.unlink()

    manifest = (copy / "manifest.json").read_bytes()
    for name in sorted(os.listdir(copy)):
        data = (copy / name).read_bytes()
        tries = 5 if len(data) < MIB else 1
        for at in sorted(random.randrange(len(data.rstrip())) for _ in range(tries)):
            bad(name, flipped(data, at), "")
        bad(name, data[:len(data) // 2], "")
        bad(name, data + b"x", "")
        bad(name, b"", "")
    bad("db0.long.dump", None, "No such file")
    bad("extra", b"x", "not of this backup")
    bad("none.dump", (copy / "db0.dump").read_bytes(), "not of this backup")
    bad("db0.dump", (copy / "db0.long.dump").read_bytes(), "does not belong to this backup")
    bad("manifest.json", manifest.replace(b'"version":1', b'"version":2'), "version 2")
    bad("manifest.json", manifest.replace(b'"db1.dump"', b'"../db1.d"'), "makes no sense")
    world.run("verify", copy, says=["all files are sound"])


def restore(world, begun):
    pool = world.pool()
    damaged(world, pool)
    manifest = json.loads((world.dir / "manifest.json").read_text())
    first = manifest["tables"][0]["name"]
    for attempt in range(5):
        if world.killed("restore", world.dir, "--pool", pool, "--existing", "replace" if attempt else "refuse",
                        before=lambda: "db1" in tables_of(world, pool)):
            break
    else:
        raise AssertionError("it ends before it can be killed")
    found = tables_of(world, pool)
    print("killed with", *found, flush=True)
    assert first in found and "pando.restore" in found
    world.run("create", world.processes.directory / "other", "--pool", pool, expect=1, says=["not finished"])
    world.run("restore", world.dir, "--pool", pool, says=["of them before"])
    assert tables_of(world, pool) == {table["name"]: (table["engine"], table["key_max"], table["value_inline"])
                                      for table in manifest["tables"]}
    check_all(world, pool, begun)
    return pool


def existing(world, pool):
    server = world.server(pool)
    call = lib.Connection(server.port, timeout=60)
    call("set", "key1", "mine")
    end(server)
    world.run("restore", world.dir, "--pool", pool, expect=1, says=["'db0'", "--existing keep", "nothing was changed"])
    world.run("restore", world.dir, "--pool", pool, "--existing", "some", expect=2, says=["refuse, keep or replace"])
    world.run("restore", world.dir, "--pool", pool, "--existing", "keep", says=["left as they are"])
    server = world.server(pool)
    call = lib.Connection(server.port, timeout=60)
    assert call("get", "key1") == b"mine"
    end(server)
    world.run("restore", world.dir, "--pool", pool, "--existing", "replace")
    server = world.server(pool)
    call = lib.Connection(server.port, timeout=60)
    assert call("get", "key1") == b"value 1"
    end(server)


def no_room(world):
    pool = world.pool("64M")
    words = ("restore", world.dir, "--pool", pool)
    world.run(*words, expect=1, says=["no memory left", "goes on there"])
    world.run(*words, expect=1, says=["no memory left"])  # what it left does not stand in its way


def main():
    build = lib.build_directory()
    with lib.Processes() as processes:
        world = World(build, processes)
        try:
            pool = world.pool()
            begun = fill(world, pool)
            create(world, pool)
            cut_parts(world, pool)
            others(world, pool)
            restored = restore(world, begun)
            existing(world, restored)
            while_written(world, restored, begun)
            no_room(world)
        finally:
            for path in pathlib.Path("/dev/shm").glob(f"pando-test-{os.getpid()}-backup*"):
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
