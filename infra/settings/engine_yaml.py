"""Reads YAML as Pulumi's engine reads it.

The engine is written in Go, whose yaml.v3 follows YAML 1.2 with some rules of 1.1. PyYAML follows
YAML 1.1: it reads `off` as false and `1:30` as 90, and `1e3` as a text. Then a stack's file would
mean something else to `./disttrain` than to `pulumi up`.
https://pkg.go.dev/gopkg.in/yaml.v3#readme-compatibility lists the rules.
"""

import datetime
import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

# Pulumi.yaml is read at each preview. The loader in C, which PyYAML's wheels have, takes 4 ms, and
# the one in Python 40 ms.
_BASE: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
TIME_OF_ENGINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4} [A-Z+-]\w*")
"""The text that the engine makes of a date or time without quotation marks."""
_TAG = "tag:yaml.org,2002:"
# For each tag: which plain scalars have it, and the characters with which they can begin. An empty
# text among the characters stands for the empty scalar. The first match decides.
_FORMS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]*|0[bB][01_]+|[1-9][0-9_]*)", [*"-+0123456789"]),
    ("float", r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", [*"-+.0123456789"]),
    ("timestamp", r"\d{4}-\d{1,2}-\d{1,2}([Tt ].*)?", [*"0123456789"]),
    ("merge", r"<<", ["<"]),
)


class RepeatedKeyError(yaml.YAMLError):
    """A mapping has a key twice, which the engine refuses. PyYAML would take the last value."""

    def __init__(self, first: ScalarNode, second: ScalarNode):
        lines = [key.start_mark.line + 1 for key in (first, second)]
        super().__init__(f"{first.value} is given twice, in lines {lines[0]} and {lines[1]}")


def load_as_engine(text: str) -> Any:
    """Return the content of a YAML text.

    Raises:
        RepeatedKeyError: a mapping has a key twice.
        yaml.YAMLError: the text is not YAML.
    """
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # This comes before the content is made, because `<<` then copies keys into the mappings.
        _refuse_repeated_keys(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_repeated_keys(whole: Node) -> None:
    """Raise RepeatedKeyError if a mapping in this node has a key twice."""
    todo, seen = [whole], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in seen:  # An anchor stands in several places, even inside itself.
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            todo += node.value
        elif isinstance(node, MappingNode):
            keys = dict[str, ScalarNode]()
            for key, value in node.value:
                todo.append(value)
                if isinstance(key, ScalarNode) and keys.setdefault(key.value, key) is not key:
                    raise RepeatedKeyError(keys[key.value], key)


def _integer(loader: Any, node: ScalarNode) -> int:
    digits = str(loader.construct_scalar(node)).replace("_", "")
    return int(re.sub(r"^([-+]?)0(?=[0-7]+$)", r"\g<1>0o", digits), 0)


def _float(loader: Any, node: ScalarNode) -> float:
    """Return the number. The engine writes whole numbers without a point, so they are integers."""
    number = float(loader.construct_scalar(node))
    return int(number) if number.is_integer() else number


def _time(loader: Any, node: ScalarNode) -> str:
    """Return the text that the engine makes of a date or time; other texts as they are."""
    written = str(loader.construct_scalar(node))
    try:
        time = datetime.datetime.fromisoformat(written)
    except ValueError:
        return written
    return f"{time:%Y-%m-%d %H:%M:%S} +0000 UTC"


def _boolean(loader: Any, node: ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() == "true"


def _loader() -> Any:
    """Make the class of a loader that knows only the forms above."""
    loader: Any = type("EngineLoader", (_BASE,), {"yaml_implicit_resolvers": {}})
    for name, pattern, first in _FORMS:
        loader.add_implicit_resolver(_TAG + name, re.compile(rf"(?:{pattern})\Z"), first)
    makers = {"int": _integer, "float": _float, "timestamp": _time, "bool": _boolean}
    for name, make in makers.items():
        loader.add_constructor(_TAG + name, make)
    return loader


_LOADER = _loader()
