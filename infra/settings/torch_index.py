"""Which CUDA the trainer's torch is built for: by the end of the package index' address. Pure.

https://pytorch.org/get-started/previous-versions/ lists the builds of a release.
"""

import re

from infra.settings.setting_error import SettingError

TORCH = "2.7.1"  # as trainer/requirements.txt pins it
# This release's builds for NVIDIA's GPUs, and the CUDA of each.
CUDA_BUILDS: dict[str, str] = {"cu118": "11.8", "cu126": "12.6", "cu128": "12.8"}
CPU_BUILD = "cpu"
PYPI_BUILD = "cu126"


def build_of(torch_index_url: str) -> str | None:
    """`cu118` for `https://download.pytorch.org/whl/cu118`; None for an index that tells none."""
    if not torch_index_url:
        return PYPI_BUILD
    match = re.search(r"/((cu|rocm)[\d.]+|cpu|xpu)/?$", torch_index_url)
    return match[1] if match else None


def refuse_index(torch_index_url: str, on_gpu: bool) -> SettingError | None:
    """Why the torch of an index would not do; None: it does.

    An index without this release would not fail: pip would take PyPI's, built for another CUDA.
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
    """CUDA's version in torch's wheels, as `11.8`; that of PyPI's where the index does not tell."""
    return CUDA_BUILDS.get(build_of(torch_index_url) or "", CUDA_BUILDS[PYPI_BUILD])
