"""A pattern of the form that every message about a setting must have."""

import re

# The form is: `key: value cannot be used: why. What to do.`
FORM = re.compile(r"^  - [^:]+: ('.*'|true|false|null|\[secret\]|[\d{\[-].*) cannot be used: .+\. .+\.$")
