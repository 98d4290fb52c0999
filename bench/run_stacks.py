"""Measures runs on another stack's platform: an `up` with nothing to do, a switch of topology.

`python -m bench.node` uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from bench.clock import seconds_of
from sandbox.stack import Stack
from tests.e2e.lab import ENDLESS, Lab, run_settings


def nothing_to_do(lab: Lab, times: int) -> list[float]:
    """Seconds of `pulumi up` of a run that has finished and of which nothing has changed.

    They include the preview that `pulumi up` makes first. The pods of the finished training wait,
    and take no processor time.
    """
    with _platform(lab) as platform:
        stack = _run(lab, "bench-finished", platform, 20, {})
        stack.up()
        lab.wait_done("bench-finished")
        found = [seconds_of(lambda: stack.up("--expect-no-changes")) for _ in range(times)]
        stack.destroy()
        return found


def switches(lab: Lab, times: int) -> list[float]:
    """Seconds of `pulumi up` that replaces a run of one pod by a run of three pods.

    Both have been up before. The run that trains saves and is suspended, and the other run goes on
    from its own checkpoint. The time ends when each of its three ranks has made a step.
    """
    with _platform(lab) as platform:
        one_pod = {"topology": "single-pod", "processesPerPod": "2"}
        single = _run(lab, "bench-single", platform, ENDLESS, one_pod)
        multi = _run(lab, "bench-multi", platform, ENDLESS, {})
        multi.up()
        found: list[float] = []
        for _ in range(times):
            single.up()
            found.append(seconds_of(multi.up))
        single.destroy()
        multi.destroy()
        return found


@contextmanager
def _platform(lab: Lab) -> Iterator[str]:
    platform = lab.stack("bench-platform", "sandbox", {"topology": "none"})
    platform.up()
    yield platform.name
    platform.destroy()


def _run(lab: Lab, name: str, platform: str, steps: int, more: dict[str, str]) -> Stack:
    settings = run_settings(name, steps, platform=platform, **more)
    return lab.stack(name, "sandbox-multipod", settings)
