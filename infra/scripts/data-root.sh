#!/bin/sh
# create: makes the data folder on the node and gives it to the trainer's user.
# delete: keeps it; with PURGE, which has to be the folder's own path, removes what is ours in it.
# Needs: DATA_ROOT; may be empty: PURGE, DRY_RUN (1: only says what would change).
# Usage: data-root.sh create|delete
set -eu

: "${DATA_ROOT:?}"

readonly TRAINER=1000 # uid and gid in the image

dry() { [ -n "${DRY_RUN:-}" ]; }

folders() {
  for folder in "" /datasets /datasets/.incoming /runs; do echo "$DATA_ROOT$folder"; done
}

create() {
  if [ -L "$DATA_ROOT" ] || { [ -e "$DATA_ROOT" ] && [ ! -d "$DATA_ROOT" ]; }; then
    echo "dataRoot: $DATA_ROOT is not a folder (a link or a file); choose a folder" >&2
    exit 1
  fi
  folders | while read -r folder; do
    if [ "$(stat -c '%u:%g %a' "$folder" 2>/dev/null)" = "$TRAINER:$TRAINER 755" ]; then
      continue
    elif dry; then
      echo "would make or own: $folder"
    else
      mkdir -p "$folder"
      chown "$TRAINER:$TRAINER" "$folder"
      chmod 755 "$folder"
    fi
  done
  dry || echo "$DATA_ROOT is there"
}

purge() {
  if [ -L "$DATA_ROOT" ] || awk -v root="$DATA_ROOT" \
    'index($2 "/", root "/") == 1 && $2 != root { found = 1 } END { exit !found }' \
    /proc/self/mounts; then
    echo "$DATA_ROOT is a link, or something is mounted in it: not purged; look yourself" >&2
    exit 1
  fi
  if dry; then
    echo "would remove: $DATA_ROOT/datasets, $DATA_ROOT/runs"
    return
  fi
  rm -rf --one-file-system "$DATA_ROOT/datasets" "$DATA_ROOT/runs"
  rmdir "$DATA_ROOT" 2>/dev/null || [ ! -e "$DATA_ROOT" ] || echo "$DATA_ROOT holds other files too"
  echo "data sets, checkpoints and logs in $DATA_ROOT are removed"
}

delete() {
  if [ "${PURGE:-}" = "$DATA_ROOT" ]; then
    purge
  else
    echo "$DATA_ROOT stays: data sets, checkpoints and logs are kept"
  fi
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
