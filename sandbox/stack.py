"""Runs `pulumi` commands on a stack of this project."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.interrupts import hear_interrupts
from sandbox.pulumi_home import pulumi_environment
from sandbox.say import say
from sandbox.state_locks import release_dead_locks
from sandbox.venvs import PROJECT, ensure_venv


class PulumiFailedError(RuntimeError):
    """A pulumi command ended with an error; the text is its whole output."""


class Stack:
    """One stack of the project.

    Args:
        name: name of the stack, which is made if it does not exist.
        backend: folder of the stacks' states.
        settings_file: the stack's settings. Tests pass a copy, so that the checkout stays clean.
        project: folder of Pulumi.yaml.
    """

    def __init__(
        self, name: str, backend: Path, settings_file: Path, project: Path = PROJECT
    ) -> None:
        self.name = name
        self.settings_file = settings_file
        self.project = project
        self._backend = backend
        hear_interrupts()
        self.environment = pulumi_environment(backend, ensure_venv(".venv"))
        self._select_or_create()

    def set(self, key: str, value: str | None, *, secret: bool = False) -> None:
        """Set one setting; None removes it. `key` may be a path, such as `run.train.max_steps`.

        Every user of a machine can read the command lines of its processes. So `pulumi` gets a
        secret by its standard input.
        """
        if value is None:
            self._run("config", "rm", "--path", f"disttrain:{key}")
        elif secret:
            # pulumi takes one newline off the end of what it reads
            self._run("config", "set", "--path", "--secret", f"disttrain:{key}", text=value + "\n")
        else:
            self._run("config", "set", "--path", f"disttrain:{key}", "--", value)

    def set_all(self, settings: Mapping[str, str | None]) -> None:
        """Change many settings as `set` does. Setting any number of values takes 0.3 s in all."""
        for key in (key for key, value in settings.items() if value is None):
            self.set(key, None)
        pairs = (f"disttrain:{k}={v}" for k, v in settings.items() if v is not None)
        options = [word for pair in pairs for word in ("--plaintext", pair)]
        if options:
            self._run("config", "set-all", "--path", *options)

    def up(self, *options: str) -> str:
        """Run `pulumi up` and return its output. Raises PulumiFailedError."""
        self.release_locks()
        return self._run("up", "--yes", *options)

    def up_lines(self) -> Iterator[str]:
        """Run `pulumi up` and yield each line as it is written. Raises PulumiFailedError."""
        self.release_locks()
        command = self._command("up", "--yes")
        lines: list[str] = []
        with subprocess.Popen(
            command,
            cwd=self.project,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                yield lines[-1]
        if process.returncode:
            raise PulumiFailedError("\n".join(lines))

    def preview(self, *options: str) -> str:
        """Run `pulumi preview` and return its output. Raises PulumiFailedError."""
        return self._run("preview", *options)

    def refresh(self) -> str:
        """Run `pulumi refresh` and return its output. Raises PulumiFailedError."""
        return self._run("refresh", "--yes")

    def destroy(self, *options: str) -> str:
        """Run `pulumi destroy` and return its output. Raises PulumiFailedError."""
        self.release_locks()
        return self._run("destroy", "--yes", *options)

    def output(self, name: str) -> str:
        """One stack output as text. Raises PulumiFailedError if there is none of that name."""
        return self._run("stack", "output", name, "--show-secrets", config_file=False).strip()

    def export(self) -> str:
        """The stack's state as JSON text."""
        return self._run("stack", "export", config_file=False)

    def import_state(self, text: str) -> None:
        """Replace the stack's state by a text that `export` returned. Raises PulumiFailedError."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            self._run("stack", "import", "--file", file.name, config_file=False)

    def release_locks(self) -> None:
        """Release the lock of a killed `pulumi`, because every later command would fail at it."""
        for pid in release_dead_locks(self._backend, "disttrain", self.name):
            say(f"  stack {self.name}: released the lock of pulumi process {pid}, which has ended")

    def _select_or_create(self) -> None:
        """Select the stack, or make it and write its encryption salt to the settings file.

        The engine writes the salt to `Pulumi.<stack>.yaml` in the project's folder, and no option
        changes that. So the salt is moved from there.
        """
        written = self.project / f"Pulumi.{self.name}.yaml"
        elsewhere = not written.exists()
        self._run("stack", "select", "--create", self.name, config_file=False)
        if elsewhere and written.exists():
            old = self.settings_file.read_text().splitlines()
            kept = [line for line in old if not line.startswith("encryptionsalt:")]
            self.settings_file.write_text("\n".join([*kept, written.read_text()]))
            written.unlink()

    def _command(self, *arguments: str, config_file: bool = True) -> list[str]:
        settings = ("--config-file", str(self.settings_file)) if config_file else ()
        head = ["pulumi", "--non-interactive", "--color=never"]
        stack = [] if arguments[:2] == ("stack", "select") else ["--stack", self.name]
        rest = arguments[: _first_option(arguments)], arguments[_first_option(arguments) :]
        return [*head, *rest[0], *stack, *settings, *rest[1]]

    def _run(self, *arguments: str, config_file: bool = True, text: str = "") -> str:
        """Run `pulumi` with `text` as its standard input. Raises PulumiFailedError."""
        done = subprocess.run(
            self._command(*arguments, config_file=config_file),
            cwd=self.project,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            input=text,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PulumiFailedError(f"pulumi {' '.join(arguments)}:\n{done.stdout}")
        return done.stdout


def _first_option(arguments: tuple[str, ...]) -> int:
    """Index of the first option. `--stack` must stand after the subcommand and before a `--`."""
    options = (i for i, argument in enumerate(arguments) if argument.startswith("-"))
    return next(options, len(arguments))
