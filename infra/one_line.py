"""Values as YAML on one line, for outputs of the stack that programs read."""

import math

import yaml


def one_line(value: object) -> str:
    """YAML on one line; `yaml.safe_load` reads it.

    `pulumi up` shows such a text on one line of the screen. An object, and a text that is JSON, it
    shows on a line for each field.

    Args:
        value: dicts, lists, tuples, texts, numbers and booleans.
    """
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.strip()
