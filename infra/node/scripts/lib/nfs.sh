# shellcheck shell=sh disable=SC2034 # not every script that includes this uses every constant
# What the scripts about NFS need: where the files are, and which of them this program has made.
ROOT=${ROOT:-} # for tests
readonly EXPORTS="$ROOT/etc/exports.d" # exportfs reads the files there whose names end with .exports
readonly NOTES="$ROOT/var/lib/disttrain-nfs"
readonly NFSD="$ROOT/proc/fs/nfsd"
readonly LOCK="$ROOT/run/disttrain-nfs.lock"
readonly NAME="$NOTES/node"     # which further node the host is, and how it is reached; else missing
readonly SERVES="$NOTES/server" # how the host is reached that serves; missing where none does
readonly BEFORE="$NOTES/before" # what was there before the server, one `key value` a line
readonly REMAINS="$ROOT/etc/exports.ucf-dist $ROOT/etc/default/nfs-common.ucf-dist \
$ROOT/etc/default/nfs-kernel-server.ucf-dist $ROOT/var/lib/nfs/export-lock \
$ROOT/var/lib/nfs/.etab.lock $ROOT/var/lib/nfs/.rmtab.lock $ROOT/var/lib/nfs"
# With root_squash, root on a client has no rights of root in the folder. The trainer's user owns it.
readonly OPTIONS=rw,sync,no_subtree_check,root_squash,sec=sys
readonly MADE_BY_US='# made by disttrain:'

# Commands change the exports for several machines at the same time, and only one package manager can work
# at a time. So the scripts take turns.
. ./lib/turn.sh

is_ours() { # file of exports
  case $(head -n 1 "$1" 2>/dev/null) in "$MADE_BY_US"*) ;; *) return 1 ;; esac
}

# Whether the file was made for another stack.
is_of_other_stack() { # file of exports
  noted=$(sed -n "1s/^$MADE_BY_US.* owner //p" "$1")
  [ -n "$noted" ] && [ -n "${OWNER:-}" ] && [ "$noted" != "$OWNER" ]
}

# Prints the exports that this program did not make: the name of the file, and then the line.
exports_of_others() {
  for file in "$ROOT/etc/exports" "$EXPORTS"/*.exports; do
    if [ -e "$file" ] && ! is_ours "$file"; then
      awk -v file="$file" 'NF && $1 !~ /^#/ { print file, $0 }' "$file"
    fi
  done
}

client_word() { # as `exportfs` takes it
  case $1 in
    *:*) echo "[$1]" ;;
    *) echo "$1" ;;
  esac
}

exported_line() { [ ! -e "$1" ] || sed -n 2p "$1"; }

# Whether the file still belongs to a machine with this name and address. If a machine gets another name
# or address, it is first set up under the new one. What was made under the old one is deleted last, when
# the machine has left the cluster. Both may be the same machine. So only files that still bear the old
# name and address may be deleted.
is_made_for() { # file of exports, what it is for
  case $(head -n 1 "$1") in "$MADE_BY_US $2 (stack "*) ;; *) return 1 ;; esac
}

# Lets one client mount the folder, now and after each start of the server. Other lines in the files of
# exports are not applied, because others may be editing them.
set_export() { # file, client, what it is for
  if [ -e "$1" ] && ! is_ours "$1"; then
    fail "$1 was not made by this program. Move it to another name, and run pulumi up again"
  fi
  if [ -e "$1" ] && is_of_other_stack "$1"; then
    fail "$1 belongs to another stack: $(head -n 1 "$1"). Destroy that stack first, or, if it is \
lost, remove the file on this host"
  fi
  before=$(exported_line "$1")
  wanted="$DATA_ROOT $2($OPTIONS)"
  head="$MADE_BY_US $3 (stack ${STACK:-}) owner ${OWNER:-}"
  if [ "$before" != "$wanted" ] || [ "$(head -n 1 "$1")" != "$head" ]; then
    printf '%s\n%s\n' "$head" "$wanted" >"$1.new"
    chmod 644 "$1.new"
    mv "$1.new" "$1"
  fi
  [ -z "$before" ] || [ "$before" = "$wanted" ] || take_back "$before"
  exportfs -i -o "$OPTIONS" "$(client_word "$2"):$DATA_ROOT" ||
    fail "exportfs refuses $DATA_ROOT for $2 (the setting dataRoot). It has to lie on a file system \
that Linux can export, such as ext4 or xfs"
}

take_back() { # line of a file of exports, which has gone or says something else by now
  folder=${1%% *} client=${1#* }
  exportfs -u "$(client_word "${client%%(*}"):$folder" 2>/dev/null || true
}

remove_export() { # file; may be empty: what it is for, if it is for that alone
  if [ ! -e "$1" ]; then return; fi
  if ! is_ours "$1" || is_of_other_stack "$1"; then
    echo "$1 is not of this stack, and stays"
    return
  fi
  if [ -n "${2:-}" ] && ! is_made_for "$1" "$2"; then
    echo "$1 stays, as it is no longer for $2: $(head -n 1 "$1")"
    return
  fi
  before=$(exported_line "$1")
  rm -f "$1"
  if command -v exportfs >/dev/null; then take_back "$before"; fi
}

was() { grep -qxF "$1 $2" "$BEFORE"; }

# Removes the packages. When Debian's package is removed, it deletes /etc/exports, even if that file was
# there before the package. So the file is saved and put back.
remove_nfs() {
  file="$ROOT/etc/exports"
  if [ -e "$BEFORE" ] && was "$file" there && [ -e "$file" ]; then cp -p "$file" "$NOTES/exports"; fi
  remove_packages
  if [ -e "$NOTES/exports" ] && [ ! -e "$file" ]; then cp -p "$NOTES/exports" "$file"; fi
  rm -rf "$NOTES"
}

is_served() { # client
  exportfs -s | awk -v folder="$DATA_ROOT" -v client="$1(" \
    '$1 == folder && index($2, client) == 1 { found = 1 } END { exit !found }'
}

# Prints the address by which the server sees this host, which may be the server itself. The address in the
# settings cannot be used: it may be a name, and a host's own name often leads to its loopback.
own_address() {
  command -v ip >/dev/null || fail "ip is missing on this host: install iproute2"
  found=$(getent ahosts "$SERVER_ADDRESS" | awk 'NR == 1 { print $1 }')
  [ -n "$found" ] || fail "this host does not know the name $SERVER_ADDRESS (the setting nodeAddress): \
set an address there, or let all machines know the name"
  source=$(ip -o route get "$found" 2>/dev/null |
    awk '{ for (i = 1; i < NF; i++) if ($i == "src") { print $(i + 1); exit } }')
  [ -n "$source" ] || fail "this host has no way to $SERVER_ADDRESS (the setting nodeAddress), the \
first machine, at which it is to mount the data"
  echo "$source"
}
