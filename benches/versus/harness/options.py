"""What all commands are told, and what they need."""

import argparse
import os
import sys
from pathlib import Path

from . import install
from .process import ROOT, build


def parser(text, rounds):
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=float, default=4, help="length of one measurement")
    parser.add_argument("--profile", default="dist", help="cargo profile of callgate")
    parser.add_argument("--no-build", action="store_true", help="measure what was built last")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    return parser


def ready(options):
    install.need("taskset", "util-linux")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("versus: needs two cores, one for the proxy and one for load and tool")
    # On a disk, not in /tmp: that may be memory, where a durable record costs nothing.
    options.scratch = ROOT / "target" / "versus"
    options.scratch.mkdir(parents=True, exist_ok=True)
    options.binary, options.upstream, options.load = build(options.profile, options.no_build)
    return options
