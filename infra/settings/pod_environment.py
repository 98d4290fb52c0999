"""Checks `podEnvironment` and `podSecrets`: variables that would break the run are refused."""

import re
from collections.abc import Mapping

from infra.settings.reader import Reader

_ENTRYPOINT = "the entrypoint sets it for each rank"
# Variables that users cannot set, and the reasons.
_OWN_VARIABLES = {
    "POD_NAME": "the program sets it to the pod's name",
    "HOME": "the image's user has no other folder to write to",
    "PATH": "the image's programs are found by it",
    "PYTHONHOME": "Python would not find the image's packages",
    **dict.fromkeys(("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), _ENTRYPOINT),
    **dict.fromkeys(("NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"), _ENTRYPOINT),
    **dict.fromkeys(("ROLE_RANK", "ROLE_WORLD_SIZE"), _ENTRYPOINT),
    "WORLD_SIZE": "the entrypoint sets it; `pods` and `gpusPerPod` or `processesPerPod` decide it",
    "MASTER_ADDR": "the entrypoint sets it; the kind of workload decides it",
    "MASTER_PORT": "the entrypoint sets it",
    "JOB_COMPLETION_INDEX": "Kubernetes sets it, and the pods tell their ranks by it",
    "CUDA_VISIBLE_DEVICES": "each rank takes the GPU with its local rank's number",
    "NVIDIA_VISIBLE_DEVICES": "it is set on the node, by the GPUs that the pod was given",
    "LD_PRELOAD": "it would be loaded into every process of the pod",
    "LD_AUDIT": "it would be loaded into every process of the pod",
}
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")  # read by Python's ssl and by requests
_MOST_BYTES = 2**17 - 1  # MAX_ARG_STRLEN of Linux, without the NUL at the end
_PREFIXES = ("PET_", "DISTTRAIN_", "TORCHELASTIC_")


def check_environment(reader: Reader, setting: str, variables: Mapping[str, str]) -> None:
    """Note each variable that the pods cannot have.

    Args:
        reader: collects the problems that are found.
        setting: key of the setting that holds the variables.
        variables: what the user has set.
    """
    for name, value in variables.items():
        if fault := variable_fault(name) or value_fault(value):
            reader.problem(f"{setting}.{name}", value, *fault)
        elif (size := len(f"{name}={value}".encode())) > _MOST_BYTES:
            reader.problem(
                f"{setting}.{name}",
                "...",
                f"it has {size:,} bytes with its name, and Linux starts no program with a variable "
                f"of more than {_MOST_BYTES:,} bytes",
                "Put the text into a file that the program reads, such as on the volume",
            )


def variable_fault(name: str) -> tuple[str, str] | None:
    """Why pods cannot have a variable of this name, and what to do; None if they can."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        hint = "Use letters, digits and '_', and begin with no digit"
        return "this is not the name of a variable", hint
    if name in _OWN_VARIABLES:
        return _OWN_VARIABLES[name], "Remove it"
    if name.startswith(_PREFIXES):
        return "the program and its entrypoint set the variables that begin so", "Remove it"
    if name.lower() in _PROXY_VARIABLES:
        hint = "Use httpProxy, httpsProxy and noProxy instead"
        return "pods get the proxy from settings of its own", hint
    if name in CA_VARIABLES:
        hint = "Use caBundle, which adds to what they trust"
        return "the pods would no longer trust the platform's authorities", hint
    return None


def value_fault(value: str) -> tuple[str, str] | None:
    """Why pods cannot have a variable with this value, and what to do; None if they can.

    The kernel ends a variable at the character NUL, so no container with one would start. Tabs and
    line breaks are allowed: a certificate has several lines.
    """
    if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", value) is None:
        return None
    hint = "Set it again without that character; bytes of any kind can be written in base64"
    return "it has a control character in it, such as NUL", hint
