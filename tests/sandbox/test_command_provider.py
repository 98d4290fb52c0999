"""The rules of the command plugin that the Pulumi program relies on, seen through the real engine.

The plugin is the toolchain's: the official one where it can be had, else the stand-in of
`sandbox/go/command`.
"""

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.pulumi_home import pulumi_environment
from sandbox.toolchain import COMMAND_PROVIDER

VERSION = COMMAND_PROVIDER
HEADER = "import pulumi\nfrom pulumi_command import local, remote\n"


@dataclass(frozen=True)
class Engine:
    """The programs, and the environment that keeps everything below one temporary folder."""

    pulumi: str
    environment: dict[str, str]
    schema: dict[str, Any]


class Stack:
    """One project with one stack in its own file backend."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.log = folder / "actions.log"
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {
            **engine.environment,
            "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
            "LOG": str(self.log),
        }
        (folder / "state").mkdir()
        (folder / "Pulumi.yaml").write_text("name: commands\nruntime: python\n")
        self.program("")
        self.run("stack", "init", "test")

    def program(self, text: str, **constants: Any) -> None:
        """Write the program; the constants are the names that its text uses."""
        given = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
        (self.folder / "__main__.py").write_text(HEADER + given + textwrap.dedent(text))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [self.engine.pulumi, *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End what a failed test left running; without its engine a plugin ends too."""
        for process in self.started:
            with process:
                process.kill()

    def run(self, *arguments: str, fails: bool = False) -> str:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=120)
        assert (process.returncode != 0) == fails, output
        if not fails:
            assert "warning" not in output.lower(), output
        return output

    def up(self, program: str, *, fails: bool = False, **constants: Any) -> str:
        self.program(program, **constants)
        # A failure must not keep what runs beside it from being seen.
        return self.run("up", "--yes", "--skip-preview", "--continue-on-error", fails=fails)

    def destroy(self) -> str:
        return self.run("destroy", "--yes", "--skip-preview")

    def previewed(self, program: str, **constants: Any) -> dict[str, str]:
        """Each resource's name with what a preview says will happen to it."""
        self.program(program, **constants)
        steps = json.loads(self.run("preview", "--json"))["steps"]
        return {step["urn"].rsplit("::", 1)[1]: step["op"] for step in steps}

    def actions(self) -> list[str]:
        """What the commands wrote to $LOG since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def state_text(self) -> str:
        return (self.folder / "state/.pulumi/stacks/commands/test.json").read_text()

    def recorded(self) -> list[dict[str, Any]]:
        """The command resources in the state."""
        resources = json.loads(self.state_text())["checkpoint"]["latest"].get("resources", [])
        return [r for r in resources if r["type"].startswith("command:")]

    def names(self) -> set[str]:
        return {r["urn"].rsplit("::", 1)[1] for r in self.recorded()}

    def outputs(self, name: str) -> dict[str, Any]:
        found = [r["outputs"] for r in self.recorded() if r["urn"].endswith(f"::{name}")]
        assert len(found) == 1, f"{len(found)} resources named {name} in the state"
        return found[0]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    backend = tmp_path_factory.mktemp("engine") / "state"
    given = pulumi_environment(backend, Path(sys.prefix))
    environment = {key: value for key, value in given.items() if key != "SSH_AUTH_SOCK"}
    pulumi = shutil.which("pulumi", path=environment["PATH"])
    assert pulumi
    schema = subprocess.run(
        [pulumi, "package", "get-schema", f"command@{VERSION}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return Engine(pulumi, environment, json.loads(schema.stdout))


@pytest.fixture
def stack(engine: Engine, tmp_path: Path) -> Iterator[Stack]:
    made = Stack(engine, tmp_path)
    yield made
    made.close()


@pytest.fixture
def stand_in_stack(stack: Stack) -> Stack:
    """A stack for what the stand-in promises and the official plugin does not."""
    if "stand-in" not in stack.engine.schema["description"]:
        pytest.xfail("beyond the promises of the official plugin")
    return stack


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_schema_names_every_token_and_the_version_that_the_sdk_asks_for(engine: Engine) -> None:
    assert engine.schema["name"] == "command"
    assert engine.schema["version"] == VERSION
    assert {"command:local:Command", "command:remote:Command", "command:remote:CopyToRemote"} <= (
        engine.schema["resources"].keys()
    )
    assert "command:local:run" in engine.schema["functions"]


def test_a_changed_input_runs_update_or_else_create_again_and_nothing_else_does(
    stack: Stack,
) -> None:
    program = """
        local.Command("both", create="echo create-both >> $LOG", update="echo update-both >> $LOG",
                      delete=f"echo delete-both-{N} >> $LOG", environment={"N": str(N)})
        local.Command("one", create="echo create-one >> $LOG", delete=f": {N}")
    """
    stack.up(program, N=1)
    assert sorted(stack.actions()) == ["create-both", "create-one"]
    assert "3 unchanged" in stack.up(program, N=1)
    assert "3 unchanged" in stack.run("up", "--yes", "--skip-preview", "--refresh")
    assert stack.actions() == []
    stack.up(program, N=2)
    assert sorted(stack.actions()) == ["create-one", "update-both"]
    stack.destroy()
    assert stack.actions() == ["delete-both-2"]


@pytest.mark.parametrize(
    ("delete_before_replace", "order"),
    [(False, ["create-2", "delete-1"]), (True, ["delete-1", "create-2"])],
)
def test_changed_triggers_replace_and_the_delete_is_that_of_the_state(
    stack: Stack, delete_before_replace: bool, order: list[str]
) -> None:
    program = """
        local.Command("c", create=f"echo create-{N} >> $LOG", update="echo update >> $LOG",
                      delete=f"echo delete-{N} >> $LOG", triggers=["same", N],
                      opts=pulumi.ResourceOptions(delete_before_replace=FIRST))
    """
    stack.up(program, N=1, FIRST=delete_before_replace)
    assert stack.actions() == ["create-1"]
    stack.up(program, N=2, FIRST=delete_before_replace)
    assert stack.actions() == order


def test_the_previous_outputs_are_in_the_environment_unless_turned_off(stack: Stack) -> None:
    program = """
        say = 'echo "$NAME [${PULUMI_COMMAND_STDOUT-}|${PULUMI_COMMAND_STDERR-}]" >> $LOG'
        for name, given in (("on", None), ("off", False)):
            local.Command(name, create=f"{say}; echo out; echo err >&2", delete=say,
                          environment={"NAME": name, "N": str(N)}, add_previous_output_in_env=given)
    """
    stack.up(program, N=1)
    assert sorted(stack.actions()) == ["off [|]", "on [|]"]
    stack.up(program, N=2)
    assert sorted(stack.actions()) == ["off [|]", "on [out|err]"]
    stack.destroy()
    assert sorted(stack.actions()) == ["off [|]", "on [out|err]"]


def test_stdin_dir_environment_and_interpreter_reach_the_command(stack: Stack) -> None:
    below = stack.folder / "below"
    below.mkdir()
    stack.up(
        """
        show = "import os, sys; print(sys.stdin.read(), os.getcwd(), os.environ['A'])"
        local.Command("c", create=show + "; print(os.environ['LOG'] + chr(10))", dir="below",
                      stdin="two\\nlines", environment={"A": "x y"}, interpreter=["python3", "-c"])
        local.Command("none", create="cat")
        """
    )
    # The last line end, and only that one, is cut off.
    assert stack.outputs("c")["stdout"] == f"two\nlines {below} x y\n{stack.log}\n"
    assert stack.outputs("none")["stdout"] == ""


def test_what_comes_from_a_secret_is_a_secret_in_state(stack: Stack) -> None:
    program = """
        local.Command("c", create=f"cat; echo {N} >&2", stdin=pulumi.Output.secret("sesame-open"),
                      logging=local.Logging.NONE)
    """
    for n in (1, 2):  # a create and an update
        output = stack.up(program, N=n)
        assert "sesame-open" not in stack.state_text() + output
        for name in ("stdin", "stdout"):
            assert "ciphertext" in stack.outputs("c")[name]


def test_a_failure_tells_exit_status_and_output_and_leaves_the_state(stack: Stack) -> None:
    program = """
        local.Command("old", create="echo fine" if N == 1 else "echo old-out; exit 7")
        if N == 2:
            local.Command("new", create="echo new-err >&2; exit 8")
    """
    stack.up(program, N=1)
    output = stack.up(program, N=2, fails=True)
    for said in ("exit status 7", "old-out", "exit status 8", "new-err"):
        assert said in output
    assert stack.outputs("old")["stdout"] == "fine"
    assert stack.outputs("old")["create"] == "echo fine"
    assert stack.names() == {"old"}


def test_secrets_are_masked_in_errors_and_custom_timeouts_hold(stand_in_stack: Stack) -> None:
    output = stand_in_stack.up(
        """
        local.Command("masked", create="cat; exit 3", stdin=pulumi.Output.secret("sesame-open"))
        timeouts = pulumi.CustomTimeouts(create="1s")
        local.Command("slow", create="echo $$ > shell; sleep 600",
                      opts=pulumi.ResourceOptions(custom_timeouts=timeouts))
        """,
        fails=True,
    )
    assert "exit status 3" in output
    assert "[secret]" in output
    assert "sesame-open" not in output
    assert "customTimeouts" in output
    assert not alive(int((stand_in_stack.folder / "shell").read_text()))


def test_wrong_inputs_are_named(stand_in_stack: Stack) -> None:
    output = stand_in_stack.up(
        'local.Command("c", create="true", logging="loud", environment={"A": 1})', fails=True
    )
    assert '"loud", must be one of stdout, stderr, stdoutAndStderr, none' in output
    assert "environment" in output
    assert "is of type number, must be string" in output


def test_a_preview_runs_nothing_and_knows_no_output_of_what_changes(stack: Stack) -> None:
    program = """
        a = local.Command("a", create=f"echo ran >> $LOG; echo {N}")
        local.Command("b", create="echo ran >> $LOG", triggers=[a.stdout])
    """
    steps = stack.previewed(program, N=1)
    assert (steps["a"], steps["b"]) == ("create", "create")
    assert stack.actions() == []
    stack.up(program, N=1)
    assert stack.actions() == ["ran", "ran"]
    steps = stack.previewed(program, N=2)
    assert steps["a"] == "update"
    assert "replace" in steps["b"]
    assert stack.actions() == []


def test_run_runs_at_previews_too_and_keeps_secrets(stack: Stack) -> None:
    program = """
        got = local.run_output(command="echo ran >> $LOG; cat; echo no >&2; echo $A",
                               stdin=pulumi.Output.secret("sesame-open"), environment={"A": "x"})
        pulumi.export("got", got.stdout)
        pulumi.export("plain", local.run(command="echo plain").stdout)
    """
    stack.previewed(program)
    assert stack.actions() == ["ran"]
    stack.up(program)
    assert stack.actions() == ["ran"]
    assert "sesame-open" not in stack.state_text()
    outputs = json.loads(stack.run("stack", "output", "--json", "--show-secrets"))
    assert outputs == {"got": "sesame-openx", "plain": "plain"}


def test_output_is_logged_while_the_command_runs_as_far_as_logging_says(stack: Stack) -> None:
    stack.program(
        """
        for mode in local.Logging:
            local.Command(mode.value, logging=mode,
                          create=f"echo one-{mode.value}; echo two-{mode.value} >&2")
        local.Command("slow", create="echo early; until test -e go; do sleep 0.1; done")
        """
    )
    process = stack.start("up", "--yes", "--skip-preview")
    assert process.stdout is not None
    seen = ""
    with process:
        for line in process.stdout:
            seen += line
            if line.rstrip().endswith("early"):
                (stack.folder / "go").touch()
    assert process.returncode == 0, seen
    logged = {word for word in seen.split() if word.startswith(("one-", "two-"))}
    assert logged == {"one-stdout", "two-stderr", "one-stdoutAndStderr", "two-stdoutAndStderr"}
    assert stack.outputs("none")["stdout"] == "one-none"


def test_long_lines_and_bytes_that_are_not_text_do_not_stop_a_command(
    stand_in_stack: Stack,
) -> None:
    stand_in_stack.up(
        r"""
        local.Command("long", create="head -c 300000 /dev/zero | tr '\\0' x; echo; echo end")
        local.Command("bytes", create="printf 'a\\377b'")
        """
    )
    assert stand_in_stack.outputs("long")["stdout"] == "x" * 300000 + "\nend"
    assert stand_in_stack.outputs("bytes")["stdout"] == "a\ufffdb"


def test_files_that_the_globs_match_are_returned(stack: Stack) -> None:
    (stack.folder / "d").mkdir()
    stack.up(
        """
        local.Command("c", dir="d", asset_paths=["**.txt", "!**secret*"], archive_paths=["in/*"],
                      create="mkdir -p in/deep; for f in a in/b in/secret in/deep/c; do"
                             " echo $f > $f.txt; done")
        """
    )
    outputs = stack.outputs("c")
    assert outputs["assets"].keys() == {"a.txt", "in/b.txt", "in/deep/c.txt"}
    assert outputs["archive"]["assets"].keys() == {"in/b.txt", "in/secret.txt"}


def test_cancelling_ends_a_command_with_its_children(stack: Stack) -> None:
    stack.program('local.Command("c", create="sleep 600 & echo $! > child; echo $$ > shell; wait")')
    process = stack.start("up", "--yes", "--skip-preview")
    files = [stack.folder / "child", stack.folder / "shell"]
    wait_for(lambda: all(f.exists() and f.read_text().strip() for f in files), "the command runs")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0, output
    pids = [int(file.read_text()) for file in files]
    wait_for(lambda: not any(alive(pid) for pid in pids), "shell and child have ended", 5)
    assert stack.names() == set()


# --- over SSH, against a server of our own on the loopback ------------------------------------


@dataclass
class SshServer:
    """An OpenSSH server with its own keys; `connection` has the arguments of ConnectionArgs."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        assert program, "sshd is missing: install openssh-server"
        log = str(self.folder / "sshd.log")
        self.process = subprocess.Popen(
            [program, "-D", "-f", str(self.folder / "sshd_config"), "-E", log]
        )

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(10)

    def key(self, name: str) -> str:
        return (self.folder / name).read_text()

    def connection(self, **changes: Any) -> dict[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "private_key": self.key("user"),
            "host_key": " ".join(self.key("host.pub").split()[:2]),
            "dial_error_limit": 2,
            **changes,
        }


@pytest.fixture(scope="module")
def ssh_files(tmp_path_factory: pytest.TempPathFactory) -> SshServer:
    folder = tmp_path_factory.mktemp("ssh")
    for name, password in (("host", ""), ("other", ""), ("user", ""), ("locked", "open-up")):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", password, "-f", str(folder / name)],
            check=True,
        )
    authorized = folder / "authorized_keys"
    authorized.write_text((folder / "user.pub").read_text() + (folder / "locked.pub").read_text())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        textwrap.dedent(f"""
            ListenAddress 127.0.0.1
            Port {port}
            HostKey {folder}/host
            AuthorizedKeysFile {authorized}
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
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd, as root, insists on it
    return SshServer(folder, port)


@pytest.fixture
def ssh(ssh_files: SshServer) -> Iterator[SshServer]:
    ssh_files.start()

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", ssh_files.port)) == 0

    try:
        wait_for(answers, "sshd listens")
        yield ssh_files
    finally:
        ssh_files.stop()


def test_a_remote_command_has_the_same_life_cycle(stack: Stack, ssh: SshServer) -> None:
    program = """
        remote.Command("c", connection=remote.ConnectionArgs(**HERE), stdin=f"text-{N}",
                       create=f"echo create >> {LOG}; cat; echo no >&2",
                       update=f"echo update >> {LOG}; cat; echo $ALLOWED >&2",
                       delete=f"echo delete-{N} >> {LOG}",
                       environment={"ALLOWED": f"as-{N}"}, add_previous_output_in_env=False)
    """
    given = {"HERE": ssh.connection(), "LOG": str(stack.log)}
    stack.up(program, N=1, **given)
    outputs = stack.outputs("c")
    assert (outputs["stdout"], outputs["stderr"]) == ("text-1", "no")
    assert "ciphertext" in outputs["connection"]
    assert "PRIVATE KEY" not in stack.state_text()
    assert "2 unchanged" in stack.up(program, N=1, **given)
    stack.up(program, N=2, **given)
    outputs = stack.outputs("c")
    assert (outputs["stdout"], outputs["stderr"]) == ("text-2", "as-2")
    stack.destroy()
    assert stack.actions() == ["create", "update", "delete-2"]


def test_previous_outputs_that_the_ssh_server_refuses_are_only_a_warning(
    stack: Stack, ssh: SshServer
) -> None:
    program = """
        remote.Command("c", connection=remote.ConnectionArgs(**HERE), create=f"echo {N}")
    """
    stack.up(program, N=1, HERE=ssh.connection())
    stack.program(program, N=2, HERE=ssh.connection())
    process = stack.start("up", "--yes", "--skip-preview")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "warning" in output
    assert "PULUMI_COMMAND_STDOUT" in output
    assert stack.outputs("c")["stdout"] == "2"


def test_remote_failures_tell_why_and_a_host_with_another_key_is_refused(
    stack: Stack, ssh: SshServer
) -> None:
    output = stack.up(
        """
        here = remote.ConnectionArgs(**HERE)
        remote.Command("status", connection=here, create="echo reason-out; exit 7")
        remote.Command("variable", connection=here, create="true", environment={"REFUSED": "x"})
        other = remote.ConnectionArgs(**OTHER)
        remote.Command("key", connection=other, create=f"echo ran >> {LOG}")
        """,
        fails=True,
        HERE=ssh.connection(),
        OTHER=ssh.connection(host_key=ssh.key("other.pub"), dial_error_limit=1),
        LOG=str(stack.log),
    )
    for said in ("status 7", "reason-out", "REFUSED", "AcceptEnv", "handshake failed"):
        assert said in output
    assert stack.actions() == []
    assert stack.names() == set()


def test_a_locked_key_and_a_jump_host_work(stack: Stack, ssh: SshServer) -> None:
    locked = ssh.connection(private_key=ssh.key("locked"), private_key_password="open-up")
    stack.up(
        """
        jump = remote.ProxyConnectionArgs(**HERE)
        for name, connection in {
            "locked": remote.ConnectionArgs(**LOCKED),
            "jumped": remote.ConnectionArgs(**HERE, proxy=jump),
        }.items():
            remote.Command(name, connection=connection, create="echo $SSH_CONNECTION")
        """,
        HERE=ssh.connection(),
        LOCKED=locked,
    )
    for name in ("locked", "jumped"):
        assert str(ssh.port) in stack.outputs(name)["stdout"]


def test_a_dead_agent_is_no_obstacle_to_a_private_key(
    stand_in_stack: Stack, ssh: SshServer
) -> None:
    stand_in_stack.up(
        'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create="echo in")',
        HERE=ssh.connection(agent_socket_path=str(stand_in_stack.folder / "nobody")),
    )
    assert stand_in_stack.outputs("c")["stdout"] == "in"


def test_dialling_waits_for_a_host_that_comes_up_and_gives_up_on_one_that_does_not(
    stack: Stack, ssh_files: SshServer
) -> None:
    program = 'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create="echo up")'
    assert "refused" in stack.up(program, fails=True, HERE=ssh_files.connection())
    stack.program(program, HERE=ssh_files.connection(dial_error_limit=-1))
    process = stack.start("up", "--yes", "--skip-preview")
    time.sleep(3)  # time enough to have failed twice
    assert process.poll() is None
    ssh_files.start()
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        ssh_files.stop()
    assert process.returncode == 0, output
    assert stack.outputs("c")["stdout"] == "up"


def test_cancelling_hangs_up_on_a_remote_command(stand_in_stack: Stack, ssh: SshServer) -> None:
    stack = stand_in_stack
    shell = stack.folder / "shell"
    stack.program(
        """
        remote.Command("c", connection=remote.ConnectionArgs(**HERE),
                       create=f"echo $$ > {SHELL}; while sleep 0.1; do echo tick; done")
        """,
        HERE=ssh.connection(),
        SHELL=str(shell),
    )
    process = stack.start("up", "--yes", "--skip-preview")
    wait_for(lambda: shell.exists() and bool(shell.read_text().strip()), "the command runs")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0, output
    # A server that runs as the user passes no signals on: then the closed pipe ends the command.
    wait_for(lambda: not alive(int(shell.read_text())), "the remote command has ended", 5)


def test_files_texts_and_directories_are_copied_and_only_when_they_change(
    stack: Stack, ssh: SshServer
) -> None:
    tree = stack.folder / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "a.sh").write_text("echo a\n")
    (tree / "deep/b").write_text("b\n")
    there = stack.folder / "there"
    (there / "exists").mkdir(parents=True)
    program = """
        for name, source, path in (
            ("file", pulumi.FileAsset("tree/a.sh"), "new/dir/a.sh"),
            ("text", pulumi.StringAsset("a text"), "text"),
            ("into", pulumi.FileArchive("tree"), "exists"),
            ("as", pulumi.FileArchive("tree"), "new-tree"),
        ):
            remote.CopyToRemote(name, connection=remote.ConnectionArgs(**HERE), source=source,
                                remote_path=f"{THERE}/{path}")
    """
    given = {"HERE": ssh.connection(), "THERE": str(there)}
    stack.up(program, **given)
    assert (there / "new/dir/a.sh").read_text() == "echo a\n"
    assert (there / "text").read_text() == "a text"
    assert (there / "exists/tree/deep/b").read_text() == "b\n"
    assert (there / "new-tree/deep/b").read_text() == "b\n"
    (there / "text").write_text("changed there")
    (tree / "deep/b").write_text("other\n")
    stack.up(program, **given)
    assert (there / "exists/tree/deep/b").read_text() == "other\n"
    assert (there / "text").read_text() == "changed there"
    stack.destroy()
    assert (there / "text").exists()


def test_connections_are_closed_when_their_command_has_ended(
    stand_in_stack: Stack, ssh: SshServer
) -> None:
    stand_in_stack.up(
        """
        here = remote.ConnectionArgs(**HERE)
        first = remote.Command("first", connection=here, create="echo; ss -Htn state established")
        local.Command("then", triggers=[first.stdout],
                      create="sleep 0.5; ss -Htn state established")
        """,
        HERE=ssh.connection(),
    )
    assert f":{ssh.port} " in stand_in_stack.outputs("first")["stdout"]
    assert f":{ssh.port} " not in stand_in_stack.outputs("then")["stdout"]
