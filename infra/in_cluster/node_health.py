"""Watches the machine on which its pod runs, and reports what is wrong with it.

health_findings.py defines what is a fault. This program reports the faults as a condition of its
own pod, which `./disttrain status` reads. With `--cordon` it also cordons the node of an unusable
machine, and evicts disttrain's training pods from it. An evicted pod saves before it ends, and its
replacement does not count as a restart of the run.

The pods of the setting `nodeHealth` run this program. The file goes into the pods unchanged, so it
imports only the standard library and files of this folder.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from infra.in_cluster.api import (
    ENDED,
    OURS,
    Api,
    Json,
    Trouble,
    api_of_the_pod,
    say,
    unless,
)
from infra.in_cluster.health_cordon import ANNOTATION, Mark, decide
from infra.in_cluster.health_findings import (
    Finding,
    clock_findings,
    disk_findings,
    fault_lines,
    kernel_findings,
    lines_after,
    link_findings,
    smi_findings,
    time_findings,
)
from infra.in_cluster.health_sources import (
    SmiWatch,
    active_links,
    disk_state,
    kernel_lines,
    link_states,
)
from infra.in_cluster.lasting import Lasting

CONDITION = "disttrain.dev/NodeHealthy"
UNUSABLE = "Unusable"  # the condition's reason if no training should run on the machine
TRAINING = "app.kubernetes.io%2Fcomponent%3Dtraining"
PAUSE_SECONDS = 5.0
PATIENCE_SECONDS = 15.0  # for states such as a link; a line of the kernel's log counts at once
SMI_LIMIT_SECONDS, SMI_PAUSE_SECONDS = 60.0, 60.0
SIGN_SECONDS = 60.0  # how often the pod's condition is written if nothing has changed
_LONGEST_MESSAGE = 2000
_MOST_FAULTS = 1000  # lines that are kept; the newest of each kind and device counts


class Sources:
    """Reads the machine's state, and remembers what earlier calls have seen."""

    def __init__(self, scratch: Path, kernel_log: Path | None = None) -> None:
        """Read nothing yet.

        Args:
            scratch: a folder on the kubelet's disk, for the trial write.
            kernel_log: a file that is read instead of the kernel's log; None for the kernel's log.
        """
        self._scratch, self._kernel_log = scratch, kernel_log
        self._smi = SmiWatch(SMI_LIMIT_SECONDS, SMI_PAUSE_SECONDS)
        self._old: frozenset[str] | None = None
        self._faults, self._last_line = list[str](), ""
        self._gpus, self._links = set[str](), set[str]()

    def close(self) -> None:
        """Stop watching."""
        self._smi.close()

    def kernel(self) -> list[Finding]:
        """The faults in the kernel's log; those of the first call count as old."""
        try:
            lines = kernel_lines(self._kernel_log)
        except OSError as error:
            text = f"the kernel's log cannot be read ({error}), so errors of GPUs are not seen"
            return [Finding("kernel-log", text)]
        # Only new lines are searched, because the whole log of a large machine takes a while.
        self._faults += fault_lines(lines_after(lines, self._last_line))
        del self._faults[:-_MOST_FAULTS]
        self._last_line = lines[-1] if lines else ""
        if self._old is None:
            self._old = frozenset(self._faults)
        return [*kernel_findings(self._faults, self._old), *time_findings(lines)]

    def states(self, now_seconds: float, clock_ahead_seconds: float | None) -> list[Finding]:
        """What is wrong at this moment, and may be over at the next call.

        Args:
            now_seconds: the time, by a clock that is never set.
            clock_ahead_seconds: how far this machine's clock is ahead of the API server's; None if
                this is not known.
        """
        found = list[Finding]()
        if smi := self._smi.poll(now_seconds):
            self._gpus |= set(smi.addresses)
            found += smi_findings(smi, self._gpus)
        links = link_states()
        self._links |= active_links(links)
        found += link_findings(links, self._links)
        found += disk_findings("the kubelet's disk", *disk_state(self._scratch))
        return found + clock_findings(clock_ahead_seconds)


@dataclass(frozen=True)
class Place:
    """Where this program runs, and what it may do there."""

    node: str
    pod: str
    cordons: bool


def condition(findings: Sequence[Finding], now: str) -> Json:
    """The condition of this pod with all findings, the unusable ones first.

    Args:
        findings: what is wrong with the machine.
        now: the present time, as Kubernetes writes it.
    """
    unusable = any(finding.is_unusable for finding in findings)
    reason = UNUSABLE if unusable else "Reported" if findings else "NothingFound"
    ordered = sorted(findings, key=lambda finding: not finding.is_unusable)
    return {
        "type": CONDITION,
        "status": "False" if findings else "True",
        "reason": reason,
        "message": "; ".join(finding.text for finding in ordered)[:_LONGEST_MESSAGE],
        "lastProbeTime": now,
    }


class Watch:
    """Reports the findings to the API server, cordons the node and evicts pods.

    If a request fails, the next call of `look` sends it again.
    """

    def __init__(self, api: Api, place: Place) -> None:
        self._api, self._place = api, place
        self._lasting = Lasting(PATIENCE_SECONDS)
        self._accepted: tuple[str, ...] = ()
        self._told: Json = {}
        self._told_at = -SIGN_SECONDS

    def look(self, kernel: Sequence[Finding], states: Sequence[Finding], now: float) -> None:
        """Report what is wrong, and cordon the node and evict pods if that is necessary.

        Args:
            kernel: the findings in the kernel's log.
            states: findings that may be over at the next call. They count after PATIENCE_SECONDS.
            now: the time in seconds, by a clock that is never set.

        Raises:
            OSError: The API server does not answer, or refuses a request.
        """
        lasting = self._lasting.lasting([finding.key for finding in states], now)
        found = [*kernel, *(finding for finding in states if finding.key in lasting)]
        try:
            if self._place.cordons:
                self._accepted = self._act({f.key: f.text for f in found if f.is_unusable})
        finally:
            self._tell([f.accepted() if f.key in self._accepted else f for f in found], now)

    def _tell(self, found: Sequence[Finding], now: float) -> None:
        here = time.time() - (self._api.clock_ahead_seconds or 0)  # by the API server's clock
        told = condition(found, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(here)))
        before = {**self._told, "lastProbeTime": told["lastProbeTime"]}
        if told == before and now - self._told_at < SIGN_SECONDS:
            return
        pod = f"namespaces/{self._api.namespace}/pods/{self._place.pod}"
        change = {"status": {"conditions": [told]}}
        self._api.ask("PATCH", f"{pod}/status", change, "strategic-merge-patch+json")
        if told != before and (found or self._told):
            say(told["message"] or "nothing is wrong any more")
        self._told, self._told_at = told, now

    def _act(self, unusable: Mapping[str, str]) -> tuple[str, ...]:
        """Cordon the node and evict its training pods, if that is necessary.

        Returns:
            The keys of the findings that a person has accepted by uncordoning the node.
        """
        path = f"nodes/{self._place.node}"
        node = self._api.ask("GET", path)
        is_cordoned = bool(node["spec"].get("unschedulable"))
        text = node["metadata"].get("annotations", {}).get(ANNOTATION)
        mark = Mark.from_text(text)
        decision = decide(is_cordoned, mark, unusable)
        if decision.cordons or decision.mark != mark:
            change = {
                "metadata": {
                    # The request is refused if the node was changed since. Then the next call
                    # decides again.
                    "resourceVersion": node["metadata"]["resourceVersion"],
                    "annotations": {ANNOTATION: decision.mark.to_text()},
                },
                **({"spec": {"unschedulable": True}} if decision.cordons else {}),
            }
            if not unless((409,), lambda: self._api.ask("PATCH", path, change, "merge-patch+json")):
                return mark.accepted
            if decision.cordons:
                say(f"cordoned {self._place.node}: {decision.mark.because}")
            elif mark.is_ours and not decision.mark.is_ours:
                say(f"{self._place.node} was uncordoned; what is wrong now counts as accepted")
        if decision.asks:
            self._evict()
        return decision.mark.accepted

    def _evict(self) -> None:
        """Evict the training pods on this machine. They save before they end."""
        pods = f"namespaces/{self._api.namespace}/pods"
        where = f"labelSelector={OURS},{TRAINING}&fieldSelector=spec.nodeName%3D{self._place.node}"
        for pod in self._api.ask("GET", f"{pods}?{where}")["items"]:
            about = pod["metadata"]
            has_ended = pod.get("status", {}).get("phase") in ENDED
            if has_ended or about.get("deletionTimestamp"):
                continue
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": about["name"], "namespace": self._api.namespace},
            }
            ask = f"{pods}/{about['name']}/eviction"
            # 429: a PodDisruptionBudget does not allow the eviction now.
            if unless((404, 409, 429), lambda: self._api.ask("POST", ask, eviction)):  # noqa: B023
                say(f"asked pod {about['name']} to save and go")


def main() -> NoReturn:
    """Check the machine every PAUSE_SECONDS, forever."""
    parser = argparse.ArgumentParser(prog="node_health")
    parser.add_argument("--scratch", type=Path, default=Path("/scratch"))
    parser.add_argument("--kernel-log", type=Path, help="a file to read in the kernel's place")
    parser.add_argument("--cordon", action="store_true", help="and not only tell")
    given = parser.parse_args()
    place = Place(os.environ["NODE_NAME"], os.environ["POD_NAME"], given.cordon)
    sources, api = Sources(given.scratch, given.kernel_log), api_of_the_pod()
    watch, trouble = Watch(api, place), Trouble()
    does = "cordons it when it is unusable" if place.cordons else "only tells what is wrong"
    say(f"watching machine {place.node}; this pod {does}")
    while True:
        now = time.monotonic()
        kernel, states = sources.kernel(), sources.states(now, api.clock_ahead_seconds)
        with trouble.said():
            watch.look(kernel, states, now)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
