"""The processes of a soak: memory nodes that keep their windows over restarts, and servers; and what is done to them.

Only processes that were started here are ever signalled, by their own process ids."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import lib  # noqa: E402

MEMORY_NODES, SERVERS = 2, 3
CHUNK_BYTES = 1 << 20
LEASE_S = 1
READY_S = 60  # until a process that was started serves
END_S = 90  # until one that got SIGTERM has ended, after what was done to others is over
COMMAND_S = 180
ROOM_S = 60  # for a grace period of two seconds
RSS_MAX_BYTES = 512 << 20
TAIL_LINES = 12
NOT_NOW = ("timed out",)  # why a server may refuse to start, on a busy machine; not because the pool is full
DEATHS = ("kill server", "pause server", "fenced")  # counts of what may end a member without its leaving


class SoakError(Exception):
    """What the soak is there to find."""


class Cluster:
    def __init__(self, processes, build, transport, size, tag="soak"):
        self.processes, self.build, self.transport, self.size = processes, build, transport, size
        self.name, self.tag = f"{tag}-{transport}-{processes.directory.name}", tag
        self.secret = processes.secret(f"secret-{tag}-{transport}")
        self.places = [self.window(i) if transport == "shm" else f"127.0.0.1:{lib.free_port()}"
                       for i in range(MEMORY_NODES)]
        self.ports = [lib.free_port() for _ in range(SERVERS)]
        self.children = {}  # role -> process; a role is ("memory", 0) or ("server", 2)
        self.generation = 0
        self.peer_files = set()
        self.counts = {}
        self.rss_max = 0

    # --- starting and ending ---

    def window(self, i):
        return f"{self.name}-{i}"

    def pool(self):
        secret = [] if self.transport == "shm" else ["--secret-file", self.secret]
        return ["--pool", f"{self.transport}:{','.join(self.places)}", *secret]

    def arguments(self, role):
        kind, i = role
        if kind == "server":
            return ["serve", *self.pool(), "--listen", f"127.0.0.1:{self.ports[i]}", "--log-level", "info", "--threads", 1 + i % 2]
        listen = [] if self.transport == "shm" else ["--listen", self.places[i], "--secret-file", self.secret]
        return ["memory", "--shm", self.window(i), "--size", self.size, "--node", i, "--log-level", "info", *listen]

    def launch(self, role):
        self.generation += 1
        self.children[role] = self.processes.start([self.build / "pando", *self.arguments(role)],
                                                   f"{self.tag}-{self.transport}-{role[0]}{role[1]}-{self.generation}")

    def await_ready(self, role):
        """A server that ends before it serves is started again, as whatever supervises it would do."""
        end = time.monotonic() + READY_S
        while True:
            child = self.children[role]
            try:
                self.processes.wait_for(child, " ready at ", READY_S)
                break
            except RuntimeError as error:
                ended = child.poll() is not None and time.monotonic() < end
                fenced = ended and self.was_fenced(role)
                if not fenced and not (ended and any(reason in str(error) for reason in NOT_NOW)):
                    raise SoakError(f"{role[0]} {role[1]} did not start: {error}") from None
            self.count("fenced while it started" if fenced else "refused to start")
            time.sleep(0.5)
            self.launch(role)
        if role[0] == "server":
            self.remember_files(child)

    def start(self, roles):
        for kind in ("memory", "server"):
            some = [role for role in roles if role[0] == kind]
            for role in some:
                self.launch(role)
            for role in some:
                self.await_ready(role)

    def memory_roles(self):
        return [("memory", i) for i in range(MEMORY_NODES)]

    def server_roles(self):
        return [("server", i) for i in range(SERVERS)]

    def end(self, role):
        """As an operator ends it: it must do so, and say that all went well."""
        self.children[role].send_signal(signal.SIGTERM)
        self.await_end(role)

    def await_end(self, role):
        child = self.children[role]
        try:
            code = child.wait(END_S)
        except subprocess.TimeoutExpired:
            raise SoakError(f"{role[0]} {role[1]} did not end within {END_S} s of SIGTERM") from None
        if self.was_fenced(role):
            self.count("fenced while it left")
        elif code != 0:
            raise SoakError(f"{role[0]} {role[1]} ended with {code} after SIGTERM")

    # --- what is done to them ---

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def deaths(self):
        return sum(count for what, count in self.counts.items() if what.startswith(DEATHS))

    def was_fenced(self, role):
        """Processes that share memory are shut out by killing them."""
        return (self.transport == "shm" and role[0] == "server" and
                self.children[role].returncode == -signal.SIGKILL)

    def hit(self, role, what):
        child = self.children[role]
        self.count(f"{what} {role[0]}")
        if what == "end":
            child.send_signal(signal.SIGTERM)
        elif what == "kill":
            child.kill()
            child.wait()
        else:
            child.send_signal(signal.SIGSTOP)

    def heal(self, role, what):
        if what == "pause":
            self.children[role].send_signal(signal.SIGCONT)
            return
        if what == "end":
            self.await_end(role)
        self.launch(role)

    def disturb(self, chance):
        """One fault, sometimes two at once; when it returns, everything runs again. What was done, as text."""
        roles = self.memory_roles() + self.server_roles()
        faults = [(role, chance.choice(["kill", "kill", "pause", "pause"] + ["end"] * (role[0] == "server")))
                  for role in chance.sample(roles, chance.choice([1, 1, 1, 2]))]
        # Also longer than a lease, and than everybody's patience with a connection.
        seconds = chance.uniform(0.05, 1) if chance.random() < 0.7 else chance.uniform(1.5, 5) * LEASE_S
        for role, what in faults:
            self.hit(role, what)
        time.sleep(seconds)
        # Memory first: a server does not start without it.
        for kind in ("memory", "server"):
            some = [(role, what) for role, what in faults if role[0] == kind]
            for role, what in some:
                self.heal(role, what)
            for role, what in some:
                if what != "pause":
                    self.await_ready(role)
        self.look_after(faults)
        return ", ".join(f"{what} {role[0]} {role[1]}" for role, what in faults) + f" for {seconds:.1f} s"

    def look_after(self, faults):
        """Nothing ends by itself, unless it was fenced."""
        for role, child in list(self.children.items()):
            if child.poll() is None:
                continue
            if not self.was_fenced(role):
                raise SoakError(f"{role[0]} {role[1]} ended by itself with {child.returncode}")
            self.count("fenced after a pause" if (role, "pause") in faults else "fenced while it ran")
            self.launch(role)
            self.await_ready(role)

    # --- what they look like ---

    def command(self, *words):
        child = subprocess.run([str(word) for word in (self.build / "pando", *words, *self.pool())],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=COMMAND_S, check=False)
        return child.returncode, child.stdout.decode(errors="replace"), child.stderr.decode(errors="replace")

    def status(self):
        code, out, errors = self.command("status", "--json", "-")
        if code != 0:
            raise SoakError(f"pando status ended with {code}: {errors}")
        return json.loads(out)

    def memory_used(self):
        """Bytes that are in nobody's free lists, and chunks that are given out."""
        nodes = self.status()["memory"]
        chunks = sum(node["chunks"] - node["chunks_free"] for node in nodes)
        return chunks * CHUNK_BYTES - sum(node["free_block_bytes"] for node in nodes), chunks

    def await_room(self):
        """Until nothing that was freed waits for a grace period any more."""
        end = time.monotonic() + ROOM_S
        while (left := sum(node["waiting_bytes"] + node["held_bytes"] for node in self.status()["memory"])) > 0:
            if time.monotonic() > end:
                raise SoakError(f"{left} bytes still wait for a grace period after {ROOM_S} s")
            time.sleep(0.5)

    def look_at_rss(self):
        for role, child in self.children.items():
            if role[0] != "server" or child.poll() is not None:
                continue
            for line in pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):  # its own: not the windows, which others share
                    self.rss_max = max(self.rss_max, int(line.split()[1]) * 1024)
        if self.rss_max > RSS_MAX_BYTES:
            raise SoakError(f"a server has grown to {self.rss_max >> 20} MiB")

    def remember_files(self, child):
        """Windows of servers of this machine go with them, or with the next that starts if they were killed."""
        try:
            maps = pathlib.Path(f"/proc/{child.pid}/maps").read_text()
        except OSError:
            return
        self.peer_files |= {word for word in maps.split() if word.startswith("/dev/shm/pando-peer-")}

    def leftovers(self):
        return sorted(path for path in self.peer_files if os.path.exists(path))

    def tails(self):
        """The ends of the logs of those that run, and of those that ran last."""
        text = ""
        for role, child in self.children.items():
            lines = child.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            text += f"--- {role[0]} {role[1]} ({child.log.name}):\n" + "\n".join(lines) + "\n"
        return text

    def remove_windows(self):
        for path in pathlib.Path("/dev/shm").glob(f"pando-{self.name}*"):
            path.unlink()
