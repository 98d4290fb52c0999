"""Refuses what the GPUs that `gpuModel` names cannot do, before anything is installed.

Models that are in no table are not checked. The trainer checks the real GPU when it starts.
"""

from infra.settings.gpu_names import BLACKWELL, WITHOUT_BFLOAT16, known_model
from infra.settings.reader import Reader
from infra.settings.run import RunSettings
from infra.settings.torch_index import build_of

_BUILDS_WITHOUT_BLACKWELL = ("cu118", "cu126")


def check_gpu_model(reader: Reader, run: RunSettings, torch_index_url: str) -> None:
    """Note what the run of this stack's own platform cannot do on the platform's GPUs.

    Args:
        reader: collects the problems that are found.
        run: the settings of the run.
        torch_index_url: the index from which the image's torch comes.
    """
    model = known_model(reader.raw("gpuModel"))
    if not run.compute.world.gpus:
        return
    if model in WITHOUT_BFLOAT16 and run.config.train.dtype == "bfloat16":
        reader.problem(
            "run.train.dtype",
            "bfloat16",
            f"it needs compute capability 8.0, and the {model} (gpuModel) has less",
            "Set auto, float32 or float16, or the right gpuModel",
        )
    too_old = build_of(torch_index_url) in _BUILDS_WITHOUT_BLACKWELL
    if model in BLACKWELL and too_old and not run.config.program.image:
        reader.problem(
            "torchIndexUrl",
            torch_index_url,
            f"its torch has no code for the {model} (gpuModel)",
            "Set https://download.pytorch.org/whl/cu128, or the right gpuModel",
        )
