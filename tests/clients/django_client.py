"""What a web site does with Django's cache.

    django_client.py EXAMPLES PORT [PASSWORD CERTIFICATE]
"""
import sys
import threading

import django
import django_redis
import redis
from django.conf import settings

examples, port, *guard = sys.argv[1:]
sys.path.append(examples)
RECOMMENDED = {"CLIENT_CLASS": "django_cache.Client", "REDIS_CLIENT_CLASS": "django_cache.Redis"}


def backend(prefix, **options):
    if guard:
        options["PASSWORD"] = guard[0]
        options["CONNECTION_POOL_KWARGS"] = {"ssl_ca_certs": guard[1]}
    return {"BACKEND": "django_redis.cache.RedisCache", "KEY_PREFIX": prefix, "TIMEOUT": 300,
            "LOCATION": f"{'rediss' if guard else 'redis'}://127.0.0.1:{port}/1",
            "OPTIONS": options}


settings.configure(
    CACHES={"default": backend("site", **RECOMMENDED),
            "unchanged": backend("other"),
            "small": backend("small", **RECOMMENDED,
                             SERIALIZER="django_redis.serializers.json.JSONSerializer",
                             COMPRESSOR="django_redis.compressors.zlib.ZlibCompressor")},
    SESSION_ENGINE="django.contrib.sessions.backends.cache", USE_TZ=True, SECRET_KEY="not one")
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import caches  # noqa: E402


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def raises(error, call):
    try:
        answer = call()
    except error as said:
        return said
    raise AssertionError(f"{answer!r} instead of {error.__name__}")


def values(cache):
    page = {"title": "café", "rows": [1.5, None, "x" * 5000]}
    expect("set", (cache.set("page", page), cache.get("page")), (True, page))
    expect("default", cache.get("nothing", "instead"), "instead")
    expect("add", (cache.add("page", 1), cache.add("once", 1), cache.get("once")), (False, True, 1))
    expect("ttl", 290 < cache.ttl("page") <= 300, True)
    expect("for ever", (cache.set("page", page, timeout=None), cache.ttl("page")), (True, None))
    expect("touch", (cache.touch("page", 1000), 990 < cache.ttl("page") <= 1000), (True, True))
    expect("touch", cache.touch("nothing", 1000), False)
    expect("persist", (cache.persist("page"), cache.ttl("page")), (True, None))
    expect("expire", (cache.expire("page", 50), 40 < cache.ttl("page") <= 50), (True, True))
    expect("no time", (cache.set("gone", 1, timeout=0), cache.has_key("gone")), (False, False))
    expect("get_or_set", cache.get_or_set("made", lambda: [1, 2], 100), [1, 2])
    expect("in", ("made" in cache, "nothing" in cache), (True, False))
    expect("delete", (cache.delete("made"), cache.delete("made")), (1, 0))
    expect("version", (cache.set("v", "one"), cache.incr_version("v"), cache.get("v"),
                       cache.get("v", version=2)), (True, 2, None, "one"))


def many(cache):
    data = {f"item:{number}": {"number": number} for number in range(500)}
    cache.set_many(data, timeout=100)
    expect("get_many", cache.get_many([*data, "nothing"]), data)
    expect("ttl", 90 < cache.ttl("item:7") <= 100, True)
    expect("keys", len(cache.keys("item:1?")), 10)
    expect("iter_keys", sum(1 for _ in cache.iter_keys("item:*", itersize=50)), 500)
    expect("delete_many", cache.delete_many(["item:1", "item:2", "nothing"]), 2)
    expect("delete_pattern", cache.delete_pattern("item:*", itersize=100), 498)
    expect("the rest", (len(cache.keys("item:*")), cache.get("once")), (0, 1))


def counting(cache):
    cache.set("count", 1, timeout=100)
    expect("incr", (cache.incr("count"), cache.incr("count", 10), cache.decr("count", 2)),
           (2, 12, 10))
    expect("keeps its time", 90 < cache.ttl("count") <= 100, True)
    raises(ValueError, lambda: cache.incr("nothing"))
    expect("new", (cache.incr("new", ignore_key_check=True), cache.get("new")), (1, 1))

    def visit():
        for _ in range(200):
            caches["default"].incr("count")
    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("counted by threads", cache.get("count"), 1610)


def sessions():
    first = SessionStore()
    first["user"], first["basket"] = 7, [1, 2, 3]
    first.save()
    second = SessionStore(session_key=first.session_key)
    expect("session", (second["user"], second["basket"]), (7, [1, 2, 3]))
    second["basket"] = []
    second.save()
    old_key = second.session_key
    second.cycle_key()
    expect("a new key", (SessionStore(session_key=old_key).get("user"), second["user"]), (None, 7))
    second.flush()
    expect("logged out", SessionStore(session_key=old_key).get("user"), None)


def unchanged(cache):
    """Without the recommended classes set_many() is a transaction: it fails, and writes nothing."""
    expect("set", (cache.set("a", 1), cache.get("a")), (True, 1))
    raises(redis.exceptions.ExecAbortError, lambda: cache.set_many({"a": 2, "b": 3}))
    expect("nothing written", cache.get_many(["a", "b"]), {"a": 1})


print(f"Django {django.__version__}, django-redis {django_redis.__version__}, redis-py "
      f"{redis.__version__}{': password and TLS' if guard else ''}", flush=True)
django_redis.get_redis_connection("default").flushall()
values(caches["default"])
many(caches["default"])
counting(caches["default"])
sessions()
unchanged(caches["unchanged"])
small = caches["small"]
small.set_many({"a": {"b": [1, 2]}, "c": "x" * 10000})
expect("compressed JSON", small.get_many(["a", "c"]), {"a": {"b": [1, 2]}, "c": "x" * 10000})
expect("other prefixes stay", (small.delete_pattern("*"), caches["default"].get("once")), (2, 1))
caches["default"].clear()
expect("clear", django_redis.get_redis_connection("default").dbsize(), 0)
