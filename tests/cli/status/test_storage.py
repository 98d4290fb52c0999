"""The claims of runs on the screen: silent while all is well."""

from typing import Any

import pytest

from cli.status.judge import PlatformStatus
from cli.status.screen import as_json, as_text
from cli.status.storage import Claim, claim_lines, claim_names, see_claims
from infra.kube.errors import ApiError
from infra.kube.left_claims import CLAIMS
from tests.cli.records import NOW

BOUND = Claim("disttrain", "disttrain-pvc", "Bound", "50Gi", "efs")


def pod(claim: str) -> dict[str, Any]:
    volumes = [
        {"name": "shm", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
    ]
    return {"metadata": {"name": "a"}, "spec": {"volumes": volumes}}


class Server:
    """Answers for claims alone."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def get(self, path: str) -> Any:
        found = self.answers.get(path)
        if found == "forbidden":
            raise ApiError(403, "forbidden")
        return found

    def list(self, path: str, selector: str) -> Any:
        assert selector == "app.kubernetes.io/component=storage"
        return self.get(path) or []


def item(phase: str, name: str = "disttrain-pvc") -> dict[str, Any]:
    status = {"phase": phase, "capacity": {"storage": "50Gi"} if phase == "Bound" else {}}
    return {"metadata": {"name": name}, "spec": {"storageClassName": "efs"}, "status": status}


def test_claims_are_those_that_the_pods_mount() -> None:
    assert claim_names([pod("theirs"), pod("theirs")]) == {"theirs"}
    assert claim_names([]) == set()


def test_claims_without_pods_are_those_of_the_platform() -> None:
    """What may not be seen is said; a claim that is not there is none."""
    server: Any = Server(
        {
            CLAIMS.format("disttrain"): [item("Bound")],
            f"{CLAIMS.format('other')}/theirs": item("Pending"),
            CLAIMS.format("third"): "forbidden",
            f"{CLAIMS.format('fifth')}/theirs": "forbidden",
        }
    )
    mounted = [pod("theirs")]
    pods = {"disttrain": [], "other": mounted, "third": [], "fourth": [], "fifth": mounted}
    assert see_claims(server, pods) == (
        BOUND,
        Claim("fifth", "theirs", ""),
        Claim("other", "theirs", "Pending", "", "efs"),
        Claim("third", "", ""),
    )
    (line,) = claim_lines([Claim("third", "", "")])
    assert line.startswith("  storage: the claims of namespace third are not known: these cred")


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("Pending", "is Pending: it has no volume yet, and no pod can start before"),
        ("Lost", "is Lost: its volume is gone"),
        ("", "is not known: these credentials may not read it"),
    ],
)
def test_a_claim_that_no_pod_can_mount_stands_below_the_nodes(phase: str, said: str) -> None:
    claims = (BOUND, Claim("team", "disttrain-pvc", phase))
    assert claim_lines((BOUND,)) == []
    lines = as_text(PlatformStatus(1, claims=claims), [], "", NOW).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("  storage: claim disttrain-pvc of namespace team " + said)
    assert '"size": "50Gi"' in as_json(PlatformStatus(1, claims=claims), [], "", NOW)
