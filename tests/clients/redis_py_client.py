"""What programs do with redis-py.   redis_py_client.py use|restart PORT [PASSWORD CERTIFICATE]"""
import pickle
import sys
import threading
import time

import redis

THREADS, COUNTS = 8, 300
what, port, *guard = sys.argv[1:]
OPTIONS = {"host": "127.0.0.1", "port": int(port), "socket_timeout": 30, "client_name": "shop"}
if guard:
    OPTIONS |= {"password": guard[0], "ssl": True, "ssl_ca_certs": guard[1]}


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def refused(call, error=redis.ResponseError):
    try:
        answer = call()
    except error as said:
        return str(said)
    raise AssertionError(f"{answer!r} instead of an error")


def in_threads(work, count=THREADS):
    """Runs work(0) to work(count - 1) at a time; the first exception is raised here."""
    failed = []

    def run(number):
        try:
            work(number)
        except BaseException as error:  # pylint: disable=broad-except
            failed.append(error)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def connection(server):
    expect("ping", server.ping(), True)
    expect("name", server.client_getname(), "shop")
    expect("clients", [client["name"] for client in server.client_list()], ["shop"])
    expect("info", server.info("server")["redis_mode"], "standalone")
    expect("echo", server.echo("hello"), b"hello")
    expect("config", isinstance(server.config_get("*"), dict), True)
    expect("time", abs(server.time()[0] - time.time()) < 60, True)
    server.set("text", "x")
    expect("no number", refused(lambda: server.incr("text")),
           "value is not an integer or out of range")
    expect("unknown", "unknown command" in refused(lambda: server.lpush("l", 1)), True)


def pipelines(server):
    with server.pipeline(transaction=False) as pipe:
        for number in range(2000):
            pipe.set(f"pipe:{number}", number, ex=1000)
        expect("pipeline", pipe.execute(), [True] * 2000)
        pipe.mget([f"pipe:{number}" for number in range(0, 2000, 500)])
        pipe.incr("pipe:7", 10).ttl("pipe:7").delete("pipe:8", "pipe:9").exists("pipe:8")
        values, seven, ttl, *rest = pipe.execute()
    expect("pipeline", (values, seven, rest), ([b"0", b"500", b"1000", b"1500"], 17, [2, 0]))
    expect("ttl", 900 < ttl <= 1000, True)
    pipe = server.pipeline(transaction=False).set("before", 1).lpush("list", 1).set("behind", 2)
    first, wrong, last = pipe.execute(raise_on_error=False)
    expect("an error in a pipeline", (first, type(wrong), last), (True, redis.ResponseError, True))


def transactions(server):
    """There are none: nothing is written, the error says so, and the connection goes on."""
    server.set("there", "before")
    pipe = server.pipeline().set("there", "after").set("new", 1).incr("count")
    said = refused(pipe.execute, redis.exceptions.ExecAbortError)
    print("pipeline() raises ExecAbortError:", said)
    expect("nothing written", server.mget("there", "new", "count"), [b"before", None, None])
    pipe.set("new", 1)
    refused(pipe.execute, redis.exceptions.ExecAbortError)
    refused(lambda: server.transaction(lambda pipe: pipe.set("new", 1), "there"))
    expect("nothing written", server.mget("there", "new", "count"), [b"before", None, None])
    connections = server.connection_pool
    one = redis.Redis(connection_pool=type(connections)(
        connections.connection_class, 1, **connections.connection_kwargs))
    refused(one.pipeline().set("new", 1).execute, redis.exceptions.ExecAbortError)
    expect("the same connection goes on", (one.set("new", 2), one.get("new")), (True, b"2"))


def cache(server):
    page = {"title": "café", "rows": list(range(100))}
    calls = []

    def cached(key, seconds):
        """One of many that miss at the same time makes the page; the others wait for it."""
        while True:
            found = server.get(key)
            if found is not None:
                return pickle.loads(found)
            if server.set(key + ":making", "1", nx=True, ex=30):
                if not server.exists(key):  # nobody was quicker
                    calls.append(key)
                    server.setex(key, seconds, pickle.dumps(page))
                server.delete(key + ":making")
            time.sleep(0.01)

    in_threads(lambda number: expect("page", cached("page", 100), page))
    expect("made once", calls, ["page"])
    expect("expires", 90 < server.ttl("page") <= 100, True)
    expect("getex", pickle.loads(server.getex("page", px=50)), page)
    end = time.monotonic() + 20
    while server.exists("page") and time.monotonic() < end:
        time.sleep(0.01)
    expect("expired", (server.get("page"), server.ttl("page")), (None, -2))
    expect("xx", server.set("page", "x", xx=True), None)
    expect("get", server.set("page", "new", get=True), None)
    expect("keepttl", (server.expire("page", 100), server.set("page", "newer", keepttl=True),
                       server.ttl("page") > 0, server.persist("page"), server.ttl("page")),
           (True, True, True, True, -1))


def counters(server):
    def count(number):
        for i in range(COUNTS):
            server.incr("hits")
            server.incrby(f"hits:{i % 3}", number)
            server.incrbyfloat("seconds", 0.5)
    in_threads(count)
    expect("hits", int(server.get("hits")), THREADS * COUNTS)
    expect("seconds", float(server.get("seconds")), THREADS * COUNTS / 2)
    expect("by page", sum(int(value) for value in server.mget("hits:0", "hits:1", "hits:2")),
           sum(range(THREADS)) * COUNTS)


def scans(server):
    """Keys that stay are returned once, while others come and go."""
    there = {f"scan:{number}".encode() for number in range(1500)}
    server.mset({key: 1 for key in there})
    stop = threading.Event()

    def churn():
        number = 0
        while not stop.is_set():
            number += 1
            server.set(f"scan:x{number % 500}", number)
            server.delete(f"scan:x{(number + 250) % 500}")
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for count in (10, 100, 5000):
            found = [key for key in server.scan_iter(match="scan:*", count=count)
                     if not key.startswith(b"scan:x")]
            expect("scanned", (len(found), set(found)), (1500, there))
    finally:
        stop.set()
        thread.join()
    expect("keys", len(server.keys("scan:1?")), 10)


def locks(server):
    """A lock is taken and runs out; giving it back early needs a script, and there are none."""
    lock, other = server.lock("lock", timeout=100), server.lock("lock", timeout=100)
    expect("taken", lock.acquire(blocking=False), True)
    expect("held", other.acquire(blocking=False), False)
    refused(lock.release)
    server.pexpire("lock", 50)
    expect("taken when it ran out", other.acquire(blocking_timeout=20), True)
    server.delete("lock")


def restart():
    """Threads of a bounded pool go on writing while the server is killed and comes back."""
    pool = redis.BlockingConnectionPool(max_connections=4, timeout=60, **OPTIONS)
    server = redis.Redis(connection_pool=pool)
    stop, broken, written = threading.Event(), threading.Event(), [0] * THREADS

    def write(number):
        give_up = time.monotonic() + 100
        while not stop.is_set():
            try:
                key = f"{number}:{written[number]}"
                server.set(key, key)
                written[number] += 1
                time.sleep(0.001)  # the pool is not fair: others get a connection now
            except (redis.ConnectionError, redis.TimeoutError):
                broken.set()
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)

    def attend(number):
        if number < THREADS:
            return write(number)
        try:
            wait_until(lambda: sum(written) > 200)
            life = server.info("server")["run_id"]
            print("DO restart", flush=True)
            sys.stdin.readline()
            expect("a client notices", broken.wait(60), True)
            since = sum(written)
            wait_until(lambda: sum(written) > since + 200)
            expect("another server", server.info("server")["run_id"] == life, False)
        finally:
            stop.set()
    in_threads(attend, THREADS + 1)
    for number, count in enumerate(written):
        keys = [f"{number}:{i}" for i in range(count)]
        expect("acknowledged", server.mget(keys), [key.encode() for key in keys])
    expect("connections", len(server.client_list()) <= 4, True)
    print(f"{sum(written)} writes over a restart of the server, all there")


def wait_until(met, seconds=60):
    end = time.monotonic() + seconds
    while not met():
        if time.monotonic() > end:
            raise AssertionError("nothing goes on")
        time.sleep(0.01)


def use():
    server = redis.Redis(**OPTIONS)
    server.flushall()
    for part in (connection, pipelines, transactions, cache, counters, scans, locks):
        part(server)
    if guard:
        refused(redis.Redis(**OPTIONS | {"password": "wrong"}).ping)
        refused(redis.Redis(**OPTIONS | {"ssl_ca_certs": None}).ping, redis.ConnectionError)


print(f"redis-py {redis.__version__}: {what}{', password and TLS' if guard else ''}", flush=True)
use() if what == "use" else restart()
