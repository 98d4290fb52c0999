"""`disttrain doctor`: looks at the host and the cluster, changes nothing."""

import argparse
import getpass
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from cli.check import PROBE_SECONDS, Check, Result, run_checks
from cli.cluster_checks import CLUSTER_CHECKS
from cli.facts import Facts
from cli.gather import UnreachableError, gather
from cli.gpu_checks import GPU_CHECKS
from cli.host_checks import HOST_CHECKS
from cli.k3s_checks import K3S_CHECKS
from cli.proxy_checks import PROXY_CHECKS
from cli.report import FAIL_ON, Report
from infra.doctor_plan import Plan, SshTarget
from infra.expectations import DATA_ROOT, NAMESPACE, Expectations

ON_HOST: tuple[Check, ...] = (*HOST_CHECKS, *PROXY_CHECKS, *GPU_CHECKS, *K3S_CHECKS)
CHECKS: tuple[Check, ...] = (*ON_HOST, *CLUSTER_CHECKS)
CONNECTION = "connection"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `disttrain doctor`."""
    add = parser.add_argument
    add("--stack", help="take all that follows, but --json, from this stack's settings")
    add("--host", default="local", help="local, or ssh://user@host:port (default: %(default)s)")
    add("--identity", default="", metavar="FILE", help="private key for --host ssh://")
    add("--host-key", default="", help="the host's public key; default: known_hosts has it")
    add("--ask-sudo-password", action="store_true", help="for a user whose sudo asks")
    add("--gpus", type=int, default=1, help="GPUs to count on; 0: none (default: %(default)s)")
    add("--data-root", default=DATA_ROOT, help="data folder of the node (default: %(default)s)")
    add("--namespace", default=NAMESPACE, help="default: %(default)s")
    add("--kubeconfig", default="", help="an existing cluster; without it, k3s on the host")
    add("--kubectl", default="kubectl", help="for --kubeconfig (default: %(default)s)")
    add("--no-internet", action="store_true", help="the host needs no way out")
    add("--host-only", action="store_true", help="leave the cluster out")
    add("--json", action="store_true", help="all results as JSON")
    add("--all", action="store_true", help="show the checks that found nothing, too")
    add("--fail-on", choices=FAIL_ON, default="warning", help="what makes exit 1")
    add("--plan", choices=("-",), help=argparse.SUPPRESS)  # JSON by stdin, from `pulumi up`


def run(arguments: argparse.Namespace) -> int:
    """Exit status: 0 no findings, 1 findings, 2 could not check.

    Raises:
        ValueError: an option is wrong.
    """
    plan = make_plan(arguments)
    report = examine(plan)
    if arguments.json:
        print(report.json(arguments.fail_on))
    else:
        print(report.text(everything=arguments.all), flush=True)
    return report.exit_code(arguments.fail_on)


def examine(plan: Plan) -> Report:
    """Gather, then judge."""
    try:
        gathered = gather(plan)
    except UnreachableError as reason:
        fault = Result(CONNECTION, "error", reason.evidence, reason.fix, PROBE_SECONDS)
        return Report(plan.host_name, [fault], 0.0, reached=False)
    results = judge(plan, gathered.facts)
    return Report(plan.host_name, results, gathered.seconds)


def judge(plan: Plan, facts: Facts) -> list[Result]:
    """All checks of the plan's scope over these facts."""
    results = run_checks(ON_HOST, facts, plan.expect)
    why = _no_cluster(plan, facts)
    if why:
        results += [
            Result(check.id, "not asked for", why, "", check.limit_seconds)
            for check in CLUSTER_CHECKS
        ]
    else:
        results += run_checks(CLUSTER_CHECKS, facts, plan.expect)
    return results


def _no_cluster(plan: Plan, facts: Facts) -> str:
    if plan.scope == "host":
        return "the host alone is looked at"
    if plan.expect.provision and facts.get("k3s_binary") != "yes":
        return "k3s is not installed yet"
    if not plan.expect.provision and not plan.kubeconfig:
        return "no kubeconfig is given"
    return ""


def make_plan(arguments: argparse.Namespace) -> Plan:
    """From standard input, from a stack, or from the options.

    Raises:
        ValueError: names what is wrong with them.
    """
    if arguments.plan:
        return Plan.from_json(sys.stdin.read())
    scope: Literal["all", "host"] = "host" if arguments.host_only else "all"
    if arguments.stack:
        from cli.stack_plan import plan_of_stack  # needs Pulumi's SDK

        return replace(plan_of_stack(arguments.stack), scope=scope)
    if arguments.gpus < 0:
        raise ValueError(f"--gpus: {arguments.gpus} is not allowed; allowed: 0 or more")
    ssh = parse_host(arguments.host)
    if ssh:
        ssh = replace(ssh, identity_file=arguments.identity, host_key=arguments.host_key)
    kubeconfig = str(Path(arguments.kubeconfig).expanduser()) if arguments.kubeconfig else ""
    env = os.environ
    password = getpass.getpass("sudo password: ") if arguments.ask_sudo_password else ""
    return Plan(
        ssh=ssh,
        sudo_password=password,
        kubeconfig=kubeconfig,
        kubectl=f"{arguments.kubectl} --kubeconfig '{kubeconfig}'" if kubeconfig else "",
        scope=scope,
        expect=Expectations(
            provision=not kubeconfig,
            data_root=arguments.data_root,
            namespace=arguments.namespace,
            gpus=arguments.gpus,
            ranks=arguments.gpus,
            internet=not arguments.no_internet,
            http_proxy=env.get("http_proxy", ""),
            https_proxy=env.get("https_proxy") or env.get("HTTPS_PROXY", ""),
            no_proxy=env.get("no_proxy") or env.get("NO_PROXY", ""),
        ),
    )


def parse_host(text: str) -> SshTarget | None:
    """None for this machine.

    Raises:
        ValueError: neither `local` nor an ssh address.
    """
    if text == "local":
        return None
    parts = urlsplit(text)
    try:
        port = parts.port or 22
    except ValueError:
        port = 0
    plain = parts.scheme == "ssh" and parts.path in ("", "/") and not parts.query
    name = parts.hostname or ""
    if not plain or not port or parts.password or not re.fullmatch(r"[\w.:-]+", name):
        shown = re.sub(r":[^:@/]+@", ":[secret]@", text)
        raise ValueError(
            f"--host: {shown!r} is not allowed; allowed: local or ssh://user@host:port"
        )
    return SshTarget(host=name, port=port, user=parts.username or "")
