"""Tells from the package index' address for which CUDA the trainer's torch is built.

All functions are pure. https://pytorch.org/get-started/previous-versions/ lists the builds of a
release.
"""

import re

from infra.settings.setting_error import SettingError

TORCH = "2.7.1"  # as trainer/requirements.txt pins it
# The builds of this release for NVIDIA's GPUs, and the version of CUDA of each.
CUDA_BUILDS: dict[str, str] = {"cu118": "11.8", "cu126": "12.6", "cu128": "12.8"}
CPU_BUILD = "cpu"
PYPI_BUILD = "cu126"


def build_of(torch_index_url: str) -> str | None:
    """Return the build in an index' address; None if the address does not tell.

    It is `cu118` for `https://download.pytorch.org/whl/cu118`, and PYPI_BUILD for an empty text.
    """
    if not torch_index_url:
        return PYPI_BUILD
    match = re.search(r"/((cu|rocm)[\d.]+|cpu|xpu)/?$", torch_index_url)
    return match[1] if match else None


def refuse_index(torch_index_url: str, on_gpu: bool) -> SettingError | None:
    """Why an index has no torch that can be used; None if it has one.

    With an index that lacks this release, the build would not fail. pip would install PyPI's torch,
    which is built for another CUDA.
    """
    allowed = (*CUDA_BUILDS, *(() if on_gpu else (CPU_BUILD,)))
    build = build_of(torch_index_url)
    if build is None or build in allowed:
        return None
    where = "accelerator: gpu" if on_gpu else "accelerator: cpu"
    return SettingError(
        f"it has no torch {TORCH} for {where}, so that another build would be taken in silence",
        f"Set an address that ends in /{', /'.join(allowed)}, or an empty one for PyPI's build",
    )


def cuda_version(torch_index_url: str) -> str:
    """Return CUDA's version in torch's wheels, such as `11.8`.

    If the index' address does not tell, it is the version in PyPI's wheels.
    """
    return CUDA_BUILDS.get(build_of(torch_index_url) or "", CUDA_BUILDS[PYPI_BUILD])
