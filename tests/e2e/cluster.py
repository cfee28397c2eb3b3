"""The system as on many machines: one real process per service, on ports of this one."""

import http.client
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile

from server import BIN, DEADLINE_S, EMBEDDING_MODEL, MODEL, Client, free_port, wait_until


class Process:
    """One executable. `start()` again after `kill()` or `stop()`: same options, same folders."""

    def __init__(self, name, program, folder, ready_path="/readyz", **options):
        self.name = name
        self.ready_path = ready_path
        self.log_path = folder / f"{name}.log"
        self.arguments = [str(BIN.parent / program)]
        self.http = options.get("http_listen") or options["listen"]
        for key, value in options.items():
            self.arguments.append("--" + key.replace("_", "-"))
            if value is not True:
                self.arguments.append(str(value))
        self.process = None

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=log)

    def get(self, path):
        """Status of one GET; None while nobody answers."""
        connection = http.client.HTTPConnection(self.http, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def wait_alive(self):
        def alive():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n{self.last_words()}")
            return self.get("/livez") == 200
        wait_until(alive, f"{self.name} to live")

    def last_words(self):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-20:])

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def stop(self):
        """Exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


class Cluster(Client):
    """Gateway, controller, worker, router, two shards, and a replica of the first."""

    def __init__(self, worker=None, router=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ragcache-cluster-"))
        ports = {name: f"127.0.0.1:{free_port()}" for name in (
            "gateway", "gateway-grpc", "controller", "controller-http", "worker", "worker-http", "router",
            "router-http", "shard0", "shard0-http", "shard1", "shard1-http", "replica0",
            "replica0-http")}

        def retrieval(name, role, **options):
            return Process(name, "ragcache-retrieval", self.folder, role=role,
                           listen=ports[name], http_listen=ports[f"{name}-http"],
                           state_dir=self.folder / name, **options)

        def shard(name, index):
            return retrieval(name, "shard", shard_index=index, shard_count=2)

        self.processes = [
            Process("worker", "ragcache-worker", self.folder, model=MODEL,
                    listen=ports["worker"], http_listen=ports["worker-http"],
                    **({"kv_memory_mib": 256, "host_memory_mib": 64,
                        "host_arena": self.folder / "kv.arena", "state_dir": self.folder,
                        "profile_after_s": 86400} | (worker or {}))),
            shard("shard0", 0), shard("shard1", 1), shard("replica0", 0),
            retrieval("router", "router", model=MODEL, embedding_model=EMBEDDING_MODEL,
                      shards=f"{ports['shard0']},{ports['replica0']};{ports['shard1']}",
                      **(router or {})),
            Process("controller", "ragcache-controller", self.folder, model=MODEL,
                    listen=ports["controller"], http_listen=ports["controller-http"],
                    worker_address=ports["worker"], retrieval_address=ports["router"]),
            Process("gateway", "ragcache-gateway", self.folder, listen=ports["gateway"],
                    grpc_listen=ports["gateway-grpc"], controller_address=ports["controller"],
                    retrieval_address=ports["router"]),
        ]
        self.address = ports["gateway"]
        self.arena = self.folder / "kv.arena"
        for process in self.processes:
            process.start()
        self.wait_ready()

    def wait_ready(self):
        for process in self.processes:
            process.wait_alive()
        wait_until(lambda: all(p.get(p.ready_path) == 200 for p in self.processes),
                   "every process to be ready")

    def stop(self):
        for process in reversed(self.processes):
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGCONT)
                process.stop()
        shutil.rmtree(self.folder)

    def ready_reasons(self):
        return json.dumps(self.request("GET", "/readyz")[1])
