"""Reads the setting `extensions`: modules with kinds of the user's own."""

import importlib
import re

from infra.settings.reader import Reader


def import_extensions(reader: Reader) -> None:
    """Import the modules of the setting `extensions`, which register kinds of their own."""
    hint = "Set the name of a Python module in the project's folder, such as my_kinds"
    for module in reader.sequence("extensions"):
        if not isinstance(module, str) or not re.fullmatch(r"\w+(\.\w+)*", module):
            reader.problem("extensions", module, "it is not the name of a Python module", hint)
            continue
        try:
            importlib.import_module(module)
        except ImportError as error:
            reader.problem("extensions", module, f"it cannot be imported ({error})", hint)
        except (SyntaxError, ValueError) as error:  # such as a name that another kind has
            mend = "Mend that in the module, or remove it from extensions"
            reader.problem("extensions", module, f"it cannot be imported ({error})", mend)
