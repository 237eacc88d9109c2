"""What lets django-redis use a pando server, which has neither transactions nor scripts.

Copy this file into your project, and in settings.py, if it is mysite/django_cache.py:

    CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:6380/0",
            "OPTIONS": {
                "CLIENT_CLASS": "mysite.django_cache.Client",
                "REDIS_CLIENT_CLASS": "mysite.django_cache.Redis",
            },
        }
    }

Not to be had: cache.lock(), which needs scripts to be given back.
"""
import redis
from django_redis.client import DefaultClient


class Redis(redis.Redis):
    """Pipelines are no transactions: each command of set_many() is atomic by itself."""

    def pipeline(self, transaction=False, shard_hint=None):
        return super().pipeline(transaction=False, shard_hint=shard_hint)


class Client(DefaultClient):
    """incr() and decr() count with INCRBY instead of a script, as in Django's own Redis cache.

    Without it django-redis reads, adds and writes back, and counts of others are lost meanwhile."""

    def _incr(self, key, delta=1, version=None, client=None, ignore_key_check=False):
        client = client or self.get_client(write=True)
        key = self.make_key(key, version=version)
        if not ignore_key_check and not client.exists(key):
            raise ValueError(f"Key '{key}' not found")
        return client.incrby(key, delta)
