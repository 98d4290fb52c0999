"""`make demo` trains on a sandbox cluster by `pulumi up`; `make demo-down` removes it all."""

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from sandbox.cluster import STATE_ROOT, Cluster
from sandbox.dataset import training_text
from sandbox.follow import LiveLine, step_text, until_done
from sandbox.pulumi_home import past_proxy, pulumi_environment
from sandbox.say import say
from sandbox.setup import prepare_sandbox
from sandbox.stack import Stack
from sandbox.toolchain import bin_dir, origins
from sandbox.venvs import PROJECT, ensure_venv

STATE = PROJECT / ".pulumi-state"
STACKS = ("sandbox", "sandbox-multipod")
# The Kubernetes provider's lines about its own waiting begin with these. They do not help a user.
PROVIDERS_OWN_WORDS = ("Skipping await logic", "✅")
NO_STEP_SECONDS = 300


def environment() -> dict[str, str]:
    """The environment variables with which a shell runs `pulumi` and `kubectl` on the demo."""
    cluster = Cluster("default", bin_dir())
    return {
        **pulumi_environment(STATE, ensure_venv(".venv")),
        "KUBECONFIG": str(cluster.kubeconfig),
    }


def print_environment() -> None:
    """Print `export` lines, which a shell reads with `eval`."""
    names = ["PATH", "KUBECONFIG", "PULUMI_HOME", "PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"]
    values = environment()
    for name in [*names, *past_proxy(os.environ)]:
        print(f"export {name}={shlex.quote(values[name])}")


def up(stack_name: str) -> None:
    """Start the cluster and the stack, follow the run to its end and print a sample.

    Raises:
        PulumiFailedError: `pulumi up` failed; the text is its output.
        TimeoutError: the run made no step for `NO_STEP_SECONDS`.
    """
    start = time.monotonic()
    say("1/4 set-up")
    prepare_sandbox()
    say("".join(f"  {name}: {origin}\n" for name, origin in origins().items()).rstrip())
    say("2/4 cluster")
    cluster = Cluster("default", bin_dir())
    cluster.up()
    text = training_text()
    say(f"  text: {text.what}")
    shutil.copyfile(text.path, STATE_ROOT / "default" / "input.txt")
    say(f"3/4 pulumi up --stack {stack_name}")
    # Both stacks are made, so that `pulumi stack select` also finds the one that is not used now.
    # The stack that was made last, which is the one of this demo, stays selected.
    names = sorted(STACKS, key=lambda name: name == stack_name)
    stacks = [Stack(name, STATE, PROJECT / f"Pulumi.{name}.yaml") for name in names]
    stack = stacks[-1]
    _pulumi_up(stack)
    say("4/4 training")
    run_dir = Path(stack.output("hostRunPath"))
    final = _follow(stack, run_dir)
    say(f"\nfinal: {final}")
    say(f"checkpoints: {run_dir / 'checkpoints'}")
    say("sample:")
    say(_sample(stack.output("sampleCommand"), stack.environment))
    say(f"\nall in {time.monotonic() - start:.0f} s. `make demo-down` ends it; the data stays.")


def _pulumi_up(stack: Stack) -> None:
    live, start, said = LiveLine(log_every_seconds=0), time.monotonic(), ""
    for line in stack.up_lines():
        news = worth_saying(line)
        if news and news != said:
            live.show(f"  {time.monotonic() - start:4.0f} s  {news}")
            said = news
    live.end(f"  `pulumi up` took {time.monotonic() - start:.0f} s; every rank has made a step")


def worth_saying(line: str) -> str:
    """The part of a line of pulumi's output that helps a user, or an empty text.

    The line of a resource whose work only begins gives an empty text.
    """
    match = re.match(r"\s*\S+\s+(\S+:\S+) (\S+) (\w+) \([\d.]+s\)\s*(.*)", line)
    if match is None:
        return ""
    kind, name, status, message = match.groups()
    if message.startswith("{") or message.endswith("completed with exit code 0"):
        return ""  # a command's output for the engine, or a message that warns of nothing
    if message and not message.startswith(PROVIDERS_OWN_WORDS):
        return f"{name}: {message}"
    return f"{kind.rsplit(':', 1)[1]} {name} {status}" if status.endswith("ed") else ""


def _follow(stack: Stack, run_dir: Path) -> str:
    live, text = LiveLine(), "no step"
    max_steps = int(stack.output("maxSteps"))
    for point in until_done(run_dir, NO_STEP_SECONDS):
        text = step_text(point, max_steps)
        live.show(f"  {text}")
    live.end(f"  {text}")
    return text


def _sample(command: str, values: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=PROJECT,
        env=dict(values),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"sampling failed: {command}\n{done.stderr}")
    return done.stdout.strip()


def down() -> None:
    """Run `pulumi destroy` on both demo stacks, then stop the cluster; the data stays."""
    cluster = Cluster("default", bin_dir())
    states = [STATE / ".pulumi" / "stacks" / "disttrain" / f"{name}.json" for name in STACKS]
    there = [state for state in states if state.exists()]
    # The other stack goes first: a platform is not destroyed while a run of another uses it.
    for state in reversed(there):
        say(f"pulumi destroy --stack {state.stem}")
        Stack(state.stem, STATE, PROJECT / f"Pulumi.{state.stem}.yaml").destroy()
    cluster.down()
    say(f"the data is still in {cluster.data_root}")
