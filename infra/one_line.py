"""Writes values as YAML on one line, for outputs of the stack that programs read."""

import math

import yaml


def one_line(value: object) -> str:
    """A value as YAML on one line, which `yaml.safe_load` can read.

    `pulumi up` shows such a text on one line of the screen. It would show an object, or a text that
    is JSON, with one line for each field.

    Args:
        value: dicts, lists, tuples, texts, numbers and booleans.
    """
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.strip()
