"""`status` shows the claims of runs: their size and where the data is, or why no pod can start."""

from typing import Any

import pytest

from cli.status.platform_status import PlatformStatus
from cli.status.screen import as_json, as_text
from cli.status.storage import Claim, bound_lines, claim_lines, claim_names, see_claims
from infra.kube.errors import ApiError
from infra.kube.paths import CLAIMS, VOLUMES
from tests.cli.records import NOW

BOUND = Claim("disttrain", "disttrain-pvc", "Bound", "50Gi", "efs")

BOUND_WORDS = "storage: claim disttrain-pvc of namespace disttrain is Bound: 50Gi"


def pod(claim: str) -> dict[str, Any]:
    """Return a pod that mounts this claim."""
    volumes = [
        {"name": "shm", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
    ]
    return {"metadata": {"name": "a"}, "spec": {"volumes": volumes}}


class Server:
    """A stand-in API server that knows only claims and volumes."""

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


def item(phase: str, name: str = "disttrain-pvc", class_name: str = "efs") -> dict[str, Any]:
    """Return a claim as the API server shows it."""
    status = {"phase": phase, "capacity": {"storage": "50Gi"} if phase == "Bound" else {}}
    volume = {"volumeName": "volume-1"} if phase == "Bound" else {}
    spec = {"storageClassName": class_name, **volume}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def test_claims_are_those_that_the_pods_mount() -> None:
    """The claims of a run are those that its pods mount."""
    assert claim_names([pod("theirs"), pod("theirs")]) == {"theirs"}
    assert claim_names([]) == set()


def test_claims_without_pods_are_those_of_the_platform() -> None:
    """Without pods, the platform's own claims are shown. What may not be read is said, and a claim
    that is not there is left out.
    """
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
        ("Terminating", "is Terminating: somebody has deleted it, and no further pod can mount it"),
        ("", "is not known: these credentials may not read it"),
    ],
)
def test_a_claim_that_no_pod_can_mount_stands_below_the_nodes(phase: str, said: str) -> None:
    """A claim that no pod can mount is shown below the nodes, with the reason."""
    claims = (BOUND, Claim("team", "disttrain-pvc", phase))
    assert claim_lines((BOUND,)) == []
    lines = as_text(PlatformStatus(1, claims=claims), [], "", NOW).splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("  storage: claim disttrain-pvc of namespace team " + said)
    assert lines[2] == f"  {BOUND_WORDS}, storage class efs"
    assert '"size": "50Gi"' in as_json(PlatformStatus(1, claims=claims), [], "", NOW)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"hostPath": {"path": "/srv/train data"}}, "folder /srv/train data"),
        ({"local": {"path": "/mnt/disk"}}, "folder /mnt/disk"),
        ({"nfs": {"server": "files", "path": "/exports"}}, "nfs files:/exports"),
        ({"csi": {"driver": "efs.csi.aws.com"}}, "driver efs.csi.aws.com"),
        ({"somethingNew": {}}, "volume volume-1"),
        ("forbidden", "volume volume-1"),
        (None, "volume volume-1"),
    ],
)
def test_claim_without_a_class_shows_where_its_data_is(source: Any, said: str) -> None:
    """A claim without a storage class shows where its volume's data is. If the volume may not be
    read, only its name is shown.
    """
    answers: dict[str, Any] = {CLAIMS.format("disttrain"): [item("Bound", class_name="")]}
    if source is not None:
        found = source if isinstance(source, str) else {"spec": source}
        answers[f"{VOLUMES}/volume-1"] = found
    server: Any = Server(answers)
    claims = see_claims(server, {"disttrain": []})
    assert bound_lines(claims) == [f"  {BOUND_WORDS}, {said}"]
    lines = as_text(PlatformStatus(1, claims=claims), [], "", NOW).splitlines()
    assert lines[1] == f"  {BOUND_WORDS}, {said}"
    assert f'"source": "{said}"' in as_json(PlatformStatus(1, claims=claims), [], "", NOW)


def test_volume_of_a_claim_with_a_class_is_not_asked_for() -> None:
    """The volume of a claim with a storage class is not asked for, because the class says where the
    data is.
    """
    asked = list[str]()

    class Noting(Server):
        def get(self, path: str) -> Any:
            asked.append(path)
            return super().get(path)

    server: Any = Noting({CLAIMS.format("disttrain"): [item("Bound"), item("Pending", "b", "")]})
    claims = see_claims(server, {"disttrain": []})
    assert asked == [CLAIMS.format("disttrain")]
    assert bound_lines(claims) == [f"  {BOUND_WORDS}, storage class efs"]


def test_claim_that_is_being_deleted_is_not_called_bound() -> None:
    """A claim that is being deleted is shown as Terminating. Kubernetes still calls it Bound while
    pods mount it, but a new pod cannot start.
    """
    found = item("Bound")
    found["metadata"]["deletionTimestamp"] = "2026-11-22T07:00:00Z"
    server: Any = Server({CLAIMS.format("disttrain"): [found]})
    (claim,) = see_claims(server, {"disttrain": []})
    assert claim.phase == "Terminating"
    assert bound_lines([claim]) == []


def test_many_bound_claims_are_one_line() -> None:
    """More than three bound claims are one line, because each person may have a namespace with a
    claim. A claim that is not bound is always named.
    """
    claims = [Claim(f"team-{number}", "data", "Bound", "1Gi", "efs") for number in range(4)]
    assert len(bound_lines(claims[:3])) == 3
    assert bound_lines(claims) == ["  storage: 4 claims are Bound; --json has each of them"]
    assert len(claim_lines([*claims, Claim("team-9", "data", "Lost")])) == 1
