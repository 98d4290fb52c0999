"""Computes the name of the Job that makes a data set: a valid name, and another for each stack.

All functions are pure.
"""

import re

from infra.labels import content_hash

# What the names of Jobs call the data sets of two presets, which have the same text.
KNOWN_NAMES = {"shakespeare-char": "tiny-shakespeare", "shakespeare-gpt2": "tiny-shakespeare"}
MOST_CHARACTERS = 63
"""The longest DNS label, and also the longest value of a label of an object.

Kubernetes puts the name of a Job into a label of its pods.
"""
HASH_CHARACTERS = 8
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def dataset_job_name(dataset: str, stack: str, instance: str, *, owns_platform: bool) -> str:
    """The name `download-<data set>`, with the stack's name if another stack owns the platform.

    At the end follows the stack's name, or `instance` instead of it, and after that a hash. Without
    the hash, two stacks could have the same name: one with the data set `wiki-small` and no stack's
    name in it, and one with the data set `wiki` and the stack `small`. A name that would not be
    valid also gets a hash.

    Args:
        dataset: the name of the data set.
        stack: the name of the stack.
        instance: the text that is in the names of all objects of the run; empty if there is none.
        owns_platform: whether the platform belongs to this stack.
    """
    suffix = instance or ("" if owns_platform else stack)
    base = f"download-{KNOWN_NAMES.get(dataset, dataset)}"
    cleaned = re.sub("[._]", "-", base).lower()
    name = f"{cleaned}-{suffix}" if suffix else cleaned
    if not suffix and len(name) <= MOST_CHARACTERS and DNS_LABEL.fullmatch(name):
        return name
    ending = f"-{content_hash([dataset, stack, instance], HASH_CHARACTERS)}"
    begin = re.sub("[._]", "-", name).lower()[: MOST_CHARACTERS - len(ending)]
    return begin.rstrip("-") + ending
