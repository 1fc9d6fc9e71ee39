"""What is measured, beside what, and which goal that has."""

from dataclasses import dataclass
from typing import Callable

from . import install
from .peers import Callgate, Envoy, Haproxy, Nginx, Pingora, Peer, Restate


@dataclass(frozen=True)
class Row:
    name: str
    peer: Callable[[], Peer]
    # What to install for it, when that is not there.
    needs: Callable = None
    mode: str = "post"
    connections: int = 64


def rows(binary):
    def callgate(*args, **kwargs):
        return lambda: Callgate(binary, *args, **kwargs)

    once = ("once", True)
    listed = [
        Row("nginx", Nginx, install.nginx),
        Row("haproxy", Haproxy, install.haproxy),
        Row("envoy", Envoy, install.envoy),
        Row("pingora", Pingora, install.pingora),
        Row("callgate none", callgate("none")),
        Row("callgate none, TLS to the tool", callgate("none", tls=True)),
        Row("callgate once", callgate(*once)),
        Row("callgate once, no receipt", callgate("once")),
        Row("callgate receipts", callgate(*once, own_id=True), mode="receipt"),
        Row("callgate replays", callgate(*once, own_id=True), mode="replay"),
        Row("callgate joins", callgate(*once, own_id=True), mode="join"),
    ]
    for peer in (row for row in listed[:5]):
        listed.append(Row(f"{peer.name}, 1000", peer.peer, peer.needs, connections=1000))
    listed += [
        Row("nginx, both cores", lambda: Nginx(cores=2), install.nginx),
        Row("callgate none, both cores", callgate("none", cores=2)),
        Row("callgate once, both cores", callgate(*once, cores=2)),
        Row("restate, both cores", lambda: Restate(cores=2), install.restate),
    ]
    return {row.name: row for row in listed}


@dataclass(frozen=True)
class Goal:
    row: str
    key: str
    against: str
    # The other row's figure, or with `itself` another figure of the same row.
    median: float
    worst: float = None
    # Whether less is better.
    less: bool = False
    itself: str = None

    def name(self):
        what = {"requests_per_s": "req/s", "cpu_us_per_request": "CPU per request",
                "p99_us": "p99", "rss_mib": "RSS, MiB"}[self.key]
        if self.itself:
            return f"{self.row}: {what}, of its own p50"
        return f"{self.row}: {what}" + (f", of {self.against}" if self.against else "")

    def ratios(self, rounds):
        """One a round, in order; empty when a row of it was not measured."""
        found = []
        for measured in rounds:
            mine, theirs = measured.get(self.row), measured.get(self.against or self.row)
            if mine and theirs:
                by = mine[self.itself] if self.itself else theirs[self.key] if self.against else 1
                found.append(mine[self.key] / by)
        return sorted(found)

    def reached(self, ratios, median):
        def is_enough(figure, goal):
            return figure <= goal if self.less else figure >= goal

        worst = ratios[-1] if self.less else ratios[0]
        return is_enough(median, self.median) and (
            self.worst is None or is_enough(worst, self.worst))


NONE, ONCE = "callgate none", "callgate once"
GOALS = [
    Goal(NONE, "requests_per_s", "nginx", 1.15, 1.0),
    Goal(NONE, "cpu_us_per_request", "nginx", 1 / 1.15, 1.0, less=True),
    Goal(NONE, "requests_per_s", "haproxy", 1.15, 1.0),
    Goal(NONE, "cpu_us_per_request", "haproxy", 1 / 1.15, 1.0, less=True),
    Goal(NONE, "requests_per_s", "pingora", 2.0),
    Goal(NONE, "requests_per_s", "envoy", 3.2),
    Goal(f"{NONE}, 1000", "requests_per_s", "nginx, 1000", 1.10),
    Goal(f"{NONE}, 1000", "rss_mib", None, 96, less=True),
    Goal(f"{NONE}, 1000", "p99_us", None, 2.5, less=True, itself="p50_us"),
    Goal(ONCE, "requests_per_s", "nginx", 0.50),
    Goal(f"{ONCE}, both cores", "requests_per_s", "restate, both cores", 25),
    Goal("callgate replays", "requests_per_s", NONE, 1.2),
    Goal("callgate receipts", "requests_per_s", NONE, 1.6),
    Goal(f"{NONE}, TLS to the tool", "requests_per_s", NONE, 0.80),
    # The tool has TLS to do too, on the core of the load: this is callgate's own part.
    Goal(f"{NONE}, TLS to the tool", "cpu_us_per_request", NONE, 1 / 0.80, less=True),
]


def chosen(binary, named):
    """The rows to measure, and why others are left out."""
    everything = rows(binary)
    names = list(everything)
    if named:
        names = [name.strip() for name in named.split(";")]
        unknown = [name for name in names if name not in everything]
        if unknown:
            raise SystemExit(f"versus: no row {unknown[0]!r}; there are: {'; '.join(everything)}")
    left_out, reasons = {}, {}
    for name in names:
        needs = everything[name].needs
        if needs is None:
            continue
        if needs not in reasons:
            try:
                needs()
                reasons[needs] = None
            except install.Missing as missing:
                reasons[needs] = str(missing)
        if reasons[needs]:
            left_out[name] = reasons[needs]
    return [everything[name] for name in names if name not in left_out], left_out
