#!/bin/sh
# create: makes the folder for a bundle's files, readable by root alone. delete: removes it.
# Needs: STAGE; may be empty: DRY_RUN (1: only says what would change).
# Usage: bundle-stage.sh create|delete
set -eu

: "${STAGE:?}"

create() {
  if [ "$(stat -c '%u %a' "$STAGE" 2>/dev/null)" = '0 700' ] && [ ! -L "$STAGE" ]; then
    echo "$STAGE is there"
  elif [ -n "${DRY_RUN:-}" ]; then
    echo "would make: $STAGE"
  elif [ -e "$STAGE" ] || [ -L "$STAGE" ]; then
    echo "$STAGE is there and is not a folder of root's alone; remove it" >&2
    exit 1
  else
    mkdir -m 700 "$STAGE"
    echo "$STAGE is made"
  fi
}

delete() {
  if [ -n "${DRY_RUN:-}" ]; then
    echo "would remove: $STAGE"
    return
  fi
  rm -rf "$STAGE"
  echo "$STAGE is removed"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
