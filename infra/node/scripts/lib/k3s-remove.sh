# shellcheck shell=sh
# Removes k3s, and nothing that was on the host before. Needs the other files that k3s-install.sh includes.

was_there_before() { grep -qxF "before $1" "$OWNERSHIP_FILE"; }

# k3s-killall.sh and the uninstaller delete some paths even if they were there before k3s. Such paths are
# moved aside while these scripts run.
keep_others_paths() { # aside or back
  for path in $LINKS $REPOSITORIES /var/lib/cni; do
    was_there_before "$path" || continue
    kept=$path.disttrain-kept
    case $1 in
      # If a removal was cut off, theirs is aside already, and what is there by now is of k3s.
      aside) is_there "$kept" || ! is_there "$path" || mv "$path" "$kept" ;;
      back) ! is_there "$kept" || { rm -rf "$path" && mv "$kept" "$path"; } ;;
    esac
  done
}

is_there() { [ -e "$1" ] || [ -L "$1" ]; } # also a link that leads nowhere

# The uninstaller deletes these folders, with everything that is mounted in them.
readonly DELETED='/etc/rancher/k3s /run/k3s /run/flannel /var/lib/cni /var/lib/kubelet /var/lib/rancher/k3s'

# In these folders, mounts of the types overlay and tmpfs are the layers of containers and their /dev/shm.
readonly OF_CONTAINERD='/run/k3s/ /var/lib/rancher/k3s/agent/containerd/'

# Prints what is mounted below a folder, the deepest first, without containerd's own mounts.
mounted_below() { # folder
  awk -v below="$1/" -v own="$OF_CONTAINERD" '
    BEGIN { count = split(own, places, " ") }
    index($2, below) != 1 { next }
    $3 == "overlay" || $3 == "tmpfs" { for (i = 1; i <= count; i++) if (index($2, places[i]) == 1) next }
    { gsub(/\\040/, " ", $2); print $2 }' /proc/self/mounts | sort -r
}

# Refuses to go on while something of others is mounted. k3s-killall.sh ends the containers and unmounts
# what was mounted for them. If it cannot unmount a volume that somebody still uses, such as a shared
# disk with checkpoints, it goes on. The uninstaller would then delete what is on that disk.
refuse_mounted() {
  killall="${BINARY%/*}/k3s-killall.sh"
  [ ! -x "$killall" ] || "$killall" </dev/null >/dev/null 2>&1 9>&- || true
  mounted=$(for folder in $DELETED; do mounted_below "$folder"; done | head -n 1)
  [ -n "$mounted" ] || return 0
  keep_others_paths back
  fail "$mounted is still mounted on this host, so k3s was not removed: its uninstaller would delete \
what is in there. See who uses it (fuser -vm '$mounted'), let them end, unmount it (umount '$mounted', or \
umount -l where nobody is seen), and run the same command of pulumi again"
}

# The uninstaller also removes the package for SELinux by `yum`, or by another package manager if there is
# no such command. If the package was there before, a `yum` that does nothing is put in front.
run_uninstaller() {
  [ -x "$UNINSTALLER" ] || return 0
  path=$PATH
  if was_there_before "$POLICY"; then
    { mkdir -p "$SCRATCH/bin" && printf '#!/bin/sh\n' >"$SCRATCH/bin/yum" &&
      chmod 755 "$SCRATCH/bin/yum" && path=$SCRATCH/bin:$PATH; } || true
  fi
  PATH=$path "$UNINSTALLER" </dev/null >/run/disttrain-uninstall.log 2>&1 9>&- || {
    tail -n 15 /run/disttrain-uninstall.log | cut -c 1-300
    echo "k3s' uninstaller ended with an error; going on"
  }
  rm -f /run/disttrain-uninstall.log
}

remove_rest() { # also what an install that was broken off has left
  systemctl disable --quiet --now "$SERVICE" 2>/dev/null || true
  rm -rf "$UNIT" "$NO_RESTART" "$UNIT.env" "$UNIT.d" "$UNINSTALLER" "${BINARY%/*}/k3s-killall.sh" "$BINARY" \
    "$BINARY.disttrain-new" "$ENVIRONMENT" "$CONFIG" "$REGISTRIES" "$TOKEN_FILE" \
    "$AGENT_SECRET_FILE" "$REGISTRATION" "$SCRATCH"
  was_there_before /root/.kube || rm -rf /root/.kube/cache
  systemctl daemon-reload
  systemctl reset-failed "$SERVICE" 2>/dev/null || true
}

# Removes the folders, and the record last. If a removal is cut off, the record says what is left.
remove_folders() {
  keep=$(sed -n 's/^before //p' "$OWNERSHIP_FILE")
  absent=$(sed -n 's/^absent //p' "$OWNERSHIP_FILE")
  for path in $FOLDERS; do
    if echo "$keep" | grep -qxF "$path"; then continue; fi
    case $path in
      "${OWNERSHIP_FILE%/*}") ;; # see below
      /var/lib/rancher | /root/.kube) rmdir "$path" 2>/dev/null || true ;;
      *) remove_folder "$path" ;;
    esac
  done
  for path in $TOOLKIT; do
    if echo "$absent" | grep -qxF "$path"; then remove_folder "$path"; fi
  done
  if echo "$absent" | grep -qxF "$TOOLKIT_CONFIG" && has_only_toolkits_import; then
    rm -f "$TOOLKIT_CONFIG"
  fi
  for path in $IF_EMPTY; do
    if echo "$absent" | grep -qxF "$path"; then rmdir "$path" 2>/dev/null || true; fi
  done
  rm -f "$OWNERSHIP_FILE" "$OWNERSHIP_FILE.new" "$LOCK"
  echo "$keep" | grep -qxF "${OWNERSHIP_FILE%/*}" || rmdir "${OWNERSHIP_FILE%/*}" 2>/dev/null || true
}

# Whether containerd's configuration has only what the toolkit writes, and nothing of anybody else.
has_only_toolkits_import() {
  [ -f "$TOOLKIT_CONFIG" ] && ! grep -qvxE \
    "version = [0-9]+|imports = \[\"/etc/containerd/conf.d/\*.toml\"\]|" "$TOOLKIT_CONFIG"
}

# Removes a folder, but nothing that is mounted in it: a volume that a pod left mounted may be a shared
# disk.
remove_folder() {
  rm -rf --one-file-system "$1" || echo "$1 stays: something is mounted in it; look yourself"
}

# Whether there is a k3s of this stack to remove. If not, it prints why; in a dry run it prints what would
# be removed, and fails.
removable() {
  if [ ! -e "$OWNERSHIP_FILE" ]; then
    dry || rm -f "$LOCK"
    echo "k3s here was not installed by this program, or is gone already"
    return 1
  fi
  if [ "$(noted_role)" != "$K3S_ROLE" ]; then
    echo "this host has $(noted_role) of this program, not $K3S_ROLE; it is left as it is"
    return 1
  fi
  if [ -n "$(noted node)" ] && [ "$(noted node)" != "${NODE:-}" ]; then
    echo "this host is the node $(noted node) by now, and not $NODE; it is left as it is"
    return 1
  fi
  if other_owner || is_adopted; then
    echo "the k3s of this host belongs to another stack ($(noted stack)); it is left as it is"
    return 1
  fi
  if dry; then
    echo "would remove: k3s $(noted version), $BINARY, $UNIT, $ENVIRONMENT and what k3s made in"
    for path in $FOLDERS; do was_there_before "$path" || echo "  $path"; done
    return 1
  fi
}

take_away() {
  keep_others_paths aside
  refuse_mounted
  run_uninstaller
  remove_rest
  keep_others_paths back
  remove_folders
  echo "k3s is removed"
}
