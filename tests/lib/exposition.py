"""A strict reader of the text format of Prometheus (0.0.4), for tests."""
import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)\}})? (\S+)$")
SUFFIXES = {"summary": ("", "_sum", "_count"), "histogram": ("_bucket", "_sum", "_count"),
            "counter": ("",), "gauge": ("",)}


class Wrong(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Wrong(text)


def number(text):
    need(re.fullmatch(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|Inf)|NaN", text), f"no number: {text}")
    return float(text.replace("Inf", "inf"))


def check_histogram(name, samples):
    buckets = [(number(labels["le"]), value) for (family, labels, value) in samples
               if family == name + "_bucket"]
    need(buckets and buckets[-1][0] == math.inf, f"{name}: no +Inf bucket at the end")
    need(buckets == sorted(buckets) and len(set(le for le, _ in buckets)) == len(buckets),
         f"{name}: buckets do not rise")
    counts = [value for _, value in buckets]
    need(counts == sorted(counts), f"{name}: counts of buckets fall")
    total = [value for (family, _, value) in samples if family == name + "_count"]
    need(total == [counts[-1]], f"{name}: its count is not that of +Inf")


def check_family(name, kind, samples):
    allowed = {name + suffix for suffix in SUFFIXES[kind]}
    seen = set()
    for family, labels, value in samples:
        need(family in allowed, f"{family} stands under {name}")
        key = (family, tuple(sorted(labels.items())))
        need(key not in seen, f"{key} twice")
        seen.add(key)
        if kind == "counter":
            need(name.endswith("_total"), f"{name}: a counter's name ends in _total")
            need(value >= 0 and value == int(value), f"{name}: {value} is no count")
        if kind == "summary" and family == name:
            need(0 <= number(labels["quantile"]) <= 1, f"{name}: {labels}")
    if kind == "histogram":
        check_histogram(name, samples)


def parse(text):
    """{(name, labels as sorted pairs): value}; raises Wrong."""
    need(text.endswith("\n"), "the last line has no end")
    result, families, current, helped = {}, {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            need(re.fullmatch(NAME, helped) and len(line.split(" ", 3)) == 4, line)
            need(helped not in families, f"{helped} twice")
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            need(name == helped and kind in SUFFIXES, line)
            families[name] = (kind, [])
            current = name
        else:
            match = SAMPLE.match(line)
            need(match, f"not a sample: {line}")
            need(current, f"no type before {line}")
            labels = dict(re.findall(LABEL, match[2] or ""))
            value = number(match[match.lastindex])
            families[current][1].append((match[1], labels, value))
            result[match[1], tuple(sorted(labels.items()))] = value
    for name, (kind, samples) in families.items():
        check_family(name, kind, samples)
    return result


def waiting_bytes(samples):
    """Of a pool, by the metrics of a server or a memory node: bytes that nobody uses and nobody may use yet, because
    they wait for their grace period or are in a process's hands. None: it does not tell."""
    found = [value for (name, labels), value in samples.items()
             if name == "pando_pool_use_bytes" and dict(labels)["use"] in ("waiting", "held")]
    return sum(found) if found else None
