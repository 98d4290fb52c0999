#!/bin/sh
# create: makes the folder for a bundle's files, which only root can read.
# delete: removes the folder, unless it now belongs to another stack, or to another node name of this host.
# Needs: STAGE (the folder). May be empty: NODE (the node name of a further machine), OWNER (identifies the
# platform), STACK (its stack), REPAIR_ID (when it changes, the command runs again), DRY_RUN (1: only says
# what would change).
# Usage: bundle-stage.sh create|delete
set -eu

: "${STAGE:?}"
ROOT=${ROOT:-}                                    # for tests
readonly LOCK="$ROOT/run/disttrain-bundle.lock" # machines that swap names come at one time
readonly HOLDER="$STAGE.holder" # beside it: what else is in the folder goes when the files are sent

. ./lib/turn.sh
. ./lib/holder.sh

create() {
  one_at_a_time
  if [ -e "$STAGE" ] && is_of_other_stack; then
    fail "bundle: $STAGE of this host holds the files of another stack ($(noted stack)). Destroy that \
stack first, or take this host out of sshHost or nodes. If that stack is lost, remove the line 'owner' \
from $HOLDER on this host"
  fi
  if [ "$(stat -c '%u %a' "$STAGE" 2>/dev/null)" = '0 700' ] && [ ! -L "$STAGE" ]; then
    dry || note_holder
    echo "$STAGE is there"
  elif dry; then
    echo "would make: $STAGE"
    return
  elif [ -e "$STAGE" ] || [ -L "$STAGE" ]; then
    fail "$STAGE is there and is not a folder of root's alone; remove it"
  else
    note_holder # first: without it, delete takes the folder for that of another node name
    mkdir -m 700 "$STAGE"
    echo "$STAGE is made"
  fi
}

delete() {
  one_at_a_time
  forget_cut_off
  [ -e "$STAGE" ] || [ -e "$HOLDER" ] || return 0
  is_holder "$STAGE" || return 0
  if dry; then
    echo "would remove: $STAGE"
    return
  fi
  rm -rf "$STAGE"
  rm -f "$HOLDER"
  echo "$STAGE is removed"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
