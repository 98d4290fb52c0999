"""Watches the machine that this pod is on, and says what is wrong with it.

What is a fault is said in health_findings.py. This program tells it as a condition of its own pod,
which `./disttrain status` reads. With `cordon` it also cordons the node of a machine that is
unusable and evicts disttrain's training pods there: an evicted pod saves before it ends, and its
replacement costs the run no restart.

It is the pod of the setting `nodeHealth`. The file goes into that pod as it is, so it imports the
standard library and files of this folder alone.
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
UNUSABLE = "Unusable"  # its reason, where no training should run on the machine
TRAINING = "app.kubernetes.io%2Fcomponent%3Dtraining"
PAUSE_SECONDS = 5.0
PATIENCE_SECONDS = 15.0  # for what is a state; a line of the kernel's log counts at once
SMI_LIMIT_SECONDS, SMI_PAUSE_SECONDS = 60.0, 60.0
SIGN_SECONDS = 60.0  # the pod's condition is written that often if nothing has changed
_LONGEST_MESSAGE = 2000
_MOST_FAULTS = 1000  # lines; the newest of each kind and device counts


class Sources:
    """What the machine shows; each look takes a moment."""

    def __init__(self, scratch: Path, kernel_log: Path | None = None) -> None:
        """`scratch`: a folder on the kubelet's disk; `kernel_log`: a file in the kernel's place."""
        self._scratch, self._kernel_log = scratch, kernel_log
        self._smi = SmiWatch(SMI_LIMIT_SECONDS, SMI_PAUSE_SECONDS)
        self._old: frozenset[str] | None = None
        self._faults, self._last_line = list[str](), ""
        self._gpus, self._links = set[str](), set[str]()

    def close(self) -> None:
        """Look no more."""
        self._smi.close()

    def kernel(self) -> list[Finding]:
        """What the kernel's log says."""
        try:
            lines = kernel_lines(self._kernel_log)
        except OSError as error:
            text = f"the kernel's log cannot be read ({error}), so errors of GPUs are not seen"
            return [Finding("kernel-log", text)]
        # Of the newest alone, as the whole log of a large machine takes a while to search.
        self._faults += fault_lines(lines_after(lines, self._last_line))
        del self._faults[:-_MOST_FAULTS]
        self._last_line = lines[-1] if lines else ""
        if self._old is None:
            self._old = frozenset(self._faults)
        return kernel_findings(self._faults, self._old)

    def states(self, now_seconds: float, clock_ahead_seconds: float | None) -> list[Finding]:
        """What is wrong at this moment, and may be over at the next."""
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
    """The condition of this pod that says it all."""
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
    """Looks, tells and acts; an API server that is away is asked again."""

    def __init__(self, api: Api, place: Place) -> None:
        self._api, self._place = api, place
        self._lasting = Lasting(PATIENCE_SECONDS)
        self._accepted: tuple[str, ...] = ()
        self._told: Json = {}
        self._told_at = -SIGN_SECONDS

    def look(self, kernel: Sequence[Finding], states: Sequence[Finding], now: float) -> None:
        """Tell what is wrong and do what has to be done.

        Args:
            kernel: what the kernel's log says.
            states: what may be over at the next look; it counts once it lasts.
            now: seconds, by a clock that nobody sets.

        Raises:
            OSError: the API server could not be asked, or has refused.
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
        """Returns the keys of the findings with which somebody has uncordoned the node."""
        path = f"nodes/{self._place.node}"
        node = self._api.ask("GET", path)
        is_cordoned = bool(node["spec"].get("unschedulable"))
        text = node["metadata"].get("annotations", {}).get(ANNOTATION)
        mark = Mark.from_text(text)
        decision = decide(is_cordoned, mark, unusable)
        if decision.cordons or decision.mark != mark:
            change = {
                "metadata": {
                    # Refused where somebody has changed the node since: then it is looked at again.
                    "resourceVersion": node["metadata"]["resourceVersion"],
                    "annotations": {ANNOTATION: decision.mark.to_text()},
                },
                **({"spec": {"unschedulable": True}} if decision.cordons else {}),
            }
            if not unless((409,), lambda: self._api.ask("PATCH", path, change, "merge-patch+json")):
                return mark.accepted
            if decision.cordons:
                say(f"cordoned {self._place.node}: {decision.mark.because}")
            elif mark.is_ours:
                say(f"{self._place.node} was uncordoned; what is wrong now counts as accepted")
        if decision.asks:
            self._evict()
        return decision.mark.accepted

    def _evict(self) -> None:
        """Ask the trainings on this machine to save and go."""
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
            # 429: a disruption budget of somebody's does not allow it now.
            if unless((404, 409, 429), lambda: self._api.ask("POST", ask, eviction)):  # noqa: B023
                say(f"asked pod {about['name']} to save and go")


def main() -> NoReturn:
    """Look again and again."""
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
