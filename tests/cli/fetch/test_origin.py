"""`fetch` takes a run from the volume, or from its mirror when the volume is lost."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.fetch import command, from_mirror, from_volume
from cli.fetch.mirror_settings import Mirror
from cli.fetch.order import Order
from cli.fetch.wanted import NoRunError
from cli.stack_outputs import VolumePlace
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError, TaskError, UnreachableError
from tests.cli.fetch.local_pod import contents, make_run
from tests.cli.fetch.mirrored import mirror, mirrored_contents

PLACE = VolumePlace(Access("clusters: []"), "ns", "owner", "image", "claim", "/data/runs", "words")


@pytest.fixture
def mirror_url(tmp_path: Path) -> str:
    """Return the address of a mirror with the run `words`."""
    url = f"file://{tmp_path}/mirror"
    mirror(make_run(tmp_path / "volume" / "words"), url)
    return url


@pytest.fixture
def stack(mirror_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stack's settings name the mirror."""
    found = Mirror(mirror_url, "words")
    monkeypatch.setattr(command, "stack_mirror", lambda name: found)
    monkeypatch.setattr(from_volume, "volume_place", lambda name: PLACE)


def failing(error: Exception) -> Callable[..., object]:
    """Return a function that raises this error."""

    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


LOST: dict[str, tuple[str, Exception]] = {
    "the stack is destroyed": ("volume_place", ValueError("the selected stack is not up")),
    "the cluster does not answer": ("see_claim", UnreachableError("no route to host")),
    "the namespace is gone": ("see_claim", ApiError(404, 'namespaces "ns" not found')),
    "the namespace is going": (
        "volume_pod",
        ApiError(403, "pods is forbidden: because it is being terminated"),
    ),
    "the claim is gone": ("see_claim", TaskError("claim claim of namespace ns is not there")),
    "no pod comes to run": ("volume_pod", TaskError("0/1 nodes are available")),
    "the run is not on the volume": ("PodSource", NoRunError("run 'words' is not on the volume")),
}


class NoPod:
    """A stand-in for the pod on the volume, which starts and ends without a cluster."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def lose(monkeypatch: pytest.MonkeyPatch, way: str, error: Exception) -> None:
    """Let the volume be lost in this way: the function `way` of `from_volume` raises the error."""
    monkeypatch.setattr(from_volume, "see_claim", lambda api, place: None)
    monkeypatch.setattr(from_volume, "volume_pod", lambda *_, **__: NoPod())
    if way == "PodSource":
        monkeypatch.setattr(Order, "bring", broken_for_pods(error))
    else:
        monkeypatch.setattr(from_volume, way, failing(error))


def broken_for_pods(error: Exception) -> Callable[..., object]:
    """Return a `bring` of Order that raises the error for a pod, and brings a run from a mirror."""
    whole = Order.bring

    def bring(order: Order, source: object, *rest: object) -> object:
        if isinstance(source, from_volume.PodSource):
            raise error
        return whole(order, source, *rest)  # pyright: ignore[reportArgumentType]

    return bring


@pytest.mark.parametrize("loss", LOST)
@pytest.mark.usefixtures("stack")
def test_run_of_a_lost_volume_comes_from_its_mirror(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the volume cannot be read, `fetch` brings the run from its mirror, and says so and why."""
    way, error = LOST[loss]
    lose(monkeypatch, way, error)
    said = command.bring(Order(to=str(tmp_path / "here")), "auto")
    assert contents(tmp_path / "here") == mirrored_contents(tmp_path / "volume" / "words")
    assert f"all of it is from the mirror file://{tmp_path}/mirror" in said
    assert f"the volume cannot be read: {error}" in capsys.readouterr().err


@pytest.mark.parametrize("loss", LOST)
@pytest.mark.usefixtures("stack")
def test_first_reason_is_said_where_no_mirror_can_help(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no mirror may be used or is known, `fetch` fails with the reason why the volume cannot
    be read.
    """
    way, error = LOST[loss]
    lose(monkeypatch, way, error)
    with pytest.raises(type(error), match=str(error).replace("(", r"\(")):
        command.bring(Order(to=str(tmp_path / "here")), "volume")
    for none in (lambda name: None, failing(ValueError("no such stack"))):
        monkeypatch.setattr(command, "stack_mirror", none)
        with pytest.raises(type(error), match=str(error).replace("(", r"\(")):
            command.bring(Order(to=str(tmp_path / "here")), "auto")


@pytest.mark.usefixtures("stack")
def test_kubeconfig_that_went_with_its_cluster_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kubeconfig that is gone with its cluster counts as a lost volume, and the run comes from
    its mirror. The code that asks the cluster is real here, because there is no cluster to ask.
    """
    gone = replace(PLACE, access=Access(kubeconfig_path=f"{tmp_path}/gone"))
    monkeypatch.setattr(from_volume, "volume_place", lambda name: gone)
    command.bring(Order(to=str(tmp_path / "here")), "auto")
    assert contents(tmp_path / "here") == mirrored_contents(tmp_path / "volume" / "words")
    said = capsys.readouterr().err
    assert f"the volume cannot be read: kubeconfig {tmp_path}/gone cannot be read" in said
    with pytest.raises(ValueError, match="gone cannot be read"):
        command.bring(Order(to=str(tmp_path / "here")), "volume")


@pytest.mark.usefixtures("stack")
def test_rights_that_are_missing_are_no_lost_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may not start pods is refused, and gets no run from the mirror. The run may be on
    the volume, and newer than its mirror.
    """
    for status in (401, 403):
        lose(monkeypatch, "volume_pod", ApiError(status, "cannot create resource pods"))
        with pytest.raises(ApiError, match="cannot create resource pods"):
            command.bring(Order(to=str(tmp_path / "here")), "auto")


class Server:
    """A stand-in API server that knows only the claim."""

    def __init__(self, answer: dict[str, Any] | int | None) -> None:
        self.answer = answer

    def get(self, path: str) -> dict[str, Any] | None:
        assert path == "/api/v1/namespaces/ns/persistentvolumeclaims/claim"
        if isinstance(self.answer, int):
            raise ApiError(self.answer, "the server's words")
        return self.answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "claim claim of namespace ns is not there"),
        ({"status": {"phase": "Lost"}}, "claim claim of namespace ns has lost its volume"),
        ({"status": {"phase": "Bound"}}, ""),
        ({"status": {"phase": "Pending"}}, ""),  # the claim may wait for its first pod
        (403, ""),  # a user who may not read the claim may still use it
    ],
)
def test_claim_that_no_pod_can_use_is_named_before_one_waits(
    answer: dict[str, Any] | int | None, reason: str
) -> None:
    """A claim that is missing or has lost its volume is named before a pod would wait for it."""
    server: Any = Server(answer)
    if not reason:
        from_volume.see_claim(server, PLACE)
        return
    with pytest.raises(TaskError, match=reason):
        from_volume.see_claim(server, PLACE)


@pytest.mark.usefixtures("stack")
def test_mirror_of_the_stack_needs_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--from mirror` brings the run without asking for the volume. A stack without a mirror is
    refused.
    """
    lose(monkeypatch, "volume_place", AssertionError("the volume was asked for"))
    said = command.bring(Order(to=str(tmp_path / "here")), "mirror")
    assert "run words with checkpoint step 100" in said
    monkeypatch.setattr(command, "stack_mirror", lambda name: None)
    with pytest.raises(ValueError, match=r"--from mirror: the stack has none"):
        command.bring(Order(to=str(tmp_path / "here")), "mirror")


def test_address_alone_needs_neither_stack_nor_cluster(
    mirror_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--from` with a mirror's address and the name of a run needs neither Pulumi nor a cluster."""
    monkeypatch.setattr(from_mirror, "selected_stack", failing(AssertionError("no pulumi here")))
    command.bring(Order("words", to=str(tmp_path / "here")), mirror_url)
    assert (tmp_path / "here/checkpoints/step-00000100/manifest.json").exists()
    with pytest.raises(ValueError, match="the stack has no run of its own: name one"):
        command.bring(Order(to=str(tmp_path / "here")), mirror_url)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s3:/bucket", "'s3:/bucket' cannot be used: it is no place"),
        ("s3://key:hunter2@host/bucket", "credentials do not belong into it"),
    ],
)
def test_place_that_is_none_is_refused(text: str, reason: str) -> None:
    """An address that is no mirror, or has credentials in it, is refused, and the credentials are
    not printed.
    """
    with pytest.raises(ValueError, match=reason) as caught:
        command.parse_origin(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("asked", ["no pulumi", "no passphrase"])
def test_what_keeps_both_places_away_is_said_once(
    asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the volume and the mirror fail for the same reason, it is said once. If the mirror is not
    known for another reason, that is said too.
    """
    monkeypatch.setattr(from_volume, "volume_place", failing(ValueError("no pulumi")))
    monkeypatch.setattr(command, "stack_mirror", failing(ValueError(asked)))
    with pytest.raises(ValueError, match=r"^no pulumi$"):
        command.bring(Order(), "auto")
    assert capsys.readouterr().err.count("is not known") == (asked != "no pulumi")
