"""For stand-ins of a login shell that go by the text that infra/image/node.py sends to it."""

# Sets `text` to the text for `sh` that is in the first argument, as for_any_shell has coded it.
READ_TEXT = """\
text=${1##*echo }
text=$(echo "${text%% *}" | base64 -d | gzip -dc)
"""
