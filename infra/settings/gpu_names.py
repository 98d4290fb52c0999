"""The models of GPUs about which this program knows something, and how users write them."""

import re

from infra.settings.gpu_sharing import MIG_PROFILES

WITHOUT_BFLOAT16 = ("P4", "P100", "V100", "T4")  # compute capability 6.0 to 7.5
BLACKWELL = ("B200", "GB200", "B300", "GB300")


def known_model(text: str) -> str:
    """Return the model of the tables that a text names, or else the text itself.

    The text may be a name as `nvidia-smi` shows it: `NVIDIA H100 80GB HBM3` is the model H100-80GB.
    """
    words = set(re.findall(r"[a-z0-9]+", text.lower()))
    models = (*MIG_PROFILES, *WITHOUT_BFLOAT16, *BLACKWELL)
    return next((model for model in models if words.issuperset(model.lower().split("-"))), text)
