#!/bin/sh
# create: makes the data folder on the host, and gives it to the trainer's user.
# delete: keeps the folder for the next stack. With PURGE, which has to be the folder's path, it removes
#   what this program has made there. A folder that another stack uses stays as it is.
# The trainer's user owns what is in the folder, and could put links there. So everything below the folder
# is made as that user, root never follows a link there, and chown changes links themselves.
# May be empty: DATA_ROOT (empty: no folder of this host holds the data, and nothing is done), PURGE, OWNER
# (identifies the platform), STACK (its stack), REPAIR_ID (when it changes, the command runs again), DRY_RUN
# (1: only says what would change).
# Usage: data-root.sh create|delete
set -eu
umask 022

readonly TRAINER=1000          # uid and gid in the image
readonly MARKER=.disttrain     # in the folder: it is ours; names the stack that uses it, if one does
readonly BELOW='datasets datasets/.incoming runs'
# The data folder must not be in a folder of SYSTEM, and must not be a folder of NOT_ITSELF.
readonly SYSTEM='/bin /boot /dev /etc /lib /lib32 /lib64 /proc /root /run /sbin /sys /usr'
readonly NOT_ITSELF='/ /home /media /mnt /opt /srv /tmp /var /var/lib /var/log /var/tmp'

# Two stacks may come to the folder at the same time, and only one may get it. Each folder has a lock.
LOCK=/run/disttrain-data-$(printf %s "${DATA_ROOT:-}" | cksum | cut -d ' ' -f 1).lock

. ./lib/other-stack.sh
. ./lib/turn.sh

take_folder() { one_at_a_time && { dry || trap 'rm -f "$LOCK"' EXIT; }; }

refuse() { # reason
  echo "dataRoot: $DATA_ROOT $1" >&2
  exit 1
}

is_ours() { [ -f "$DATA_ROOT/$MARKER" ] && [ ! -L "$DATA_ROOT/$MARKER" ]; }

# Prints the owner and its stack, one `key value` a line; nothing if that stack was destroyed.
marker() {
  ! is_ours || dd if="$DATA_ROOT/$MARKER" iflag=nofollow,nonblock bs=4096 count=1 status=none
}

noted() { marker | awk -v key="$1" '$1 == key { print $2 }'; } # key

# Checks the path. It also refuses folders of the system and homes of users, because they would get another
# owner.
check_path() {
  case $DATA_ROOT in
    /*) ;;
    *) refuse "is not an absolute path; choose one such as /var/lib/disttrain" ;;
  esac
  if [ -L "$DATA_ROOT" ] || { [ -e "$DATA_ROOT" ] && [ ! -d "$DATA_ROOT" ]; }; then
    refuse "is not a folder (a link or a file); choose a folder"
  fi
  real=$(readlink -m "$DATA_ROOT")
  [ "$real" = "$DATA_ROOT" ] || refuse "leads to $real; set dataRoot to that path"
  for folder in $SYSTEM; do
    case $DATA_ROOT/ in
      "$folder"/*) refuse "is a folder of the system; choose one such as /var/lib/disttrain" ;;
    esac
  done
  for folder in $NOT_ITSELF; do
    [ "$DATA_ROOT" != "$folder" ] || refuse "is a folder of the system; choose a folder in it"
  done
  case $DATA_ROOT in
    /home/*/*) ;;
    /home/*) refuse "is the home of a user; choose a folder in it" ;;
  esac
}

check_content() { # a new disk has lost+found, and a run that was killed may have left the marker's new text
  if is_ours || [ ! -d "$DATA_ROOT" ]; then return; fi
  found=$(find "$DATA_ROOT" -mindepth 1 -maxdepth 1 ! -name lost+found ! -name "$MARKER.new" -printf '%f ')
  [ -z "$found" ] || refuse "holds files that this program did not make ($found): choose an empty \
folder, or, if it is to be given to user $TRAINER, first run: touch $DATA_ROOT/$MARKER"
}

check_owner() {
  is_of_other_stack || return 0
  refuse "belongs to another stack ($(noted stack)). Choose another folder, or destroy that stack \
first, which keeps its data. If it is lost, or has moved to another folder or host, run on this host: \
truncate -s 0 $DATA_ROOT/$MARKER"
}

as_trainer() {
  setpriv --reuid "$TRAINER" --regid "$TRAINER" --clear-groups --no-new-privs "$@"
}

# Writes the marker. This function and the next one run in the data folder, so that the trainer's user need
# not have access to the folders above it. Nothing is written if the text is there already. If the disk is
# full, a stack that has the folder already can go on.
note_owner() { # text
  if is_ours && [ "$(marker)" = "$1" ]; then return; fi
  as_trainer rm -f "$MARKER.new" &&
    printf '%s\n' "$1" | as_trainer dd of="$MARKER.new" conv=excl oflag=nofollow status=none &&
    as_trainer mv -fT "$MARKER.new" "$MARKER" && return
  as_trainer rm -f "$MARKER.new" || true
  is_ours || refuse "cannot be written to; the reason is above"
  echo "$DATA_ROOT/$MARKER cannot be written, and does not say which stack uses the folder"
}

make_below() { # folder
  if [ -L "$1" ] || { [ -e "$1" ] && [ ! -d "$1" ]; }; then
    refuse "holds $1, which is a link or a file and not a folder; remove it"
  elif [ ! -e "$1" ]; then
    as_trainer mkdir -m 755 "$1"
  elif [ "$(stat -c '%u' "$1")" != "$TRAINER" ]; then
    refuse "holds $1, which belongs to another user; remove it, or give it to user $TRAINER"
  fi
}

own_data_root() {
  [ "$(stat -c '%u:%g %a' "$DATA_ROOT" 2>/dev/null)" != "$TRAINER:$TRAINER 755" ] || return 0
  mkdir -p "$DATA_ROOT"
  chown -h "$TRAINER:$TRAINER" "$DATA_ROOT"
}

create() {
  check_path
  take_folder
  check_content
  check_owner
  if dry; then
    [ -d "$DATA_ROOT" ] || echo "would make: $DATA_ROOT"
    for folder in $BELOW; do
      [ -d "$DATA_ROOT/$folder" ] || echo "would make: $DATA_ROOT/$folder"
    done
    return
  fi
  command -v setpriv >/dev/null || refuse "cannot be made: install util-linux (setpriv) there"
  own_data_root
  cd -P "$DATA_ROOT"
  [ "$(pwd -P)" = "$DATA_ROOT" ] || refuse "was replaced by a link meanwhile"
  [ "$(stat -c %a .)" = 755 ] || as_trainer chmod 755 .
  if [ -n "${OWNER:-}" ]; then
    note_owner "$(printf 'owner %s\nstack %s' "$OWNER" "${STACK:-}")"
  elif ! is_ours; then
    note_owner ""
  fi
  for folder in $BELOW; do make_below "$folder"; done
  echo "$DATA_ROOT is there"
}

purge() {
  if [ -L "$DATA_ROOT" ] || awk -v root="$DATA_ROOT" \
    'index($2 "/", root "/") == 1 && $2 != root { found = 1 } END { exit !found }' \
    /proc/self/mounts; then
    echo "$DATA_ROOT is a link, or something is mounted in it: not purged; look yourself" >&2
    exit 1
  fi
  if [ -d "$DATA_ROOT" ] && ! is_ours; then
    echo "$DATA_ROOT has no file $MARKER, so it is not ours: not purged"
    return
  fi
  if dry; then
    echo "would remove: $DATA_ROOT/datasets, $DATA_ROOT/runs"
    return
  fi
  rm -rf --one-file-system "$DATA_ROOT/datasets" "$DATA_ROOT/runs" # links go, not what they lead to
  rm -f "$DATA_ROOT/$MARKER.new" "$DATA_ROOT/$MARKER" # last: they tell that the rest is ours
  if [ -n "$(ls -A "$DATA_ROOT" 2>/dev/null)" ]; then
    echo "$DATA_ROOT holds files that are not ours, and stays with them"
  elif [ -d "$DATA_ROOT" ]; then
    rmdir "$DATA_ROOT" 2>/dev/null || true # stays where a disk is mounted there
  fi
  echo "data sets, checkpoints and logs in $DATA_ROOT are removed"
}

# Empties the marker, so that another stack can use the folder and what is in it.
end_use() {
  if dry || ! is_ours || [ -L "$DATA_ROOT" ]; then return; fi
  cd -P "$DATA_ROOT"
  note_owner ""
}

delete() {
  take_folder
  if is_of_other_stack; then
    echo "$DATA_ROOT belongs to another stack ($(noted stack)), and stays as it is"
  elif [ "${PURGE:-}" = "$DATA_ROOT" ]; then
    purge
  elif [ -d "$DATA_ROOT" ]; then
    end_use
    echo "$DATA_ROOT stays: data sets, checkpoints and logs are kept"
  else
    echo "$DATA_ROOT is not there"
  fi
}

main() {
  case $1 in
    create | delete) ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
  if [ -z "${DATA_ROOT:-}" ]; then
    echo "no folder of this host holds the data"
  else
    "$1"
  fi
}

main "$@"
