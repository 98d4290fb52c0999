"""`disttrain doctor`: examines the host and the cluster, and changes nothing."""

import argparse
import getpass
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from cli.ask_host import UnreachableError
from cli.check import PROBE_SECONDS, Check, Result, run_checks
from cli.doctor.cluster_checks import CLUSTER_CHECKS
from cli.doctor.disk_checks import DISK_CHECKS
from cli.doctor.gather import gather
from cli.doctor.gpu_checks import GPU_CHECKS
from cli.doctor.host_checks import HOST_CHECKS
from cli.doctor.image_checks import IMAGE_CHECKS
from cli.doctor.k3s_checks import K3S_CHECKS
from cli.doctor.machines import CONNECTION, examine_machines, examine_pairs
from cli.doctor.network_checks import NETWORK_CHECKS
from cli.doctor.pair_checks import run_pair_checks
from cli.doctor.proxy_checks import PROXY_CHECKS
from cli.facts import Facts
from cli.report import FAIL_ON, Report
from infra.node.doctor_plan import Plan, SshTarget
from infra.node.expectations import DATA_ROOT, NAMESPACE, Expectations

ON_HOST: tuple[Check, ...] = (
    *HOST_CHECKS,
    *DISK_CHECKS,
    *NETWORK_CHECKS,
    *PROXY_CHECKS,
    *GPU_CHECKS,
    *IMAGE_CHECKS,
    *K3S_CHECKS,
)
CHECKS: tuple[Check, ...] = (*ON_HOST, *CLUSTER_CHECKS)
# The options whose values the settings of a stack have.
OF_SETTINGS = (
    *("host", "identity", "host_key", "ask_sudo_password", "gpus", "pods", "data_root"),
    *("namespace", "kubeconfig", "kubectl", "no_internet"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain doctor`."""
    add = parser.add_argument
    add(
        "--stack",
        help="examine the host and the cluster that this stack's settings name; then the options "
        "from --host to --no-internet are not needed",
    )
    add("--host", default="local", help="local, or ssh://user@host:port (default: %(default)s)")
    add(
        "--identity",
        default="",
        metavar="FILE",
        help="file with the private key for --host ssh://...",
    )
    add("--host-key", default="", help="the host's public key (default: the one in known_hosts)")
    add(
        "--ask-sudo-password",
        action="store_true",
        help="ask for the password of sudo on the host",
    )
    add(
        "--gpus",
        type=int,
        default=1,
        help="GPUs that the training uses; 0 for none (default: %(default)s)",
    )
    text = "pods among which these GPUs are divided (default: %(default)s)"
    add("--pods", type=int, default=1, help=text)
    add("--data-root", default=DATA_ROOT, help="data folder on the node (default: %(default)s)")
    add("--namespace", default=NAMESPACE, help="namespace of the training (default: %(default)s)")
    add(
        "--kubeconfig",
        default="",
        help="kubeconfig of an existing cluster; without it, k3s on the host is examined",
    )
    add(
        "--kubectl",
        default="kubectl",
        help="kubectl command to use with --kubeconfig (default: %(default)s)",
    )
    add("--no-internet", action="store_true", help="do not expect the host to reach the internet")
    add("--host-only", action="store_true", help="do not examine the cluster")
    add("--json", action="store_true", help="print all results as JSON")
    add("--all", action="store_true", help="also show the checks that found nothing")
    add(
        "--fail-on",
        choices=FAIL_ON,
        default="warning",
        help="which findings cause exit status 1; warning includes errors (default: %(default)s)",
    )
    add("--plan", choices=("-",), help=argparse.SUPPRESS)  # `pulumi up` sends JSON by stdin


def run(arguments: argparse.Namespace) -> int:
    """Run the doctor and print its report.

    The exit status is 0 for no findings, 1 for findings, and 2 if something could not be checked.

    Raises:
        ValueError: an option has a value that cannot be used.
    """
    plan = make_plan(arguments)
    report = examine(plan)
    if arguments.json:
        print(report.json(arguments.fail_on))
    else:
        print(report.text(everything=arguments.all), flush=True)
    return report.exit_code(arguments.fail_on)


def examine(plan: Plan) -> Report:
    """Gather the facts and run the checks.

    If the host cannot be reached, the report has only that finding.
    """
    if plan.machines:
        return _examine_machines(plan)
    try:
        gathered = gather(plan)
    except UnreachableError as reason:
        fault = Result(CONNECTION, "error", reason.evidence, reason.fix, PROBE_SECONDS)
        return Report(plan.host_name, [fault], 0.0, reached=False)
    results = judge(plan, gathered.facts)
    return Report(plan.host_name, results, gathered.seconds)


def _examine_machines(plan: Plan) -> Report:
    start = time.monotonic()
    examined = examine_machines(plan)
    results: list[Result] = []
    for each in examined:
        if plan.only in ("", each.name):
            own = judge(each.plan, each.facts) if each.facts else []
            results += [replace(result, place=each.name) for result in own]
        # Without the first machine nothing can be said, so its fault is the reason.
        is_asked = plan.only in ("", each.name) or each is examined[0]
        results += [each.fault] if each.fault and is_asked else []
    pairs = examine_pairs(examined, plan.expect.node_address)
    # The sum of the GPUs is known only if all machines are examined and all have answered.
    # Otherwise 0 expected GPUs switch that check off.
    counted = not plan.only and len(pairs) == len(examined)
    expect = plan.expect if counted else replace(plan.expect, gpus=0)
    results += run_pair_checks(pairs, expect)
    names = ", ".join(each.name for each in examined)
    return Report(names, results, time.monotonic() - start, reached=examined[0].facts is not None)


def judge(plan: Plan, facts: Facts) -> list[Result]:
    """Run all checks on these facts; checks outside the plan's scope are not applicable."""
    results = run_checks(ON_HOST, facts, plan.expect)
    reason = _why_no_cluster(plan, facts)
    if reason:
        results += [
            Result(check.id, "not applicable", reason, "", check.limit_seconds)
            for check in CLUSTER_CHECKS
        ]
    else:
        results += run_checks(CLUSTER_CHECKS, facts, plan.expect)
    return results


def _why_no_cluster(plan: Plan, facts: Facts) -> str:
    """Return the reason why the cluster is not examined; empty if it is examined."""
    if plan.scope == "host":
        return "only the host is examined"
    if plan.expect.provision and facts.get("k3s_binary") != "yes":
        return "k3s is not installed yet"
    if not plan.expect.provision and not plan.kubeconfig:
        return "no kubeconfig was given"
    return ""


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Make the plan from standard input, from a stack, or from the options.

    Raises:
        ValueError: an option cannot be used; the text names it and its value, why it cannot be
            used, and what to do.
    """
    if arguments.plan:
        return Plan.from_json(sys.stdin.read())
    scope: Literal["all", "host"] = "host" if arguments.host_only else "all"
    if arguments.stack:
        _refuse_options_of_settings(arguments)
        from cli.stack_plan import plan_of_stack  # needs Pulumi's SDK

        return replace(plan_of_stack(arguments.stack), scope=scope)
    _check_options(arguments)
    ssh = parse_host(arguments.host)
    if ssh:
        ssh = replace(ssh, identity_file=arguments.identity, host_key=arguments.host_key)
    kubeconfig = str(Path(arguments.kubeconfig).expanduser()) if arguments.kubeconfig else ""
    password = getpass.getpass("sudo password: ") if arguments.ask_sudo_password else ""
    return Plan(
        ssh=ssh,
        sudo_password=password,
        kubeconfig=kubeconfig,
        kubectl=_kubectl(arguments.kubectl, kubeconfig) if kubeconfig else "",
        scope=scope,
        expect=_expectations(arguments, os.environ, ssh.host if ssh and not kubeconfig else ""),
    )


def _refuse_options_of_settings(arguments: argparse.Namespace) -> None:
    """Refuse options beside --stack that would have no effect; raise ValueError as `make_plan`."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name in OF_SETTINGS:
        value = getattr(arguments, name)
        if value != parser.get_default(name):
            shown = "" if value is True else f": {value!r}"
            raise ValueError(
                f"--{name.replace('_', '-')}{shown} cannot be used: with --stack, the settings of "
                f"stack {arguments.stack} say this. Leave out one of the two options."
            )


def _check_options(arguments: argparse.Namespace) -> None:
    """Check the options that argparse has not checked; raise ValueError as `make_plan` does."""
    if arguments.gpus < 0:
        raise ValueError(
            f"--gpus: {arguments.gpus} cannot be used: it is below 0. Give the number of GPUs."
        )
    if arguments.pods < 1 or arguments.gpus % arguments.pods:
        raise ValueError(
            f"--pods: {arguments.pods} cannot be used: {arguments.gpus} GPUs (--gpus) cannot be "
            "divided equally among that many pods. Give 1 or another divisor."
        )
    if not arguments.data_root.startswith("/"):
        raise ValueError(
            f"--data-root: {arguments.data_root!r} cannot be used: it is no absolute path. Give "
            "one, such as /var/lib/disttrain"
        )


def _expectations(
    arguments: argparse.Namespace, env: Mapping[str, str], api_host: str
) -> Expectations:
    """Return what the options say about the machine, and the proxies of the user's environment.

    NO_PROXY of that environment does not count, because `pulumi up` computes one for the machine.
    """
    return Expectations(
        provision=not arguments.kubeconfig,
        api_host=api_host,
        data_root=arguments.data_root,
        namespace=arguments.namespace,
        gpus=arguments.gpus,
        ranks=arguments.gpus,
        pods=arguments.pods,
        image_builder="auto",
        internet=not arguments.no_internet,
        http_proxy=env.get("http_proxy", ""),
        https_proxy=env.get("https_proxy") or env.get("HTTPS_PROXY", ""),
    )


def _kubectl(command: str, kubeconfig: str) -> str:
    """Return the kubectl command with its kubeconfig, quoted for a shell.

    Raises ValueError if the command cannot be split into words, or is empty.
    """
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise ValueError(f"--kubectl: {command!r} is not a shell command: {problem}") from None
    if not words:
        raise ValueError(
            "--kubectl: '' cannot be used: it is empty. Give a command, such as kubectl."
        )
    return shlex.join([*words, "--kubeconfig", kubeconfig])


def parse_host(text: str) -> SshTarget | None:
    """Return the host that the option `--host` names; None for this machine.

    Raises:
        ValueError: the text is neither `local` nor an SSH address.
    """
    if text == "local":
        return None
    parts = urlsplit(text)
    try:
        port = parts.port or 22
    except ValueError:
        port = 0
    plain = parts.scheme == "ssh" and parts.path in ("", "/") and not parts.query
    name, user = parts.hostname or "", parts.username or ""
    plain = plain and bool(re.fullmatch(r"[\w.:-]+", name) and re.fullmatch(r"(\w[\w.-]*)?", user))
    if not plain or not port or parts.password:
        shown = re.sub(r":[^:@/]+@", ":[secret]@", text)
        raise ValueError(
            f"--host: {shown!r} cannot be used: it is no address of a host. "
            "Give local or ssh://user@host:port."
        )
    return SshTarget(host=name, port=port, user=user)
