"""Runs the scripts that gather facts.

One program runs on the host, over one connection. The facts about a cluster with a kubeconfig of
its own, about the image builder, the SSH agent and the way to the API server are gathered on this
machine.
"""

import shlex
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from cli.ask_host import SCRIPTS, answer_of_host, run_program
from cli.check import PROBE_SECONDS, SMI_SECONDS
from cli.doctor.agent_facts import agent_line
from cli.doctor.api_facts import api_line
from cli.doctor.build_facts import build_lines, builders_on_node
from cli.facts import Facts, parse_facts
from infra.node.doctor_plan import Plan
from infra.node.shell_program import assemble_program

CLOCK_SLACK_SECONDS = 1


@dataclass(frozen=True)
class Gathered:
    """The facts, and how many seconds it took to gather them."""

    facts: Facts
    seconds: float


def gather(plan: Plan) -> Gathered:
    """Gather the facts about the host, the image build, and the cluster if the plan has one.

    Raises:
        UnreachableError: the host was not reached, or its answer is not complete.
    """
    start = time.monotonic()
    with ThreadPoolExecutor() as pool:
        host = pool.submit(_host_facts, plan)
        cluster = pool.submit(_cluster_lines, plan) if _has_own_kubectl(plan) else None
        build = pool.submit(build_lines, plan.expect)
        api = pool.submit(api_line, plan.expect.api_host)
        lines = [*host.result(), *(cluster.result() if cluster else []), *build.result()]
    lines += [agent_line(needed=plan.ssh is not None), api.result()]
    return Gathered(parse_facts(lines), time.monotonic() - start)


def host_program(plan: Plan) -> str:
    """Return the shell program for the host: the variables, then the script facts-host.sh.

    If disttrain installs k3s, and the plan is not only about the host, facts-cluster.sh follows. It
    runs if k3s is on the host.
    """
    text = (SCRIPTS / "facts-host.sh").read_text()
    if plan.scope == "all" and plan.expect.provision:
        cluster = (SCRIPTS / "facts-cluster.sh").read_text()
        text = f"{text}\n[ -x /usr/local/bin/k3s ] || exit 0\n{cluster}"
    return assemble_program(text, host_variables(plan), "root-if-possible", plan.sudo_password)


def host_variables(plan: Plan) -> Mapping[str, str]:
    """Return the variables of facts-host.sh and of facts-cluster.sh, which uses k3s' kubectl."""
    expect = plan.expect
    fetches = expect.provision and expect.internet
    names = {urlsplit(expect.https_probe).hostname or ""} if fetches else set[str]()
    return {
        "PROBE_SECONDS": str(PROBE_SECONDS),
        "SMI_SECONDS": str(SMI_SECONDS),
        "K3S_SERVICE": expect.service,
        "NODE_INTERFACE": expect.node_interface,
        "DATA_ROOT": expect.data_root,
        "DNS_NAMES": "" if expect.has_proxy else " ".join(sorted(names)),
        "HTTP_PROXY_URL": expect.http_proxy,
        "HTTPS_PROXY_URL": expect.https_proxy,
        "HTTP_PROBE": expect.http_probe,
        "HTTPS_PROBE": expect.https_probe if fetches or expect.has_proxy else "",
        "CA_BUNDLE": expect.ca_bundle,
        "CTR": plan.ctr,
        "IMAGE": expect.image if plan.scope == "all" else "",
        "IMAGE_BUILDERS": " ".join(builders_on_node(expect)),
        "KUBECTL": "/usr/local/bin/k3s kubectl",
        "KUBECONFIG_FILE": "/etc/rancher/k3s/k3s.yaml",
        "NAMESPACE": expect.namespace,
        "NODE_SELECTOR": ",".join(expect.node_selector),
    }


def clock_skew(before: float, remote: int, after: float) -> int:
    """Return by how many seconds at least the clock of another machine is ahead of ours.

    The number is negative if it is behind.

    Args:
        before: our clock in seconds, before the other clock was read.
        remote: the other clock, in whole seconds.
        after: our clock in seconds, after the other clock was read.
    """
    early, late = before - CLOCK_SLACK_SECONDS - remote, remote - after - CLOCK_SLACK_SECONDS
    return -round(early) if early > 0 else round(max(late, 0))


def _host_facts(plan: Plan) -> list[str]:
    before = time.time()
    lines = answer_of_host(plan, host_program(plan), "host_done")
    facts, after = parse_facts(lines), time.time()
    return [*lines, f"clock_skew={clock_skew(before, facts.number('time'), after)}"]


def _has_own_kubectl(plan: Plan) -> bool:
    return plan.scope == "all" and bool(plan.kubeconfig)


def _cluster_lines(plan: Plan) -> list[str]:
    variables = {
        "PROBE_SECONDS": str(PROBE_SECONDS),
        "KUBECTL": plan.kubectl or shlex.join(["kubectl", "--kubeconfig", plan.kubeconfig]),
        "KUBECONFIG_FILE": plan.kubeconfig,
        "NAMESPACE": plan.expect.namespace,
        "NODE_SELECTOR": ",".join(plan.expect.node_selector),
    }
    script = (SCRIPTS / "facts-cluster.sh").read_text()
    lines, _, _ = run_program(["sh", "-s"], assemble_program(script, variables), plan)
    return lines
