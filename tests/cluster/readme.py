#!/usr/bin/env python3
"""Runs every command line of README.md, as a reader would who types them one after the other.

What stands in a fence tagged `sh` is run; other tags are for looking at. The fences between two
headings are one session of a shell: what is started there with & is stopped at its end. A session has a
folder of its own that looks like the checkout, and this process its own network and /dev/shm where the
kernel lets it; otherwise the ports and names that the text mentions must be free.

Not done to the letter: `make test` does not start this test again; servers in the foreground run beside
what follows them, as if that were typed elsewhere; other machines are this one; sudo is left out; and
`make install` installs below a folder of its own.
"""
import dataclasses
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMAND_S = 120
INSIDE = "PANDO_README_INSIDE"

FOREGROUND = r"make run\b|(build/)?pando (memory|serve) "
ELSEWHERE = r"\b(?:10|192\.168)(?:\.\d{1,3}){2,3}\b"  # addresses of other machines

SHIMS = {
    # The test that runs this one is `make test` itself.
    "make": """#!/usr/bin/env bash
case " $* " in *" test"*|*" check-long "*|*" papers "*) echo "(make $*: left to the reader)"; exit 0 ;; esac
unset MAKEFLAGS MAKELEVEL
DESTDIR=$README_STAGE exec {make} -C {root} "$@"
""",
    "sudo": """#!/usr/bin/env bash
exec "$@"
""",
    # Every machine is this one.
    "scp": """#!/usr/bin/env bash
echo "(scp $*: it is here already)"
""",
    # The checkout stands in for what would be fetched.
    "git": """#!/usr/bin/env bash
if [ "$1" = clone ]; then ln -sfn {root} "${{3:-pando}}"; else exec {git} "$@"; fi
""",
}

# Waits until what was started in the background says so, or has ended, or has had a second to begin.
PRELUDE = """
set -E -o pipefail
# A writer whose reader had enough (| head) has not failed.
trap 'status=$?; [ $status = 141 ] || echo "@failed $status $README_LINE" >&3' ERR
after_background() {
    local pid=$! i
    for ((i = 0; i < 200; i++)); do
        tail -c +$((README_SIZE + 1)) "$README_LOG" | grep -q ' ready at ' && return 0
        kill -0 "$pid" 2>/dev/null || return 0
        ((i < 20)) || grep -q pando "/proc/$pid/cmdline" 2>/dev/null || return 0
        sleep 0.05
    done
}
"""


@dataclasses.dataclass
class Command:
    line: int
    text: str


@dataclasses.dataclass
class Session:
    title: str
    blocks: list


def whole(text):
    """Whether the lines are complete: no open quote, loop, continuation or here-document."""
    if text.rstrip("\n").endswith("\\"):
        return False
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    return parsed.returncode == 0 and "here-document" not in parsed.stderr


def commands_of(lines, first):
    result, pending, begin = [], "", first
    for number, line in enumerate(lines, first):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begin = begin if pending else number
        pending += line + "\n"
        if whole(pending):
            result.append(Command(begin, pending.rstrip("\n")))
            pending = ""
    if pending:
        sys.exit(f"FAILED: README.md:{begin}: the command has no end: {pending}")
    return result


def read_readme(path):
    """Sessions with at least one block. A command outside of a fence is an error: nobody would run it."""
    sessions = [Session("the beginning", [])]
    fence, tag, body, first, after_blank = None, None, [], 0, True
    for number, line in enumerate(path.read_text().split("\n"), 1):
        mark = re.match(r"^(```+|~~~+)\s*(\S*)", line)
        if fence is None and mark:
            fence, tag, body, first = mark[1], mark[2], [], number + 1
        elif fence is not None and line.startswith(fence) and not line.strip(fence[0]):
            if tag == "sh":
                sessions[-1].blocks.append(commands_of(body, first))
            fence = None
        elif fence is not None:
            body.append(line)
        elif re.match(r"^#{1,6} ", line):
            sessions.append(Session(line.lstrip("# "), []))
        elif after_blank and re.match(r"^(    |\t)\S", line):
            sys.exit(f"FAILED: README.md:{number}: code without a fence; use ```sh for commands and "
                     f"```text for the rest")
        after_blank = not line.strip()
    if fence is not None:
        sys.exit(f"FAILED: README.md:{first}: the fence has no end")
    return [session for session in sessions if session.blocks]


# --- a place of its own ---

def enter_namespaces():
    """Runs this script again with its own network, /dev/shm and processes; returns if that cannot be."""
    argv = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--mount", "--ipc",
            "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        works = subprocess.run([*argv, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
                               capture_output=True).returncode == 0
    except OSError:
        works = False
    if works:
        os.environ[INSIDE] = "1"
        os.execvp(argv[0], [*argv, sys.executable, *sys.argv])


def furnish(text):
    """Room for what the text asks for, none of which is filled; and its machines' addresses."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1T", "tmpfs", "/dev/shm"], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # up, running
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS
        for i, address in enumerate(sorted(set(re.findall(ELSEWHERE, text)))):
            request = struct.pack("16sHH4s8x", b"lo:%d" % (i + 1), socket.AF_INET, 0,
                                  socket.inet_aton(address))
            fcntl.ioctl(control, 0x8916, request)  # SIOCSIFADDR


def check_free(text):
    """Outside of namespaces: nothing of what the text uses may be in use."""
    for port in sorted(set(re.findall(r"(?:127\.0\.0\.1:|localhost:|-p )(\d+)", text))):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", int(port)))
            except OSError:
                print(f"SKIP: no namespaces here, and port {port} is in use")
                sys.exit(77)
    for name in set(re.findall(r"--shm ([\w-]+)", text)):
        if pathlib.Path("/dev/shm", f"pando-{name}").exists():
            print(f"SKIP: no namespaces here, and /dev/shm/pando-{name} is somebody's")
            sys.exit(77)


def make_folder(folder, build):
    """A folder like the checkout, whose build/ is the one under test."""
    work, tools = folder / "work", folder / "tools"
    work.mkdir()
    tools.mkdir()
    for entry in ROOT.iterdir():
        if entry.name != "build":
            (work / entry.name).symlink_to(entry)
    (work / "build").symlink_to(build)
    for name, text in SHIMS.items():
        shim = tools / name
        shim.write_text(text.format(root=ROOT, make=shutil.which("make"), git=shutil.which("git")))
        shim.chmod(0o755)
    return work, tools


def environment(folder, build, tools):
    """Nothing of ours but what a shell needs; the program and the library as if installed."""
    keep = {name: os.environ[name] for name in ("HOME", "LANG", "TERM", "USER") if name in os.environ}
    return {**keep, "PATH": f"{tools}:{build}:{os.environ['PATH']}", "README_STAGE": str(folder / "stage"),
            "README_LOG": str(folder / "log"), "C_INCLUDE_PATH": str(ROOT / "include"),
            "LIBRARY_PATH": str(build), "LD_LIBRARY_PATH": str(build), "PKG_CONFIG_PATH": str(build)}


# --- running ---

def script_of(session):
    lines = [PRELUDE]
    for block in session.blocks:
        for command in block:
            background = re.search(r"&\s*(#.*)?$", command.text.split("\n")[-1])
            lines += [f"README_LINE={command.line} README_SIZE=$(stat -c %s \"$README_LOG\")",
                      f"echo '@run {command.line}' >&3"]
            if not background and re.match(FOREGROUND, command.text):
                # It goes on until its reader ends it; what follows is typed in another terminal.
                lines += ["{", command.text, "} &"]
                background = True
            else:
                lines.append(command.text)
            if background:
                lines.append("after_background")
        lines += ["sleep 0.2", "jobs > /dev/null"]  # what was killed is forgotten, as at a prompt
    return "\n".join([*lines, "echo '@done' >&3", ""])


def stop_group(process):
    """Whatever the session started: politely first, as its reader would."""
    for number, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            try:
                os.killpg(process.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            process.poll()
            time.sleep(0.02)


def run_session(session, work, env):
    """Prints each command as it is run; the line that failed, or None."""
    log = pathlib.Path(env["README_LOG"])
    texts = {command.line: command.text for block in session.blocks for command in block}
    reader, writer = os.pipe()
    with open(log, "wb") as out:
        process = subprocess.Popen(["bash", "--norc", "-c", f"exec 3>&{writer} {writer}>&-\n" +
                                    script_of(session)],
                                   cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, pass_fds=[writer],
                                   start_new_session=True)
    os.close(writer)
    current, begin, failed, done, ended = None, time.monotonic(), None, False, False
    # Background processes keep the pipe open, too: the end is a word, not the end of the file.
    os.set_blocking(reader, False)
    pending = b""
    while failed is None and not done:
        was_ended, ended = ended, process.poll() is not None
        try:
            piece = os.read(reader, 4096)
            pending += piece
        except BlockingIOError:
            piece = None
            time.sleep(0.02)
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            word, *rest = line.decode().split()
            if word == "@run":
                if current is not None:
                    print(f"      {time.monotonic() - begin:6.1f} s", flush=True)
                current, begin = int(rest[0]), time.monotonic()
                print(f"  README.md:{current}: {texts[current]}", flush=True)
            elif word == "@failed":
                failed = (int(rest[1]), f"exit status {rest[0]}")
            elif word == "@done":
                done = True
        if time.monotonic() - begin > COMMAND_S:
            failed = (current, f"not done after {COMMAND_S} s")
        elif was_ended and not piece and not done and failed is None:
            failed = (current, f"the shell ended with {process.returncode}")
    print(f"      {time.monotonic() - begin:6.1f} s", flush=True)
    stop_group(process)
    process.wait()
    os.close(reader)
    if failed:
        print("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
    return failed


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    readme = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "README.md"
    if not (build / "pando").exists():
        print(f"SKIP: {build}/pando is not built")
        return 77
    if INSIDE in os.environ:
        furnish(readme.read_text())
    else:
        enter_namespaces()
        check_free(readme.read_text())
        print("(without namespaces: ports and names are this machine's)")
    sessions = read_readme(readme)
    if not sessions:
        print("FAILED: README.md has no ```sh fences")
        return 1
    count = sum(len(block) for session in sessions for block in session.blocks)
    for session in sessions:
        print(f"--- {session.title}", flush=True)
        if INSIDE not in os.environ and re.search(ELSEWHERE, script_of(session)):
            print("  NOT RUN: it needs addresses of other machines, and there are no namespaces here")
            continue
        with tempfile.TemporaryDirectory() as name:
            work, tools = make_folder(pathlib.Path(name), build)
            failed = run_session(session, work, environment(pathlib.Path(name), build, tools))
        if failed:
            print(f"FAILED: README.md:{failed[0]}: {failed[1]}")
            return 1
        left = [path.name for path in pathlib.Path("/dev/shm").glob("pando-demo*")] if INSIDE in os.environ else []
        if left:
            print(f"FAILED: README.md: {session.title}: its commands leave {left} in /dev/shm")
            return 1
    print(f"readme: {count} command lines of {len(sessions)} sections: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
