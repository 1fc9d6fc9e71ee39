"""The tool, the load in front of a peer, and what has to be right for a figure to count."""

import http.client
import json
import shutil
import subprocess
from contextlib import contextmanager

from .process import (ANSWER, BOTH_CORES, LOAD_CORE, REQUEST, Wrong, cpu_ns, get, rss_mib, spawn,
                      stop)

SETTLED = 1000


class Tool:
    """versus-upstream: answers at once, checks each call, counts those in order."""

    def __init__(self, program, scratch):
        self.ca = scratch / "tool.pem"
        self.process = spawn(LOAD_CORE, [program, self.ca], stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        self.tls_address = self.process.stdout.readline().strip()
        if not self.tls_address:
            raise Wrong("the tool did not start")

    def done(self):
        return int(get(self.address, "/count"))

    def stop(self):
        stop(self.process)


def verify(address, path, id_field=None, tag="", calls=25):
    """Whole answers, compared byte by byte by somebody else than the load generator."""
    connection = http.client.HTTPConnection(address, timeout=10)
    for n in range(calls):
        fields = {"Content-Type": "application/json"}
        if id_field:
            fields[id_field] = f"verify-{tag}-{n}"
        connection.request("POST", path, REQUEST, fields)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200 or body != ANSWER:
            raise Wrong(f"{address} answered {response.status} {body[:200]!r}")


class Load:
    """One run of versus-load: warm it up, look at the processes, let it go, look again."""

    def __init__(self, program, address, core=LOAD_CORE, **flags):
        arguments = []
        for name, value in flags.items():
            if value is not None:
                arguments += [f"--{name.replace('_', '-')}", value]
        self.process = spawn(core, [program, address, *arguments], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "READY\n":
            raise Wrong(self.process.communicate()[1].strip() or "the load generator ended")

    def go(self):
        out, err = self.process.communicate("\n")
        if self.process.returncode != 0:
            raise Wrong(f"the load generator failed: {err.strip()}")
        figures = json.loads(out)
        if figures["errors"]:
            raise Wrong(f"{figures['errors']}, such as {figures['examples'][0]}")
        return figures


def settle(program, address, peer):
    """Makes the calls that are asked about."""
    figures = Load(program, address, count=SETTLED, path=peer.path, id="settled").go()
    if figures["requests"] != SETTLED:
        raise Wrong(f"only {figures['requests']} of {SETTLED} calls were settled")


# Of so many answers, so many may have reached the tool.
REACHES = {"post": lambda n: (n, n), "receipt": lambda n: (0, 0), "replay": lambda n: (0, 0),
           "join": lambda n: (n // 64, n // 64 + 1)}


@contextmanager
def started(row, tool, options):
    """The row's peer in a folder of its own; afterwards it is stopped."""
    directory = options.scratch / "rows" / "".join(c if c.isalnum() else "-" for c in row.name)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    peer = row.peer()
    try:
        yield peer, peer.start(directory, tool)
    except Wrong as wrong:
        raise Wrong(f"{row.name}: {wrong}") from None
    finally:
        peer.stop()


def drive(row, peer, address, tool, options, **flags):
    """One measurement in front of a peer that runs."""
    asked = row.mode in ("receipt", "replay")
    prefix = "settled" if asked else peer.id_field and "call"
    load = Load(options.load, address, LOAD_CORE if peer.workers == 1 else BOTH_CORES,
                connections=row.connections, seconds=options.seconds, mode=row.mode,
                path=peer.path, id=prefix, id_field=peer.id_field, ids=SETTLED, **flags)
    used, done = cpu_ns(*peer.pids()), tool.done()
    figures = load.go()
    used, done = cpu_ns(*peer.pids()) - used, tool.done() - done
    requests, refused = figures["requests"], figures["refused"]
    least, most = REACHES[row.mode](requests)
    if not least <= done <= most:
        raise Wrong(f"{requests} answers, but the tool did {done}")
    seconds = figures["micros"] / 1e6
    return {
        "requests_per_s": requests / seconds,
        "cpu_us_per_request": used / 1e3 / max(requests + refused["count"], 1),
        # Well below 1: the load or the tool was the limit, and req/s says little about the peer.
        "busy": used / 1e9 / seconds / peer.workers,
        **{f"{key}_us": figures["right"][key] for key in ("p50", "p99", "p999", "max")},
        "rss_mib": rss_mib(*peer.pids()),
        "requests": requests,
        "renewed": figures["renewed"],
        "refused_per_s": refused["count"] / seconds,
        "refused_p50_us": refused["p50"], "refused_p99_us": refused["p99"],
        "late": figures["late"], "unsent": figures["unsent"],
    }


def measure(row, tool, options, **flags):
    """Starts the row's peer, drives it, stops it; the figures, or Wrong."""
    with started(row, tool, options) as (peer, address):
        verify(address, peer.path, peer.id_field, "before")
        if row.mode in ("receipt", "replay"):
            settle(options.load, address, peer)
        figures = drive(row, peer, address, tool, options, **flags)
        verify(address, peer.path, peer.id_field, "after")
    return figures
