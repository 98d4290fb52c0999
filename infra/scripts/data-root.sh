#!/bin/sh
# Makes the data folder on the node and gives it to the trainer's user. Deletes nothing, ever.
# Needs: DATA_ROOT. Usage: data-root.sh create|delete
set -eu

: "${DATA_ROOT:?}"

readonly TRAINER=1000 # uid and gid in the image

create() {
  if [ -L "$DATA_ROOT" ] || { [ -e "$DATA_ROOT" ] && [ ! -d "$DATA_ROOT" ]; }; then
    echo "dataRoot: $DATA_ROOT is not a folder (a link or a file); choose a folder" >&2
    exit 1
  fi
  for folder in "$DATA_ROOT" "$DATA_ROOT/datasets" "$DATA_ROOT/datasets/.incoming" \
    "$DATA_ROOT/runs"; do
    mkdir -p "$folder"
    chown "$TRAINER:$TRAINER" "$folder"
    chmod 755 "$folder"
  done
  echo "$DATA_ROOT is there"
}

delete() {
  echo "$DATA_ROOT stays: data sets, checkpoints and logs are kept"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
