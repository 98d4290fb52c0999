"""The name of the Job that makes a data set: a valid one, and each stack has its own. Pure."""

import re

from infra.labels import content_hash

# Data sets of the presets whose Job has a name that users of the original set-up know.
KNOWN_NAMES = {"shakespeare-char": "tiny-shakespeare", "shakespeare-gpt2": "tiny-shakespeare"}
MOST_CHARACTERS = 63
"""Of a DNS label, and of the value of a label, by which Kubernetes marks the pods of a Job."""
HASH_CHARACTERS = 8
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def dataset_job_name(dataset: str, stack: str, instance: str, *, owns_platform: bool) -> str:
    """`download-<data set>`, and the stack's name at the end where another one owns the platform.

    A hash of the stack is at the end where that would be no valid name, or may be that of another
    stack: because only the text `instance` follows, which others may have too, or because the
    stack's name cannot stand there as it is.

    Args:
        dataset: the name of the data set.
        stack: the name of the stack.
        instance: the text that is in the names of all objects of the run; empty: there is none.
        owns_platform: whether the platform belongs to this stack.
    """
    suffix = instance or ("" if owns_platform else stack)
    base = f"download-{KNOWN_NAMES.get(dataset, dataset)}"
    cleaned = re.sub("[._]", "-", base).lower()
    name = f"{cleaned}-{suffix}" if suffix else cleaned
    if not instance and len(name) <= MOST_CHARACTERS and DNS_LABEL.fullmatch(name):
        return name
    ending = f"-{content_hash([dataset, stack, instance], HASH_CHARACTERS)}"
    begin = re.sub("[._]", "-", name).lower()[: MOST_CHARACTERS - len(ending)]
    return begin.rstrip("-") + ending
