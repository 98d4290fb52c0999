#!/bin/sh
# Puts a text where the data set's Job can read it: below the data root on the node.
# Needs: SOURCE (a file on this host), TARGET (its path there, named after its checksum); may be
# empty: TRANSFERRED (true: SOURCE was sent for this, and goes), DRY_RUN (1: only says what would
# change). Usage: dataset-file.sh create|delete
set -eu

: "${SOURCE:?}" "${TARGET:?}"

sent() { [ -n "${TRANSFERRED:-}" ]; }

create() {
  if [ -f "$TARGET" ] &&
    { cmp -s "$SOURCE" "$TARGET" 2>/dev/null || { sent && [ ! -e "$SOURCE" ]; }; }; then
    if sent && [ -z "${DRY_RUN:-}" ]; then rm -f "$SOURCE"; fi
    echo "$TARGET is there"
    return
  fi
  if [ ! -r "$SOURCE" ]; then
    echo "datasetFile: $SOURCE cannot be read on this host" >&2
    exit 1
  fi
  if [ -n "${DRY_RUN:-}" ]; then
    echo "would copy: $SOURCE to $TARGET"
    return
  fi
  partial=$TARGET.partial.$$
  trap 'rm -f "$partial"' EXIT
  mkdir -p "${TARGET%/*}"
  cp "$SOURCE" "$partial"
  chmod 644 "$partial"
  mv "$partial" "$TARGET"
  if sent; then rm -f "$SOURCE"; fi
  echo "$SOURCE copied to $TARGET"
}

delete() {
  if [ -n "${DRY_RUN:-}" ]; then
    echo "would remove: $TARGET"
    return
  fi
  rm -f "$TARGET"
  echo "$TARGET removed"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
