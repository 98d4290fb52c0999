# shellcheck shell=sh
# Installs, changes and repairs k3s, or adopts it. Needs the other files of k3s-install.sh.
readonly READY_SECONDS=300

# A k3s that runs or is about to start is stopped first: then no kubelet of before can renew the
# node's lease after the time that is noted here.
start_k3s() {
  systemctl stop k3s || fail "systemd could not stop k3s; its words are above"
  started=$(date -u +%Y-%m-%dT%H:%M:%S.%6N)
  systemctl start k3s || {
    journalctl --unit=k3s --lines=20 --no-pager --output=cat | cut -c 1-300 >&2
    fail "k3s did not start; its last lines are above"
  }
}

# After a start, a node that was Ready before is still called Ready for a while: the kubelet must
# have renewed its lease since. The times are all of this host, in microseconds, and compare as text.
is_ready() {
  k3s_kubectl get nodes --no-headers 2>/dev/null | grep -q ' Ready' || return 1
  [ -n "${started:-}" ] || return 0
  renewed=$(k3s_kubectl -n kube-node-lease get leases \
    -o 'jsonpath={range .items[*]}{.spec.renewTime}{"\n"}{end}' 2>/dev/null | sort | tail -n 1)
  [ -n "$renewed" ] &&
    [ "$(printf '%s\n%s\n' "$started" "$renewed" | sort | head -n 1)" = "$started" ]
}

wait_ready() {
  start=$(date +%s) shown=$(date +%s)
  until is_ready; do
    now=$(date +%s)
    if systemctl is-failed --quiet k3s || [ $((now - start)) -ge "$READY_SECONDS" ]; then
      journalctl --unit=k3s --lines=20 --no-pager --output=cat | cut -c 1-300 >&2
      fail "k3s did not get its node Ready in $((now - start)) s; its last lines are above"
    fi
    if [ $((now - shown)) -ge 20 ]; then
      echo "$((now - start)) s: the node is not Ready yet"
      shown=$now
    fi
    sleep 0.5
  done
}

open_scratch() {
  trap 'rm -rf "$SCRATCH"' EXIT
  rm -rf "$SCRATCH"
  mkdir -p "$SCRATCH"
  chmod 700 "$SCRATCH"
}

# A running k3s whose binary is gone or damaged keeps running on it: it gets another one of the same
# version without a restart, and can be asked for its pods again.
repair_binary() {
  free_space
  open_scratch
  fetch_binary
  place_binary
  compare
}

place_binary() {
  # noted first: a binary without its note would be taken for somebody else's
  note version "$K3S_VERSION"
  note binary "$(sha256_of "$SCRATCH/k3s")"
  place "$BINARY" 755 "$SCRATCH/k3s"
}

converge() {
  if changed binary || changed images; then free_space; fi
  default_route
  if [ -n "${K3S_BUNDLE:-}" ] && policy_missing; then
    fail "SELinux is on and the package k3s-selinux is not installed; a bundle does not hold it"
  fi
  record_ownership
  note_owner
  open_scratch
  if changed binary; then fetch_binary; fi
  if changed service; then fetch_installer; fi
  put "$CONFIG" "$(configuration)"
  put "$REGISTRIES" "${K3S_REGISTRIES:-}"
  put "$ENVIRONMENT" "$(environment)"
  if changed binary; then place_binary; fi
  if changed service; then run_installer; fi
  if changed images; then place_images; fi
  echo "starting k3s (changed: $changes)"
  start_k3s
}

note_owner() {
  [ -z "${OWNER:-}" ] || [ -n "$(noted owner)" ] || note owner "$OWNER"
  [ -z "${STACK:-}" ] || [ "$(noted stack)" = "$STACK" ] || note stack "$STACK"
}

# What k3s-look.sh compares with at the next preview.
note_state() {
  note_owner
  if [ "$(noted installed)" != "$K3S_VERSION" ]; then note installed "$K3S_VERSION"; fi
  files=$(installed_files)
  if [ "$(noted files)" != "$files" ]; then note files "$files"; fi
  if [ "$(noted repair)" != "${REPAIR_ID:-}" ]; then
    # with another repair the kubeconfig is fetched again, and only then it is the noted one
    note repair "${REPAIR_ID:-}"
    note kubeconfig "$(kubeconfig_sum)"
  fi
}

note_generation() {
  [ -n "${GENERATION_ID:-}" ] || return 0
  if [ "$(noted generation)" = "$GENERATION_ID" ] && has_noted_data; then return; fi
  mkdir -p "${GENERATION_FILE%/*}"
  (umask 077 && echo "$GENERATION_ID" >"$GENERATION_FILE.new")
  mv "$GENERATION_FILE.new" "$GENERATION_FILE"
  note generation "$GENERATION_ID"
}

adopt() {
  [ -x "$BINARY" ] || fail "k3sExisting: adopt, but this host has no $BINARY"
  is_active || fail "k3sExisting: adopt, but the k3s of this host does not run (systemctl status k3s)"
  dry || wait_ready
  range=$(k3s_kubectl get nodes -o 'jsonpath={.items[0].spec.podCIDR}')
  echo "taken as it is: $("$BINARY" --version | head -n 1), pods in $range; it is not ours"
}

bring_to_version() {
  preflight
  compare
  if dry; then
    for change in ${changes:-nothing}; do echo "would change: $change"; done
    return
  fi
  if changed binary && is_active && [ "$(noted version)" = "$K3S_VERSION" ]; then repair_binary; fi
  if [ -n "$changes" ]; then
    guard_gpu_pods
    converge
  elif ! is_active; then
    echo "k3s was stopped; starting it"
    start_k3s
  fi
  wait_ready
}

create() {
  one_at_a_time
  if is_adopted; then
    adopt
    return
  fi
  bring_to_version
  if dry; then return; fi
  note_state
  note_generation
  echo "k3s $K3S_VERSION is up, the node is Ready"
}

update() {
  one_at_a_time
  if is_adopted; then
    adopt
    return
  fi
  if [ -n "$(noted generation)" ] && ! has_noted_data; then
    fail "the data of k3s on this host were wiped while this up was at work, or this host could \
not be asked before; run pulumi up again: it makes what was in them anew"
  fi
  bring_to_version
  if dry; then return; fi
  note_state
  echo "k3s $K3S_VERSION is up, the node is Ready"
}
