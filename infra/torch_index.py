"""Which CUDA the trainer's torch is built for: by the end of the package index' address. Pure.

https://pytorch.org/get-started/previous-versions/ lists the builds of a release.
"""

import re

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


def refuse_index(torch_index_url: str, on_gpu: bool) -> str | None:
    """What is allowed in place of an index whose torch would not do; None: it does.

    An index without this release would not fail: pip would take PyPI's, built for another CUDA.
    """
    allowed = (*CUDA_BUILDS, *(() if on_gpu else (CPU_BUILD,)))
    build = build_of(torch_index_url)
    if build is None or build in allowed:
        return None
    where = "accelerator: gpu" if on_gpu else "accelerator: cpu"
    return f"with torch {TORCH} and {where}: .../{', .../'.join(allowed)}, or empty (PyPI's)"


def cuda_version(torch_index_url: str) -> str:
    """Of torch's wheels, as `11.8`; PyPI's where the index does not tell."""
    return CUDA_BUILDS.get(build_of(torch_index_url) or "", CUDA_BUILDS[PYPI_BUILD])
