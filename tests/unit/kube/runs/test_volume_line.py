"""What `pulumi up` reads about the volume from the pods' logs, and what its output says of it."""

from collections.abc import Mapping
from typing import Any, cast

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.runs.volume_line import VOLUME, last_volume_line, volume_line
from infra.run.workload import volume_proof
from trainer.volume.figures import SHARED, Figures, figures_line

SAID = figures_line({0: Figures(0.1, 0.2, 0.3), 1: Figures(0.2, 0.1, 0.3)})


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "trainer"}]}}


class Logs:
    """Stands in for an API server with these logs of pods. It refuses the logs of other pods."""

    def __init__(self, logs: Mapping[str, str]) -> None:
        self.logs, self.asked = logs, list[str]()

    def text(self, path: str, query: Mapping[str, str]) -> str:
        assert query["container"] == "trainer"
        name = path.split("/")[-2]
        self.asked.append(name)
        if name not in self.logs:
            raise ApiError(403, "pods/log is forbidden")
        return self.logs[name]


def line_of(logs: Logs) -> str:
    """Return the line about the volume from the logs of three pods."""
    return volume_line(cast(Api, logs), "disttrain", [pod("t-1"), pod("t-0"), pod("t-2")])


def test_trainer_and_reader_have_the_same_words() -> None:
    """The reader knows the beginning of the trainer's line about the volume. The reader has a copy
    of it, because `infra.kube` imports nothing of the trainer.
    """
    assert VOLUME == SHARED
    log = f"[node 0] starting\n[node 0] {SAID}\n[node 0] round 1: 2 node(s)\n"
    assert last_volume_line(log) == SAID


def test_newest_start_counts_and_nothing_else() -> None:
    """The line of the newest start counts, and a line that a rank has written does not."""
    log = f"[node 0] volume: old\nvolume: of a rank\n[node 0] {SAID}\nstep 1\n"
    assert last_volume_line(log) == SAID
    assert last_volume_line("volume: of a rank\n") == ""


def test_first_pod_that_says_it_is_enough() -> None:
    """If the first pod by name, which is node 0, has the line, no other pod is asked."""
    logs = Logs({"t-0": f"[node 0] {SAID}\n", "t-1": "", "t-2": ""})
    assert line_of(logs) == SAID
    assert logs.asked == ["t-0"]


def test_unseen_line_is_a_sentence() -> None:
    """If no pod has the line or its log may not be read, a sentence says why there are no
    figures.
    """
    assert "pods/log is forbidden; ./disttrain verify" in line_of(Logs({}))
    assert "no pod that was asked" in line_of(Logs({"t-0": "", "t-1": "", "t-2": ""}))


def test_output_has_figures_or_a_sentence() -> None:
    """The output has the figures of the volume, or a sentence about why there are none."""
    said = f"waits\nall ranks have stepped: 2 of 2 pods are ready\n{SAID}\n"
    assert volume_proof(said, 2) == SAID.removeprefix("volume: ")
    assert volume_proof("in queue team: 2nd of 3\n", 2).startswith("not known yet")
    assert volume_proof(said, 1).startswith("one pod writes")
