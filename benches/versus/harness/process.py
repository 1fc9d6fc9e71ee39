"""Processes on chosen cores, and what the kernel says about them."""

import http.client
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
PROXY_CORE, LOAD_CORE, BOTH_CORES = "0", "1", "0,1"
REQUEST = ('{"pad":"' + "x" * (512 - 10) + '"}').encode()
ANSWER = ('{"ok":true,"pad":"' + "x" * (200 - 20) + '"}').encode()


class Wrong(Exception):
    """An answer that is not what it has to be; the run ends."""


def spawn(core, command, **options):
    return subprocess.Popen(["taskset", "-c", core, *map(str, command)], **options)


def stop(process):
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Wrong(f"{process.args[3]} did not stop within 40 s of SIGTERM") from None


def family(pids):
    """Processes and their children: NGINX works in one."""
    members = []
    for pid in pids:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            children = []
        members += [str(pid), *children]
    return members


def cpu_ns(*pids):
    total = 0
    for member in family(pids):
        for task in Path(f"/proc/{member}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass  # a thread that has just ended
    return total


def rss_mib(*pids):
    total = 0
    for member in family(pids):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def fill(template, target, values):
    text = (HERE / template).read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    target.write_text(text)
    return target


def free_address():
    """Free a moment ago, which has to do: all logs stay off, so nobody can tell a chosen port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def wait_for(address, process, seconds=20):
    host, port = address.rsplit(":", 1)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise Wrong(f"{process.args[3]} ended with {process.returncode} at its start")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return address
        except OSError:
            time.sleep(0.02)
    raise Wrong(f"nothing listens on {address}")


def sync_seconds(directory, count=300):
    """How long this disk takes to make 4 KiB durable, each time: the ledger rows stand on it."""
    path = directory / "sync"
    taken = []
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(b"x" * 4096)
            began = time.monotonic()
            os.fdatasync(file.fileno())
            taken.append(time.monotonic() - began)
    path.unlink()
    return taken


def build(profile, stale):
    """callgate, the tool and the load generator."""
    if not stale:
        subprocess.run(["cargo", "build", "--locked", "--profile", profile, "--bin", "callgate",
                        "--example", "versus-upstream", "--example", "versus-load"], cwd=ROOT,
                       check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    folder = target / ("debug" if profile == "dev" else profile)
    return (folder / "callgate", folder / "examples" / "versus-upstream",
            folder / "examples" / "versus-load")
