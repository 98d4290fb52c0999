"""The rules and the faults of the command plugin on which the program relies, or which it has to
live with.

The tests use the real engine. They hold for the official plugin (pulumi-command 1.2.1) and for the
stand-in in `sandbox/go/command`; `command_lab.py` says which of them is tested.
"""

import json
import signal
import subprocess
import sys

import pytest

from sandbox.tools.cluster import COMMAND_PROVIDER
from sandbox.venvs import PROJECT
from tests.sandbox.command_lab import BESIDE, Engine, Stack, alive, finish, read_until, wait_for


def test_schema_names_every_token(engine: Engine) -> None:
    """The plugin's schema has every resource and function that the program uses, and the version
    that the SDK asks for.
    """
    words = ["package", "get-schema", f"command@{COMMAND_PROVIDER}"]
    schema = json.loads(
        subprocess.run(
            [engine.pulumi, *words], env=engine.environment, capture_output=True, check=True
        ).stdout
    )
    assert (schema["name"], schema["version"]) == ("command", COMMAND_PROVIDER)
    assert {"command:local:Command", "command:remote:Command", "command:remote:CopyToRemote"} <= (
        schema["resources"].keys()
    )
    assert "command:local:run" in schema["functions"]


def test_a_changed_input_runs_update_or_else_create_again_and_nothing_else_does(
    stack: Stack,
) -> None:
    """A changed input runs `update`, or `create` if there is no `update`. An unchanged command is
    not run again, also not by a refresh.
    """
    program = """
        local.Command("both", create="echo create-both >> $LOG", update="echo update-both >> $LOG",
                      delete=f"echo delete-both-{N} >> $LOG", environment={"N": str(N)})
        local.Command("one", create="echo create-one >> $LOG", delete=f": {N}")
    """
    stack.up(program, N=1)
    assert sorted(stack.actions()) == ["create-both", "create-one"]
    assert "3 unchanged" in stack.up(program, N=1)
    assert "3 unchanged" in stack.run("up", "--yes", "--refresh")
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
    """Changed triggers replace a command. The old one is deleted by the `delete` that is in the
    state, before or after the new one is created.
    """
    program = """
        local.Command("c", create=f"echo create-{N} >> $LOG", update="echo update >> $LOG",
                      delete=f"echo delete-{N} >> $LOG", triggers=["same", N],
                      opts=pulumi.ResourceOptions(delete_before_replace=FIRST))
    """
    stack.up(program, N=1, FIRST=delete_before_replace)
    assert stack.actions() == ["create-1"]
    stack.up(program, N=2, FIRST=delete_before_replace)
    assert stack.actions() == order


def test_guard_with_another_input_is_deleted_by_destroy_alone(stack: Stack) -> None:
    """An `up` that replaces what a guard depends on, and changes the guard's own input, runs its
    `create` again and not its `delete`. So a guard, whose `delete` may refuse, refuses a `destroy`
    and no `up`. A `destroy` deletes it first.
    """
    program = """
        made = local.Command("made", create=f"echo made-{N} >> $LOG",
                             delete=f"echo unmade-{N} >> $LOG", triggers=[N],
                             opts=pulumi.ResourceOptions(delete_before_replace=True))
        local.Command("guard", create="echo guard-$(cat) >> $LOG",
                      delete="echo unguard-$(cat) >> $LOG", stdin=pulumi.Output.secret(str(N)),
                      add_previous_output_in_env=False,
                      opts=pulumi.ResourceOptions(depends_on=[made], delete_before_replace=True))
    """
    stack.up(program, N=1)
    assert stack.actions() == ["made-1", "guard-1"]
    stack.up(program, N=2)
    assert stack.actions() == ["unmade-1", "made-2", "guard-2"]
    stack.destroy()
    assert stack.actions() == ["unguard-2", "unmade-2"]


def test_the_previous_outputs_are_in_the_environment_unless_turned_off(stack: Stack) -> None:
    """A command finds its previous outputs in its environment, unless this is turned off."""
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


def test_a_failure_tells_exit_status_and_output_and_leaves_the_state(stack: Stack) -> None:
    """The error of a command has its exit status and its output. The state keeps what it
    was before.
    """
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


def test_a_preview_runs_nothing_and_knows_no_output_of_what_changes(stack: Stack) -> None:
    """A preview runs no command. Where a command changes, what depends on its output counts as
    changed.
    """
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


def test_output_of_a_secret_input_is_plain(stack: Stack) -> None:
    """The output of a command is not a secret, even if its input is one, unless the program
    declares it. The plugin does not know that stdout came from a secret.
    """
    program = """
        secret = pulumi.Output.secret("sesame-open")
        for name, declared in (("plain", []), ("declared", ["stdout"])):
            local.Command(name, create=f"cat; echo {N} >&2", stdin=secret,
                          logging=local.Logging.NONE,
                          opts=pulumi.ResourceOptions(additional_secret_outputs=declared))
    """
    for n in (1, 2):  # a create and an update
        stack.up(program, N=n)
        assert stack.outputs("plain")["stdout"] == "sesame-open"
        assert "ciphertext" in stack.outputs("plain")["stdin"]
        assert "ciphertext" in stack.outputs("declared")["stdout"]
        assert stack.outputs("declared")["stderr"] == str(n)


def test_secrets_show_in_log_lines_and_errors(stack: Stack) -> None:
    """Secrets that a command prints are shown in log lines and in errors. An error has all that the
    command has printed, even with `logging` off.
    """
    program = """
        local.Command("c", create="cat; exit 3", stdin=pulumi.Output.secret("sesame-open"),
                      logging=local.Logging.NONE)
        local.Command("logged", create="cat", stdin=pulumi.Output.secret("open-barley"))
    """
    output = stack.up(program, fails=True)
    assert "exit status 3" in output
    assert "sesame-open" in output
    assert "open-barley" in output


def test_wrong_type_of_an_input_is_named(stack: Stack) -> None:
    output = stack.up('local.Command("c", create="true", environment={"A": 1})', fails=True)
    assert "property environment[A]" in output
    assert "must be a 'string'" in output


def test_run_runs_at_previews_too(stack: Stack) -> None:
    """A function call runs its command in each preview too, and keeps a secret out of the state."""
    program = """
        got = local.run_output(command="echo ran >> $LOG; cat; echo no >&2; echo $A",
                               stdin=pulumi.Output.secret("sesame-open"), environment={"A": "x"})
        pulumi.export("got", got.stdout)
        pulumi.export("plain", local.run(command="echo plain").stdout)
    """
    stack.previewed(program)
    assert stack.actions() == ["ran"]
    stack.up(program)
    assert stack.actions() == ["ran", "ran"]  # `up` begins with a preview
    assert "sesame-open" not in stack.state_text()  # unlike a resource, a function keeps secrets
    outputs = json.loads(stack.run("stack", "output", "--json", "--show-secrets"))
    assert outputs == {"got": "sesame-openx", "plain": "plain"}


def test_output_is_logged_as_far_as_logging_says(stack: Stack) -> None:
    """A command's output is logged as far as its `logging` says, and while the command
    still runs.
    """
    stack.program(
        """
        for mode in local.Logging:
            local.Command(mode.value, logging=mode,
                          create=f"echo one-{mode.value}; echo two-{mode.value} >&2")
        local.Command("slow", create="echo early; until test -e $GO; do sleep 0.1; done")
        """
    )
    process = stack.start("up", "--yes")
    seen = read_until(process, "early")
    stack.go.touch()
    seen += finish(process)
    assert process.returncode == 0, seen
    logged = {word for word in seen.split() if word.startswith(("one-", "two-"))}
    assert logged == {"one-stdout", "two-stderr", "one-stdoutAndStderr", "two-stdoutAndStderr"}
    assert stack.outputs("none")["stdout"] == "one-none"


def test_bytes_that_are_not_text_fail_the_command(stack: Stack) -> None:
    """A command whose output is not UTF-8 fails. What it did stays done, and the state does not
    know of it.
    """
    program = """local.Command("bytes", create="touch done; printf 'a\\\\377b'")"""
    assert "string field contains invalid UTF-8" in stack.up(program, fails=True)
    assert (stack.folder / "done").exists()
    assert stack.names() == set()


def test_shorter_lines_are_harmless(stack: Stack) -> None:
    """A line of less than 64 KiB does no harm, and neither does a longer one if nothing is
    logged.
    """
    stack.up(
        """
        local.Command("short", create="printf %065000d 0; echo; echo end")
        local.Command("silent", create="printf %0300000d 0; echo; echo end",
                      logging=local.Logging.NONE)
        """
    )
    assert stack.outputs("short")["stdout"] == "0" * 65000 + "\nend"
    assert stack.outputs("silent")["stdout"] == "0" * 300000 + "\nend"


def test_line_of_64_kib_hangs_its_command(stack: Stack) -> None:
    """A command that prints a line of 64 KiB never ends: the reader of the log stops at such a
    line, and the command waits for ever to print on.

    Other commands show that the engine goes on: the last of them runs after the long line was
    written, and what waits for the hanging command still has not run.
    """
    stack.program(
        """
        long = local.Command("long", create="printf %070000d 0; echo; touch $GO")
        local.Command("next", create="echo never >> $LOG",
                      opts=pulumi.ResourceOptions(depends_on=[long]))
        """
        + BESIDE
    )
    process = stack.start("up", "--yes")
    wait_for(lambda: "beside-3" in stack.logged(), "the commands beside have run")
    process.send_signal(signal.SIGINT)
    read_until(process, "^C received; cancelling")
    process.send_signal(signal.SIGINT)  # only a second Ctrl-C ends the engine
    output = finish(process)
    assert process.returncode != 0, output
    assert "never" not in stack.logged()
    assert "long" not in stack.names()


def test_timeout_ends_the_shell(stack: Stack) -> None:
    """The limit of a resource's time ends the shell of its command."""
    output = stack.up(
        """
        local.Command("slow", create="echo $$ > shell; exec sleep 600",
                      opts=pulumi.ResourceOptions(
                          custom_timeouts=pulumi.CustomTimeouts(create="1s")))
        """,
        fails=True,
    )
    assert "signal: killed" in output
    assert not alive(int((stack.folder / "shell").read_text()))


TASK = """
import sys
from infra.kube.__main__ import run_task
from infra.kube.waiting import wait_for

def wait(job, api):
    try:
        wait_for("the training", lambda: "its pods start", 900)
    finally:
        with open(job.text("log"), "a") as log:
            log.write("tidied up\\n")

sys.exit(run_task(wait))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelling_ends_a_task_of_ours_in_order(stack: Stack, number: signal.Signals) -> None:
    """Ctrl-C, which the terminal sends only to the engine, ends a task of the project in order.
    Otherwise `pulumi up` would wait until the task has come to its limit.
    """
    (stack.folder / "task.py").write_text(TASK)
    job = {"kubeconfig": "none", "owner": "o", "log": str(stack.log)}
    stack.program(
        """
        local.Command("c", create=f"PYTHONPATH={PROJECT} {PYTHON} task.py", stdin=JOB)
        """,
        PROJECT=str(PROJECT),
        PYTHON=sys.executable,
        JOB=json.dumps(job),
    )
    process = stack.start("up", "--yes")
    read_until(process, "waiting for the training; its pods start")
    process.send_signal(number)
    output = finish(process)
    assert process.returncode not in (0, -signal.SIGKILL), output  # the engine ended by itself
    assert stack.logged() == ["tidied up"]


def test_cancelling_ends_the_shell_but_not_its_children(stack: Stack) -> None:
    """Ctrl-C ends the shell of a command and not the shell's children. The engine waits for a child
    that holds stdout open, and then forgets the command.
    """
    stack.program(
        """
        child = "(until test -e $GO; do sleep 0.1; done; echo child-done >> $LOG)"
        local.Command("c", create=child + " & echo $$ > shell; wait")
        """
    )
    process = stack.start("up", "--yes")
    shell = stack.folder / "shell"
    wait_for(lambda: shell.exists() and bool(shell.read_text().strip()), "the command runs")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: not alive(int(shell.read_text())), "the shell has ended")
    stack.go.touch()
    output = finish(process)
    assert process.returncode != 0, output
    assert stack.logged() == ["child-done"]
    assert stack.names() == set()
