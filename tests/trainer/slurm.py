"""The Slurm of the distribution on this machine: munged, slurmctld and some slurmd as processes."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.trainer.lab import free_port

LIMIT_SECONDS = 120
_PATH = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
# cred_expire: a job that was put back waits for that long
AuthInfo=socket={root}/munge.sock,cred_expire=5
SlurmUser=root
SlurmdUser=root
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=120
"""


class Slurm:
    """A Slurm controller and some nodes, all on this machine, without containers."""

    def __init__(self, root: Path, nodes: int) -> None:
        """Start the controller and the nodes, and wait until the nodes are idle."""
        self._root, self._started = root, list[subprocess.Popen[bytes]]()
        (root / "state").mkdir()
        key = root / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        host = socket.gethostname()
        text = _CONF.format(host=host, root=root, controller_port=free_port())
        for number in range(nodes):
            text += f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 "
            text += f"Port={free_port()} CPUs={os.cpu_count()} State=UNKNOWN\n"
        text += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        (root / "slurm.conf").write_text(text)
        files = ("key-file=key", "socket=munge.sock", "pid-file=pid", "log-file=log", "seed-file=s")
        options = [f"--{name}={root / file}" for name, file in (file.split("=") for file in files)]
        self._start("munged", "--foreground", "--force", *options)
        self.wait("munge", (root / "munge.sock").exists)
        self._start("slurmctld", "-D")
        for number in range(nodes):
            self._start("slurmd", "-D", "-N", f"n{number}")
        self.wait("idle nodes", lambda: self.asked("sinfo", "-h", "-o", "%D %t") == f"{nodes} idle")

    def close(self) -> None:
        """End all processes, the last started first."""
        for process in reversed(self._started):
            process.terminate()
            process.wait(60)

    def asked(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Return what a command of Slurm prints; empty if it fails, as while the controller
        starts.
        """
        done = subprocess.run(
            command,
            cwd=self._root,
            env=self._environment | dict(environment or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """Return the state of a job, such as RUNNING."""
        return self.asked("squeue", "-h", "-j", job, "--states=all", "-o", "%T")

    def wait(self, what: str, condition: object) -> None:
        """Wait until the condition is true, and fail with the logs if it is not in time."""
        assert callable(condition)
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        """Return the last output of Slurm's programs and jobs."""
        files = sorted(self._root.glob("*.out"))
        return "\n".join(f"== {file.name}\n{file.read_text()[-3000:]}" for file in files)

    @property
    def _environment(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SLURM_"))}
        return {**clean, "PATH": _PATH, "SLURM_CONF": str(self._root / "slurm.conf")}

    def _start(self, *command: str) -> None:
        with (self._root / f"{len(self._started)}-{command[0]}.out").open("w") as output:
            self._started.append(
                subprocess.Popen(
                    command, env=self._environment, stdout=output, stderr=subprocess.STDOUT
                )
            )


@contextmanager
def slurm_of(nodes: int) -> Iterator[Slurm]:
    """Run a Slurm during the block. Its folder has a short path, because it contains sockets."""
    with tempfile.TemporaryDirectory() as root:
        made = Slurm(Path(root), nodes)
        try:
            yield made
        finally:
            made.close()
