"""The figures as a person reads them, and as a program does."""

import json
import platform
import statistics
import subprocess
import time
from pathlib import Path

from . import install
from .process import ROOT, sync_seconds
from .rows import GOALS


def about(options, versions):
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT,
                            capture_output=True, text=True).stdout.strip()
    model = next((line.split(":", 1)[1].strip() for line in
                  Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit, "profile": options.profile,
        "kernel": platform.release(), "cpu": model,
        "load before": Path("/proc/loadavg").read_text().split()[0],
        "4 KiB fdatasync, ms": round(statistics.median(sync_seconds(options.scratch)) * 1e3, 3),
        "rounds": options.rounds, "seconds": options.seconds, **versions,
    }


def versions(rows):
    """What exactly was measured."""
    asks = {"nginx": (install.nginx, ["-v"]), "haproxy": (install.haproxy, ["-v"]),
            "envoy": (install.envoy, ["--version"]), "restate": (install.restate, ["--version"])}
    found = {}
    for name in {row.name.split(",")[0] for row in rows}:
        if name in asks:
            program, env = asks[name][0]()
            found[name] = install.version([program, *asks[name][1]], env)
    return dict(sorted(found.items()))


def spread(ratios):
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


def table(rounds, names):
    base = names[0]

    def middle(name, key):
        return statistics.median(r[name][key] for r in rounds)

    def ratio(name, key):
        return spread(sorted(r[name][key] / r[base][key] for r in rounds))

    head = ["", "req/s", f"of {base}", "CPU µs/req", f"of {base}", "core busy", "p50 ms", "p99 ms",
            "RSS MiB"]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for name in names:
        cells = [
            name, f"{middle(name, 'requests_per_s'):,.0f}", ratio(name, "requests_per_s"),
            f"{middle(name, 'cpu_us_per_request'):.1f}", ratio(name, "cpu_us_per_request"),
            f"{middle(name, 'busy'):.0%}",
            f"{middle(name, 'p50_us') / 1e3:.2f}", f"{middle(name, 'p99_us') / 1e3:.2f}",
            f"{middle(name, 'rss_mib'):.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def goals(rounds):
    lines = ["| goal | at | median (range) | |", "|---|---|---:|---|"]
    for goal in GOALS:
        ratios = goal.ratios(rounds)
        if not ratios:
            continue
        sign = "<=" if goal.less else ">="
        wanted = f"{sign} {goal.median:.3g}"
        if goal.worst is not None:
            wanted += f", every round {sign} {goal.worst:.3g}"
        verdict = "reached" if goal.reached(ratios, statistics.median(ratios)) else "**missed**"
        lines.append(f"| {goal.name()} | {wanted} | {spread(ratios)} | {verdict} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def head(facts):
    return ", ".join(f"{key} {value}" for key, value in facts.items()) + "\n"


def write(path, facts, rounds, **more):
    if path:
        path.write_text(json.dumps({"about": facts, **more, "rounds": rounds}, indent=1) + "\n")
