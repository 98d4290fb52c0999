"""The form of every message about a setting."""

import re

# key: value cannot be used: why. What to do.
FORM = re.compile(r"^  - [^:]+: ('.*'|true|false|\[secret\]|[\d{\[-].*) cannot be used: .+\. .+\.$")
