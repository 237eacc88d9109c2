#!/usr/bin/env python3
"""A web server in node with express-session and connect-redis: its sessions outlive a restart of
the pando server, and its own."""
import json
import pathlib
import sys
import urllib.request

import lib

LIBRARIES = {"redis": "^5.0.0", "connect-redis": "^9.0.0", "express-session": "^1.18.0"}


class Visitor:
    """A browser: it keeps the cookie."""

    def __init__(self, port):
        self.port, self.cookie = port, None

    def __call__(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if self.cookie:
            request.add_header("Cookie", self.cookie)
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = answer.headers.get("Set-Cookie")
            if told:
                self.cookie = told.split(";")[0]
            return json.loads(answer.read())


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def start_web(processes, modules, port, name):
    program = pathlib.Path(__file__).resolve().parent / "sessions_web.js"
    web = processes.start(["node", program, modules, port], name)
    return web, int(processes.wait_for(web, "listening on", 60).split()[-1])


def main():
    build = lib.build_directory()
    modules = lib.npm_modules(build / "clients-sessions", LIBRARIES)
    with lib.Processes() as processes:
        port, restart = processes.start_shared(build)
        web, web_port = start_web(processes, modules, port, "web")
        anna, bert = Visitor(web_port), Visitor(web_port)
        expect("views", [anna("/"), anna("/"), bert("/"), anna("/")],
               [{"views": 1}, {"views": 2}, {"views": 1}, {"views": 3}])
        expect("sessions", anna("/count"), {"sessions": 2})
        restart()
        processes.wait_for(web, "connected: 2", 60)
        expect("after a restart", [anna("/"), bert("/")], [{"views": 4}, {"views": 2}])
        web.kill()
        web.wait()
        web, anna.port = start_web(processes, modules, port, "web2")
        bert.port = anna.port
        expect("another web server", [anna("/"), bert("/")], [{"views": 5}, {"views": 3}])
        call = lib.Connection(port)
        keys = call("keys", "sess:*")
        expect("keys", len(keys), 2)
        expect("they expire", all(3000 < call("ttl", key) <= 3600 for key in keys), True)
        expect("logout", bert("/logout"), {"views": 0})
        expect("sessions", anna("/count"), {"sessions": 1})
        expect("a new session", bert("/"), {"views": 1})
        call("flushdb")
        expect("gone", anna("/"), {"views": 1})
    print("sessions: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
