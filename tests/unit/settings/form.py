"""A pattern of the form that every message about a setting must have."""

import re

_VALUE = r"('.*'|true|false|null|\[secret\]|[\d{\[-].*)"
# The form is: `key: value cannot be used: why. What to do.`
FORM = re.compile(rf"^  - [^:]+: {_VALUE} cannot be used: .+\. .+\.$")
