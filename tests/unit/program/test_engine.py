"""A Pulumi that is too old for the program."""

from typing import Any

import pulumi
import pytest
from pulumi.runtime.proto import resource_pb2

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
