#!/usr/bin/env python3
"""npm's `redis` and `ioredis` against pando serve. They are installed into the build folder."""
import json
import pathlib
import subprocess
import sys

import lib

LIBRARIES = {"redis": "^5.0.0", "ioredis": "^5.4.1"}


def install(folder):
    """False where npm or the network is missing."""
    modules = folder / "node_modules"
    if all((modules / name / "package.json").exists() for name in LIBRARIES):
        return True
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": LIBRARIES}))
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, timeout=60,
                              capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode != 0:
        print(done.stderr)
    return done.returncode == 0


def main():
    build = lib.build_directory()
    lib.need("node", "nodejs")
    lib.need("npm", "npm")
    folder = build / "clients"
    if not install(folder):
        lib.skip("npm could not install redis and ioredis; is there a network?")
    client = pathlib.Path(__file__).resolve().parent / "node_client.js"
    with lib.Processes() as processes:
        server = processes.start_pando(build, "--threads", "2")
        for library in LIBRARIES:
            version = json.loads((folder / "node_modules" / library / "package.json").read_text())["version"]
            print(f"{library} {version}", flush=True)
            done = subprocess.run(["node", client, folder / "node_modules", library, str(server.port)], timeout=60)
            if done.returncode != 0:
                return 1
    print("node: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
