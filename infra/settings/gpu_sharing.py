"""Checks how one GPU is shared by several pods: by time slices or by MIG.

All functions are pure. The profiles are those of
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ (supported MIG profiles). Their names are
those of the mig-manager's own configuration, `all-<profile>`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

_A100_80 = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
# model -> MIG profile -> number of instances on one GPU. A model with an empty table has no MIG.
MIG_PROFILES: Mapping[str, Mapping[str, int]] = {
    "T4": {},
    "V100": {},
    "A10": {},
    "A16": {},
    "A40": {},
    "L4": {},
    "L40": {},
    "L40S": {},
    "A30": {"1g.6gb": 4, "2g.12gb": 2, "4g.24gb": 1},
    "A100-40GB": {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1},
    "A100-80GB": _A100_80,
    "H100-80GB": _A100_80,
    "H200": {
        **{"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3},
        **{"3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
    },
    "B200": {
        **{"1g.23gb": 7, "1g.45gb": 4, "2g.45gb": 3},
        **{"3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1},
    },
}
MOST_SLICES = 16


@dataclass(frozen=True)
class Sharing:
    """How one GPU is given to several pods. The defaults give whole GPUs to pods."""

    time_slices: int = 1
    mig_profile: str = ""

    @property
    def shares(self) -> bool:
        """Whether a resource `nvidia.com/gpu` is only a part of a GPU.

        NCCL refuses two ranks on one physical GPU ("Duplicate GPU detected"). The device plugin
        decides which parts a pod gets. So with shared GPUs only a run of one rank is safe.
        """
        return self.time_slices > 1 or bool(self.mig_profile)


class SharingProblem(NamedTuple):
    """A setting that cannot work: its key, its value, why, and what to do (see Reader.problem)."""

    key: str
    value: object
    reason: str
    hint: str


def sharing_problems(sharing: Sharing, model: str) -> list[SharingProblem]:
    """Return the problems of sharing these GPUs; empty if it works.

    Args:
        sharing: how one GPU is shared.
        model: model of the node's GPUs, a key of MIG_PROFILES.
    """
    problems: list[SharingProblem] = []
    slices, profile = sharing.time_slices, sharing.mig_profile
    if slices > 1 and profile:
        reason = "migProfile is set too, and a GPU can be shared in one way at a time"
        hint = "Set gpuTimeSlices: 1, or remove migProfile"
        problems.append(SharingProblem("gpuTimeSlices", slices, reason, hint))
    if not profile:
        return problems
    profiles = MIG_PROFILES.get(model)
    if profiles is None:
        reason = "which profiles of MIG this model has is not known"
        hint = f"Set one of {', '.join(MIG_PROFILES)}, or remove migProfile"
        problems.append(SharingProblem("gpuModel", model, reason, hint))
    elif not profiles:
        reason = f"the {model} (gpuModel) has no MIG"
        hint = "Remove migProfile, or set gpuModel to the model that the node has"
        problems.append(SharingProblem("migProfile", profile, reason, hint))
    elif profile not in profiles:
        reason = f"the {model} (gpuModel) has no such profile"
        hint = f"Set one of {', '.join(profiles)}, or the right gpuModel"
        problems.append(SharingProblem("migProfile", profile, reason, hint))
    return problems


def without_operator(sharing: Sharing) -> list[SharingProblem]:
    """Return the problems that exist because this stack does not install the GPU Operator."""
    reason = (
        "it is the GPU Operator that shares the GPUs, and this stack does not install it "
        "(gpuOperator; auto does so with cluster: k3s alone)"
    )
    hint = "Set gpuOperator: true, or "
    problems: list[SharingProblem] = []
    if sharing.time_slices > 1:
        slices = SharingProblem(
            "gpuTimeSlices", sharing.time_slices, reason, f"{hint}gpuTimeSlices: 1"
        )
        problems.append(slices)
    if sharing.mig_profile:
        profile = SharingProblem(
            "migProfile", sharing.mig_profile, reason, f"{hint}remove migProfile"
        )
        problems.append(profile)
    return problems


def device_plugin_config(time_slices: int) -> dict[str, Any]:
    """Return the device plugin's configuration that offers each GPU `time_slices` times.

    Pods still ask for `nvidia.com/gpu`. A pod that asks for two of them is refused, because it
    could get the same GPU twice.
    """
    return {
        "version": "v1",
        "sharing": {
            "timeSlicing": {
                "renameByDefault": False,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": time_slices}],
            }
        },
    }
