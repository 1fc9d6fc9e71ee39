"""The things that are compared: each knows how to start in front of the tool."""

import json
import os
import subprocess
import sys
import time
import urllib.request

from . import install
from .process import (BOTH_CORES, PROXY_CORE, HERE, Wrong, fill, free_address, spawn, stop,
                      wait_for)


class Peer:
    """`start` says where it listens; `pids` whose time and memory count."""

    path = "/tool"
    # The field in which a caller's id goes, where one has to be sent.
    id_field = None

    def __init__(self, cores=1):
        self.workers = cores
        self.core = PROXY_CORE if cores == 1 else BOTH_CORES
        self.processes = []

    def run(self, command, env=None, **options):
        options = {"stdout": subprocess.DEVNULL, "stderr": sys.stderr, **options}
        process = spawn(self.core, command, env={**os.environ, **(env or {})}, **options)
        self.processes.append(process)
        return process

    def pids(self):
        return [process.pid for process in self.processes]

    def stop(self):
        for process in self.processes:
            stop(process)


class Direct(Peer):
    """Nothing in between: what the load and the tool take by themselves."""

    id_field = "X-Call-Id"

    def start(self, directory, tool):
        return tool.address


class Nginx(Peer):
    def start(self, directory, tool):
        program, env = install.nginx()
        address = free_address()
        user = "user root;" if os.geteuid() == 0 else ""
        values = {"DIR": directory, "TOOL": tool.address, "LISTEN": address, "USER": user,
                  "WORKERS": self.workers}
        conf = fill("nginx.conf", directory / "nginx.conf", values)
        log = directory / "nginx.log"
        log.touch()
        return wait_for(address, self.run([program, "-e", log, "-c", conf], env))


class Haproxy(Peer):
    def start(self, directory, tool):
        program, env = install.haproxy()
        address = free_address()
        values = {"TOOL": tool.address, "LISTEN": address, "WORKERS": self.workers}
        conf = fill("haproxy.cfg", directory / "haproxy.cfg", values)
        return wait_for(address, self.run([program, "-q", "-db", "-f", conf], env))


class Envoy(Peer):
    def start(self, directory, tool):
        program, env = install.envoy()
        address = free_address()
        values = {"PORT": address.rsplit(":", 1)[1], "TOOL_PORT": tool.address.rsplit(":", 1)[1]}
        conf = fill("envoy.yaml", directory / "envoy.yaml", values)
        command = [program, "-c", conf, "--concurrency", self.workers, "--disable-hot-restart",
                   "--log-level", "error"]
        return wait_for(address, self.run(command, env))


class Pingora(Peer):
    def start(self, directory, tool):
        program, env = install.pingora()
        address = free_address()
        return wait_for(address, self.run([program, address, tool.address], env))


class Callgate(Peer):
    def __init__(self, binary, effects, receipt=False, cores=1, tls=False, own_id=False,
                 upstream=""):
        super().__init__(cores)
        self.binary, self.effects, self.receipt = binary, effects, receipt
        self.tls, self.upstream = tls, upstream
        if own_id:
            self.id_field = "X-Call-Id"

    def start(self, directory, tool):
        address = free_address()
        self.admin = free_address()
        values = {"DIR": directory, "LISTEN": address, "ADMIN": self.admin,
                  "WORKERS": self.workers, "EFFECTS": self.effects,
                  "RECEIPT": "    receipt: {}" if self.receipt else "",
                  "TOOL": f"http://{tool.address}", "UPSTREAM": self.upstream}
        if self.tls:
            port = tool.tls_address.rsplit(":", 1)[1]
            values |= {"TOOL": f"https://localhost:{port}",
                       "UPSTREAM": f'ca_file: "{tool.ca}", {self.upstream}'}
        conf = fill("callgate.yaml", directory / "callgate.yaml", values)
        return wait_for(address, self.run([self.binary, "serve", "--config", conf]))


class Restate(Peer):
    """One durable idempotent call: the server, and a service that does one call to the tool."""

    path = "/tool/call"
    id_field = "idempotency-key"

    def start(self, directory, tool):
        program, env = install.restate()
        # It warns at every start, of what does not matter here.
        log = (directory / "restate.log").open("w")
        service = self.run(["node", HERE / "restate.mjs"],
                           {**env, "TOOL": f"http://{tool.address}/tool"}, stderr=log,
                           stdout=subprocess.PIPE, text=True)
        served = service.stdout.readline().strip()
        if not served:
            raise Wrong("restate's service did not start")
        address, admin, node = free_address(), free_address(), free_address()
        settings = {"RESTATE_INGRESS__BIND_ADDRESS": address, "RESTATE_ADMIN__BIND_ADDRESS": admin,
                    "RESTATE_BIND_ADDRESS": node, "RESTATE_LISTEN_MODE": "tcp",
                    "RESTATE_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1",
                    "RESTATE_LOG_FILTER": "error"}
        command = [program, "--no-logo", "--base-dir", directory / "restate"]
        server = self.run(command, settings, stderr=log)
        wait_for(admin, server, 60)
        self.register(admin, f"http://{served}")
        return wait_for(address, server, 60)

    @staticmethod
    def register(admin, served):
        body = json.dumps({"uri": served}).encode()
        request = urllib.request.Request(f"http://{admin}/deployments", body,
                                         {"Content-Type": "application/json"})
        for _ in range(150):
            try:
                with urllib.request.urlopen(request, timeout=20) as response:
                    return response.read()
            except OSError as e:
                said = e
                time.sleep(0.2)  # it listens before it can do anything
        raise Wrong(f"restate does not take its service: {said}")
