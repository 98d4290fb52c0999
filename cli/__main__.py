"""`./disttrain COMMAND`: commands that look at a host, a cluster or a run, and that steer a run."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cli import completion, doctor, extend, monitoring, resume, sample, stop, tensorboard
from cli.dashboard import command as dashboard
from cli.endings import BROKEN_PIPE, close_output
from cli.fetch import command as fetch
from cli.goodput import command as goodput
from cli.logs import command as logs
from cli.push import command as push
from cli.report import COULD_NOT_CHECK
from cli.runs import command as runs
from cli.shell import command as shell
from cli.status import command as status
from cli.verify import command as verify
from infra.kube.errors import ApiError, TaskError, UnreachableError


@dataclass(frozen=True)
class Command:
    """A subcommand: its help text, its options, `run`, which returns the exit status, and the
    words after `./disttrain` of an example.
    """

    help: str
    run: Callable[[argparse.Namespace], int]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    example: str


COMMANDS: Mapping[str, Command] = {
    "completion": Command(
        "print a script with which a shell completes these commands",
        completion.run,
        completion.add_arguments,
        'completion bash >"$HOME/.local/share/bash-completion/completions/disttrain"',
    ),
    "dashboard": Command(
        "show all runs on a page in a browser of this machine",
        dashboard.run,
        dashboard.add_arguments,
        "dashboard --port 8700",
    ),
    "doctor": Command(
        "find what is wrong with a host and its cluster, and how to mend it",
        doctor.run,
        doctor.add_arguments,
        "doctor --stack dev",
    ),
    "extend": Command(
        "let a run train for more steps", extend.run, extend.add_arguments, "extend --steps 8000"
    ),
    "fetch": Command(
        "bring a run's results and a verified checkpoint to this machine",
        fetch.run,
        fetch.add_arguments,
        "fetch dev --checkpoint best --to ./results",
    ),
    "goodput": Command(
        "show where the time of a run went, and what it cost",
        goodput.run,
        goodput.add_arguments,
        "goodput --price-per-gpu-hour 1.20",
    ),
    "logs": Command(
        "follow the logs of all pods of a run", logs.run, logs.add_arguments, "logs --tail 20"
    ),
    "monitoring": Command(
        "print the dashboard for Grafana or the alert rules for Prometheus",
        monitoring.run,
        monitoring.add_arguments,
        "monitoring dashboard >disttrain.json",
    ),
    "push": Command(
        "put a run's folder of this machine onto the volume",
        push.run,
        push.add_arguments,
        "push ./runs/dev --run dev-again",
    ),
    "resume": Command(
        "let a stopped run go on", resume.run, resume.add_arguments, "resume --stack multipod"
    ),
    "runs": Command(
        "list the runs on the volume, compare them, delete them",
        runs.run,
        runs.add_arguments,
        "runs compare dev multipod --to losses.svg",
    ),
    "sample": Command(
        "write text with a run's newest checkpoint",
        sample.run,
        sample.add_arguments,
        'sample -- --prompt "To be" --max-new-tokens 200',
    ),
    "shell": Command(
        "open a shell, or run a command, beside a rank of a run",
        shell.run,
        shell.add_arguments,
        "shell --rank 5 -- cat /proc/meminfo",
    ),
    "status": Command(
        "show the platform and how far all runs on it are",
        status.run,
        status.add_arguments,
        "status --watch",
    ),
    "stop": Command(
        "let a run save, and give its GPUs back", stop.run, stop.add_arguments, "stop --stack dev"
    ),
    "tensorboard": Command(
        "show TensorBoard of all runs in a browser of this machine",
        tensorboard.run,
        tensorboard.add_arguments,
        "tensorboard --port 7007",
    ),
    "verify": Command(
        "check a run after its launch, each point with its evidence",
        verify.run,
        verify.add_arguments,
        "verify --stack dev --restart",
    ),
}


def parser_of_all() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(prog="./disttrain", description=__doc__)
    choices = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        example = f"example: ./disttrain {command.example}"
        command.add_arguments(
            choices.add_parser(name, help=command.help, description=command.help, epilog=example)
        )
    return parser


def main(words: Sequence[str]) -> int:
    """Run the command that `words` name; returns the exit status.

    A command raises ValueError for what its user can mend, and lets the cluster's errors through.
    """
    parser = parser_of_all()
    parser.set_defaults(parser=parser)
    arguments = parser.parse_args(words)
    try:
        return COMMANDS[arguments.subcommand].run(arguments)
    except (ValueError, ApiError, TaskError, UnreachableError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return COULD_NOT_CHECK
    except BrokenPipeError:
        close_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
