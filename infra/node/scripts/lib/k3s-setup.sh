# shellcheck shell=sh
# Installs, changes and repairs k3s, as a server or as an agent. lib/k3s-server.sh,
# lib/k3s-further-server.sh and lib/k3s-agent.sh contain what differs. Needs the other files that
# k3s-install.sh includes.

# Fails if k3s' own unit would not start k3s because nm-cloud-setup of NetworkManager is enabled, as in
# images of the RHEL family for clouds. Older installers of k3s, such as that of v1.34.1, write such a unit.
# systemd would only show the command that the unit runs for it.
refuse_cloud_setup() {
  grep -qs nm-cloud-setup "$UNIT" && systemctl is-enabled --quiet nm-cloud-setup.service 2>/dev/null ||
    return 0
  fail "the service nm-cloud-setup of this host is enabled, and k3s $K3S_VERSION does not start beside it: \
with NetworkManager before 1.32 it disturbs the network of pods. Disable it, and run pulumi up again: \
systemctl disable --now nm-cloud-setup.timer nm-cloud-setup.service (with such a NetworkManager also \
reboot). If this host needs the service for further addresses of its own, set a newer k3sVersion"
}

# Starts k3s, and sets `started` to the time. A k3s that runs or is about to start is stopped first. So
# the previous kubelet cannot renew the node's lease after that time.
start_k3s() {
  refuse_cloud_setup
  systemctl stop "$SERVICE" || fail "systemd could not stop k3s; its words are above"
  [ "$(noted unfinished)" != yes ] || note unfinished no
  started=$(date -u +%Y-%m-%dT%H:%M:%S.%6N)
  # shellcheck disable=SC2086 # empty, or one word
  systemctl start ${START_OPTION:-} "$SERVICE" || {
    journalctl --unit="$SERVICE" --lines=20 --no-pager --output=cat | cut -c 1-300 >&2
    fail "k3s did not start; its last lines are above"
  }
}

open_scratch() {
  trap 'rm -rf "$SCRATCH"' EXIT
  rm -rf "$SCRATCH"
  mkdir -p "$SCRATCH"
  chmod 700 "$SCRATCH"
}

# Replaces a missing or damaged binary. A running k3s goes on with the old one, so it gets another binary
# of the same version without a restart. After that it can be asked for its pods again.
repair_binary() {
  free_space
  open_scratch
  fetch_binary
  put_binary
  compare
}

put_binary() {
  # The record comes first: a binary without a record would count as somebody else's.
  note version "$K3S_VERSION"
  note binary "$(sha256_of "$SCRATCH/k3s")"
  replace_file "$BINARY" 755 "$SCRATCH/k3s"
  # The package k3s-selinux gives the binary a type of its own in SELinux. k3s' installer sets it only when
  # it runs, which a new binary alone does not need.
  ! command -v restorecon >/dev/null || restorecon "$BINARY"
}

# Brings everything to the host, but does not start k3s.
lay_out() {
  if changed binary || changed images; then free_space; fi
  default_route
  named_interface
  if [ -n "${K3S_BUNDLE:-}" ] && policy_missing; then
    fail "SELinux is on and the package k3s-selinux is not installed; a bundle does not hold it"
  fi
  record_ownership
  note_owner
  open_scratch
  if changed binary; then fetch_binary; fi
  if changed service; then fetch_installer; fi
  note unfinished yes # until k3s has stopped, a k3s that runs does not know what is written here
  put "$CONFIG" "$(configuration)"
  put "$REGISTRIES" "${K3S_REGISTRIES:-}"
  put "$ENVIRONMENT" "$(environment)"
  put_files_of_role
  if changed binary; then put_binary; fi
  if changed service; then run_installer; fi
  if changed images; then put_images; fi
}

converge() {
  lay_out
  echo "starting k3s (changed: $changes)"
  start_k3s
}

note_owner() {
  [ -z "${OWNER:-}" ] || [ -n "$(noted owner)" ] || note owner "$OWNER"
  [ -z "${STACK:-}" ] || [ "$(noted stack)" = "$STACK" ] || note stack "$STACK"
  [ -z "${WAY:-}" ] || [ "$(noted way)" = "$WAY" ] || note way "$WAY"
  [ -z "${HOST:-}" ] || [ "$(noted host)" = "$HOST" ] || note host "$HOST"
  [ "$(noted_role)" = "$K3S_ROLE" ] || note service "$K3S_ROLE"
  [ "$(noted node)" = "${NODE:-}" ] || note node "${NODE:-}"
}

# Records the state with which k3s-look.sh compares the host at the next preview.
note_state() {
  note_owner
  if [ "$(noted installed)" != "$K3S_VERSION" ]; then note installed "$K3S_VERSION"; fi
  authorities=${AUTHORITIES:-none}
  if [ "$(noted authorities)" != "$authorities" ]; then note authorities "$authorities"; fi
  files=$(installed_files)
  if [ "$(noted files)" != "$files" ]; then note files "$files"; fi
  if [ "$(noted repair)" != "${REPAIR_ID:-}" ]; then
    # With a new repair id the kubeconfig is fetched again. Only then its checksum is recorded.
    note repair "${REPAIR_ID:-}"
    note kubeconfig "$(kubeconfig_sum)"
  fi
}

# Refuses to change k3s under pods with GPUs, and says what would change. After an update of this program's
# checkout, its default may be a newer k3s, which the user has not asked for.
fail_for_gpu_pods() { # where, pods
  stay=""
  [ "$(noted installed)" = "$K3S_VERSION" ] || [ -z "$(noted installed)" ] ||
    stay=" To stay with the k3s of now: pulumi config set k3sVersion $(noted installed)"
  fail "k3s would be changed ($changes), and pods with GPUs run$1, and would lose them: ${2% }. Let \
their runs save and end: ./disttrain stop (pulumi up resumes them), or wait for their end. Or disturb them: \
pulumi config set k3sForce true.$stay"
}

bring_to_version() {
  preflight
  compare
  if dry; then
    for change in ${changes:-nothing}; do echo "would change: $change"; done
    return
  fi
  # A removal that was cut off has left them aside. A k3s that runs uses what it has made there since.
  [ ! -e "$OWNERSHIP_FILE" ] || is_active || keep_others_paths back
  if changed binary && is_active && [ "$(noted version)" = "$K3S_VERSION" ]; then repair_binary; fi
  if [ -n "$changes" ]; then
    guard_gpu_pods
    converge
  elif ! is_active; then
    echo "k3s is not up; starting it anew"
    start_k3s
  elif [ -n "${NODE_MISSING:-}" ]; then
    echo "the cluster has no node $NODE; starting k3s anew, which makes it"
    start_k3s
  elif certificates_have_ended; then
    echo "the cluster refuses the certificates of this machine; starting k3s anew, which renews them"
    start_k3s
  fi
}
