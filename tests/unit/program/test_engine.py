"""A Pulumi that is too old for the program, and packages that are not those of its checkout."""

from typing import Any

import pulumi
import pytest
from pulumi.runtime.proto import resource_pb2

import infra.engine
from tests.unit.stacks import RecordingMonitor, raw_settings, run_with


@pytest.mark.parametrize(
    "lacks",
    [
        resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
        resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS,
    ],
)
def test_old_engine_is_refused_before_anything_is_made(
    lacks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that lacks an option of the program's resources is refused with the version that is
    needed. Otherwise `up` would end with a traceback after it has made a part of the stack.
    """
    known = RecordingMonitor.GetDeploymentInfo

    def without(self: RecordingMonitor, request: Any) -> Any:
        features = [each for each in known(self, request).supportedFeatures if each != lacks]
        return resource_pb2.DeploymentInfo(supportedFeatures=features)

    monkeypatch.setattr(RecordingMonitor, "GetDeploymentInfo", without)
    with pytest.raises(
        pulumi.RunError, match=r"too old: this project needs Pulumi 3\.\d+ or newer"
    ):
        run_with(RecordingMonitor(), "dev", raw_settings("dev"))


def said_with(monkeypatch: pytest.MonkeyPatch, **installed: str) -> list[str]:
    """Run the program where these packages have these versions; return its warnings."""
    known, said = infra.engine.version, list[str]()
    monkeypatch.setattr(
        infra.engine, "version", lambda name: installed.get(name.replace("-", "_"), known(name))
    )
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_, **__: said.append(text))
    run_with(RecordingMonitor(), "dev", raw_settings("dev"))
    return [text for text in said if "requirements.lock" in text]


def test_packages_of_an_older_checkout_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `.venv` is still of an older checkout, each preview and each `up` names the packages,
    and the command that brings those of now. They behave differently: a later provider of
    Kubernetes refuses an object that exists, which an earlier one takes over.
    """
    (said,) = said_with(monkeypatch, pulumi_kubernetes="4.30.0")
    assert "pulumi-kubernetes 4.30.0 instead of 4.25.0" in said
    assert "pip install --require-hashes -r requirements.lock" in said


def test_packages_of_this_checkout_need_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said where the packages are those of the checkout."""
    assert said_with(monkeypatch) == []
