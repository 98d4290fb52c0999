"""Helpers of the tests of the command plugin: the engine with the plugin, stacks, an SSH server.

The plugin is the toolchain's: the official one if its release can be downloaded, or else the
stand-in in `sandbox/go/command`. `$DISTTRAIN_COMMAND_PLUGIN` names another program to test.
"""

import getpass
import json
import os
import shutil
import signal
import subprocess
import tarfile
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.servers import make_key

PLUGIN_VARIABLE = "DISTTRAIN_COMMAND_PLUGIN"
HEADER = "import pulumi\nfrom pulumi_command import local, remote\n"
# A program with four commands, one after the other; the first waits for the file $GO.
BESIDE = """
        before = []
        for n in range(4):
            text = f"until test -e $GO; do sleep 0.1; done; echo beside-{n} >> $LOG"
            opts = pulumi.ResourceOptions(depends_on=before)
            before = [local.Command(f"beside-{n}", create=text, opts=opts)]
"""
PATIENCE_SECONDS = 120  # a limit against a hang; no result of a test depends on it


@dataclass(frozen=True)
class Engine:
    """The engine, and the environment that keeps what it writes below one temporary folder.

    Args:
        pulumi: the path of the program `pulumi`.
        environment: the environment of every call.
        fresh: the folder of a project with a new stack `test`; each test gets a copy of it.
    """

    pulumi: str
    environment: dict[str, str]
    fresh: Path


def make_fresh(engine: Engine) -> None:
    """Make the project that tests copy; `pulumi stack init` takes half a second."""
    (engine.fresh / "state").mkdir(parents=True)
    (engine.fresh / "Pulumi.yaml").write_text("name: commands\nruntime: python\n")
    backend = {"PULUMI_BACKEND_URL": f"file://{engine.fresh / 'state'}"}
    subprocess.run(
        [engine.pulumi, "stack", "init", "test", "--non-interactive"],
        cwd=engine.fresh,
        env={**engine.environment, **backend},
        check=True,
        capture_output=True,
    )


def install_plugin(program: Path, version: str, home: Path, engine: Engine) -> None:
    """Install `program` as the command plugin of a PULUMI_HOME."""
    archive = home / "plugin.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(program, arcname="pulumi-resource-command")
    words = ["plugin", "install", "resource", "command", version, "--file", str(archive)]
    environment = {**engine.environment, "PULUMI_HOME": str(home)}
    subprocess.run([engine.pulumi, *words], env=environment, check=True, capture_output=True)


class Stack:
    """One project with one stack in its own file backend.

    The commands in its programs have two variables: LOG, a file into which they write what they
    did, and GO, a file for whose existence some of them wait.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.log = folder / "actions.log"
        self.go = folder / "go"
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {
            **engine.environment,
            "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
            "LOG": str(self.log),
            "GO": str(self.go),
            "PULUMI_STACK": "test",  # because the selected stack is noted for another folder
        }
        shutil.copytree(engine.fresh, folder, dirs_exist_ok=True)

    def program(self, text: str, **constants: Any) -> None:
        """Write the program. `constants` are values for names in its text."""
        given = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
        (self.folder / "__main__.py").write_text(HEADER + given + textwrap.dedent(text))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the engine with these words, and return its process."""
        process = subprocess.Popen(
            [self.engine.pulumi, *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End the engines, and all plugins and commands that they have started."""
        self.go.touch()  # ends the commands on the SSH server
        for engine in self.started:
            with engine:
                for pid in session_members(engine.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                engine.kill()

    def run(self, *arguments: str, fails: bool = False, warns: bool = False) -> str:
        """Run the engine to its end, and return its output. It must fail, or warn, exactly if the
        flag is set.
        """
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode != 0) == fails, output
        assert fails or ("warning" in output.lower()) == warns, output
        return output

    def up(
        self, program: str, *, fails: bool = False, warns: bool = False, **constants: Any
    ) -> str:
        """Write the program and run `up`; return the output."""
        self.program(program, **constants)
        # A failing command must not prevent the others that run beside it.
        words = ("up", "--yes", "--continue-on-error")
        return self.run(*words, fails=fails, warns=warns)

    def destroy(self) -> str:
        return self.run("destroy", "--yes")

    def previewed(self, program: str, **constants: Any) -> dict[str, str]:
        """Return what a preview says will happen to each resource, by the resource's name."""
        self.program(program, **constants)
        steps = json.loads(self.run("preview", "--json"))["steps"]
        return {step["urn"].rsplit("::", 1)[1]: step["op"] for step in steps}

    def logged(self) -> list[str]:
        """Return what the commands have written to $LOG."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def actions(self) -> list[str]:
        """Return what the commands have written to $LOG since the last call."""
        lines = self.logged()
        self.log.unlink(missing_ok=True)
        return lines

    def state_text(self) -> str:
        """Return the stack's state as the file backend keeps it."""
        return (self.folder / "state/.pulumi/stacks/commands/test.json").read_text()

    def recorded(self) -> list[dict[str, Any]]:
        """Return the command resources in the state."""
        resources = json.loads(self.state_text())["checkpoint"]["latest"].get("resources", [])
        return [r for r in resources if r["type"].startswith("command:")]

    def names(self) -> set[str]:
        """Return the names of the command resources in the state."""
        return {r["urn"].rsplit("::", 1)[1] for r in self.recorded()}

    def outputs(self, name: str) -> dict[str, Any]:
        """Return the outputs of one command in the state."""
        found = [r["outputs"] for r in self.recorded() if r["urn"].endswith(f"::{name}")]
        assert len(found) == 1, f"{len(found)} resources named {name} in the state"
        return found[0]


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read the engine's output up to the line that contains the text."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"the engine ended without {text!r}:\n{seen}")


def finish(process: subprocess.Popen[str]) -> str:
    """Read the rest of the engine's output, and wait for its end.

    `communicate` with a time limit reads the file descriptor itself. It would leave out what
    `read_until` has already read into the buffer of `process.stdout`.
    """
    assert process.stdout is not None
    limit = threading.Timer(PATIENCE_SECONDS, process.kill)
    limit.start()
    try:
        rest = process.stdout.read()
        process.wait(PATIENCE_SECONDS)
    finally:
        limit.cancel()
    return rest


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true, and fail after PATIENCE_SECONDS."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    return (fields := _stat(pid)) is not None and fields[0] != "Z"


def session_members(session: int) -> list[int]:
    """Return the processes of the session with this number, which `start_new_session` made."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if (fields := _stat(pid)) and fields[3] == str(session)]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name: state, parent, group, session and
    so on.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


@dataclass
class SshServer:
    """An OpenSSH server on loopback with its own keys."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def prepare(cls, folder: Path, port: int) -> "SshServer":
        """Make the keys and the settings of a server that does not run yet."""
        host_keys = [folder / "host", folder / "host_rsa"]
        make_key(host_keys[0])
        make_key(host_keys[1], "rsa")
        make_key(folder / "other")
        authorized = [make_key(folder / "user"), make_key(folder / "locked", password="open-up")]
        (folder / "authorized_keys").write_text("\n".join(authorized) + "\n")
        (folder / "sshd_config").write_text(
            "".join(f"HostKey {key}\n" for key in host_keys)
            + textwrap.dedent(f"""
                ListenAddress 127.0.0.1
                Port {port}
                AuthorizedKeysFile {folder}/authorized_keys
                PidFile none
                UsePAM no
                StrictModes no
                PasswordAuthentication no
                PermitRootLogin prohibit-password
                AcceptEnv ALLOWED
                Subsystem sftp internal-sftp
            """)
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd needs it if it runs as root
        return cls(folder, port)

    def start(self) -> None:
        program = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        assert program, "sshd is missing: install openssh-server"
        self.log.touch()
        words = ["-D", "-f", str(self.folder / "sshd_config"), "-E", str(self.log)]
        self.process = subprocess.Popen([program, *words])
        wait_for(lambda: "Server listening" in self.log.read_text(), "sshd listens")

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(PATIENCE_SECONDS)
            self.process = None
            self.log.unlink()

    @property
    def log(self) -> Path:
        return self.folder / "sshd.log"

    def key(self, name: str) -> str:
        """Return the content of the key file with this name."""
        return (self.folder / name).read_text()

    def connection(self, **changes: Any) -> dict[str, Any]:
        """Return the arguments of a ConnectionArgs for this server."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "private_key": self.key("user"),
            "host_key": self.key("host.pub").strip(),
            "dial_error_limit": 2,
            **changes,
        }
