#!/bin/sh
# create: brings k3s to a version and a configuration, or takes a k3s that is there as it is.
# delete: takes away what create made, and nothing that it did not make.
# Binary and installer are checked against their sha256 before anything of them is used; a second
# create changes nothing; a broken-off one is finished by the next. DRY_RUN=1: only says what
# would change.
# Needs: K3S_VERSION, POD_CIDR, SERVICE_CIDR, NAMESPACE, GRACE_SECONDS; may be empty: K3S_EXISTING
# (refuse or adopt), K3S_SHA256, K3S_INSTALLER_SHA256, K3S_MIRROR, K3S_REGISTRIES, K3S_FORCE (true),
# K3S_BUNDLE (a folder on this host: nothing is downloaded; both sums are given then), K3S_IMAGES
# (lines `sha256 name`: archives in there that k3s is to import), TLS_SAN, HTTP_PROXY, HTTPS_PROXY,
# NO_PROXY, DRY_RUN. Usage: k3s-install.sh create|delete
set -eu
umask 022

: "${K3S_VERSION:?}" "${POD_CIDR:?}" "${SERVICE_CIDR:?}" "${NAMESPACE:?}" "${GRACE_SECONDS:?}"
readonly BINARY=/usr/local/bin/k3s
readonly UNINSTALLER=/usr/local/bin/k3s-uninstall.sh # the installer makes it
readonly UNIT=/etc/systemd/system/k3s.service        # and this
readonly CONFIG=/etc/rancher/k3s/config.yaml
readonly REGISTRIES=/etc/rancher/k3s/registries.yaml
readonly ENVIRONMENT=/etc/default/k3s # the unit reads it; the installer never writes it
readonly OURS=/etc/rancher/disttrain  # what we did; the uninstaller leaves it alone
readonly IMAGES=/var/lib/rancher/k3s/agent/images # k3s imports what lies there as it starts
readonly SCRATCH=/var/lib/rancher/disttrain-scratch
readonly LOCK=/run/disttrain-k3s.lock
readonly API_PORT=6443
readonly READY_SECONDS=300
readonly LOCK_SECONDS=600
readonly MIN_FREE_MIB=512 # the binary, what it unpacks, and the new beside the old
readonly PROXIES='HTTP_PROXY HTTPS_PROXY NO_PROXY'
# What k3s and its tools make on a host. Of these only what was not there before is removed.
readonly FOLDERS='/etc/rancher/k3s /etc/rancher/node /etc/rancher /var/lib/rancher/k3s
/var/lib/rancher /var/lib/kubelet /var/lib/cni /run/k3s /run/flannel /var/log/pods
/var/log/containers /root/.kube'
# What the GPU Operator's toolkit, ended with k3s, leaves: its own, then folders if they are empty.
readonly TOOLKIT='/usr/local/nvidia/toolkit /etc/containerd/conf.d/99-nvidia.toml'
readonly TOOLKIT_FOLDERS='/usr/local/nvidia /etc/containerd/conf.d /etc/containerd'
readonly LINKS='/usr/local/bin/kubectl /usr/local/bin/crictl /usr/local/bin/ctr'

fail() {
  echo "$1" >&2
  exit 1
}

dry() { [ -n "${DRY_RUN:-}" ]; }

architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) fail "no k3s for $(uname -m); there is one for x86_64 and aarch64" ;;
  esac
}

# An earlier `create` may still run, when the program that started it was killed or cut off.
one_at_a_time() {
  dry && return
  command -v flock >/dev/null || fail "flock is missing on this host: install util-linux"
  exec 9>"$LOCK"
  if ! flock -n 9; then
    echo "another run is at work on this host; waiting for it, at most $LOCK_SECONDS s"
    flock -w "$LOCK_SECONDS" 9 || fail "another run still works on this host ($LOCK is locked)"
  fi
}

k3s_kubectl() { # the cache would go to root's home
  KUBECACHEDIR=/run/k3s/disttrain-kubectl "$BINARY" kubectl --request-timeout=15s "$@" </dev/null
}

is_active() { systemctl is-active --quiet k3s; }

# --- before anything is touched ---

foreign() { [ ! -e "$OURS" ] && { [ -e "$BINARY" ] || [ -e "$UNIT" ]; }; }

preflight() {
  [ -d /run/systemd/system ] || fail "k3s is run by systemd, which is not this host's init"
  [ -n "${K3S_BUNDLE:-}" ] || command -v curl >/dev/null ||
    fail "curl is missing on this host: install it"
  for tool in sha256sum awk; do
    command -v "$tool" >/dev/null || fail "$tool is missing on this host: install it"
  done
  if foreign; then
    fail "a k3s that this program did not install is on this host; allowed: k3sExisting: adopt \
(use it as it is), or remove that k3s first"
  fi
  if [ ! -e "$OURS" ] && [ -n "$(ls -A /var/lib/kubelet 2>/dev/null)" ]; then
    fail "/var/lib/kubelet is not empty: another Kubernetes is or was on this host; remove it first"
  fi
  if owner=$(port_owner); then
    fail "port $API_PORT of this host is taken by $owner; k3s' API server needs it"
  fi
}

# Who listens on the API server's port; fails when nobody does, or k3s itself.
port_owner() {
  hex=$(printf '%04X' "$API_PORT")
  inode=$(awk -v port=":$hex" '$4 == "0A" && $2 ~ port "$" { print $10; exit }' \
    /proc/net/tcp /proc/net/tcp6 2>/dev/null)
  [ -n "$inode" ] || return 1
  for fd in /proc/[0-9]*/fd/*; do
    if [ "$(readlink "$fd" 2>/dev/null)" = "socket:[$inode]" ]; then
      pid=${fd#/proc/}
      pid=${pid%%/*}
      if grep -qs 'k3s\.service' "/proc/$pid/cgroup"; then return 1; fi
      echo "process $pid ($(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c 1-80))"
      return
    fi
  done
  echo "a process that cannot be named"
}

free_space() { # for what is not there yet
  for folder in /var/lib/rancher/k3s "${BINARY%/*}"; do
    need=$MIN_FREE_MIB
    case $folder in /var/lib/*) need=$((need + $(images_mib))) ;; esac
    while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
    free=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$need" ] ||
      fail "$folder has $free MiB free; k3s and its images need $need MiB"
  done
}

# Of a bundle's images: the copy, and about twice as much once k3s has unpacked it.
images_mib() {
  echo "${K3S_IMAGES:-}" | while read -r sum name; do
    [ -z "$sum" ] || [ -e "$(image_file "$sum" "$name")" ] || wc -c <"$K3S_BUNDLE/$name"
  done | awk '{ bytes += $1 } END { print int(3 * bytes / 1048576) }'
}

policy_missing() { # SELinux needs k3s' own
  [ -x "$(command -v getenforce)" ] && [ "$(getenforce)" != Disabled ] &&
    ! rpm -q --quiet k3s-selinux
}

# k3s finds its own address by it, also where it leads nowhere.
default_route() {
  awk '$2 == "00000000" && $8 == "00000000" { found = 1 } END { exit !found }' /proc/net/route ||
    awk '$1 ~ /^0+$/ && $2 == "00" && $10 != "lo" { found = 1 } END { exit !found }' \
      /proc/net/ipv6_route 2>/dev/null ||
    fail "this host has no default route, and k3s does not start without one. One that leads \
nowhere is enough: ip link add dummy0 type dummy && ip addr add 203.0.113.254/31 dev dummy0 && \
ip link set dummy0 up && ip route add default via 203.0.113.255 dev dummy0 (docs/airgap.md)"
}

# The installer makes systemd re-read its units, and a restart does more: pods lose their GPUs
# (gpu-operator#485).
guard_gpu_pods() {
  if [ "${K3S_FORCE:-}" = true ] || ! is_active; then
    return
  fi
  # shellcheck disable=SC2016 # the $ are the template's
  running=$(k3s_kubectl get pods --all-namespaces --field-selector=status.phase=Running -o \
    'go-template={{range .items}}{{$n := .metadata}}{{range .spec.containers}}{{with .resources}}{{with .limits}}{{if index . "nvidia.com/gpu"}}{{$n.namespace}}/{{$n.name}} {{end}}{{end}}{{end}}{{end}}{{end}}') ||
    fail "the running k3s cannot be asked for pods with GPUs; allowed: k3sForce: true (go on)"
  [ -z "$running" ] || fail "pods with GPUs run, and would lose them: $running. \
Allowed: wait for them, or k3sForce: true (they are disturbed)"
}

# --- what is wanted ---

release() {
  if [ -n "${K3S_BUNDLE:-}" ]; then
    echo "$K3S_BUNDLE/k3s"
  elif [ -n "${K3S_MIRROR:-}" ]; then
    echo "$K3S_MIRROR/$(echo "$K3S_VERSION" | sed 's/+/%2B/')"
  else
    echo "https://github.com/k3s-io/k3s/releases/download/$(echo "$K3S_VERSION" | sed 's/+/%2B/')"
  fi
}

installer_source() {
  if [ -n "${K3S_BUNDLE:-}${K3S_MIRROR:-}" ]; then
    release
  else
    echo "https://raw.githubusercontent.com/k3s-io/k3s/$(echo "$K3S_VERSION" | sed 's/+/%2B/')"
  fi
}

configuration() {
  echo "write-kubeconfig-mode: \"0600\""
  echo "cluster-cidr: \"$POD_CIDR\""
  echo "service-cidr: \"$SERVICE_CIDR\""
  echo "disable: [traefik, servicelb]"
  [ -z "${TLS_SAN:-}" ] || echo "tls-san: [\"$TLS_SAN\"]"
}

environment() {
  for name in $PROXIES; do
    eval "value=\${$name:-}"
    # shellcheck disable=SC2154 # set by the eval
    [ -z "$value" ] || printf '%s%s="%s"\n' "${PROXY_PREFIX:-}" "$name" "$value"
  done
}

sha256_of() { sha256sum "$1" | cut -d ' ' -f 1; }

noted() { # key
  [ ! -e "$OURS" ] || awk -v key="$1" '$1 == key { print $2 }' "$OURS"
}

note() { # key value
  (umask 077 && { grep -v "^$1 " "$OURS" || true && echo "$1 $2"; } >"$OURS.new")
  mv "$OURS.new" "$OURS"
}

wrong_binary() {
  [ -x "$BINARY" ] && [ "$(noted version)" = "$K3S_VERSION" ] &&
    [ "$(noted binary)" = "${K3S_SHA256:-$(noted binary)}" ] &&
    [ "$(noted binary)" = "$(sha256_of "$BINARY")" ] && return 1
  return 0
}

wrong_service() { # the last note of an install that went through
  [ "$(noted installed)" = "$K3S_VERSION" ] && [ -x "$UNINSTALLER" ] && [ -e "$UNIT" ] &&
    [ "$(noted unit)" = "$(sha256_of "$UNIT")" ] && return 1
  return 0
}

wrong_text() { # file text
  if [ -z "$2" ]; then
    [ -e "$1" ]
  elif [ -e "$1" ] && printf '%s\n' "$2" | cmp -s - "$1"; then
    return 1
  fi
}

# A name carries the content: k3s imports a changed file again only if its size differs too.
image_file() { # sha256 name
  echo "$IMAGES/disttrain-$(echo "$1" | cut -c 1-16)-${2##*/}"
}

wrong_images() { # none wanted: those of before may stay
  [ -n "${K3S_IMAGES:-}" ] || return 1
  images=$(echo "$K3S_IMAGES" | while read -r sum name; do
    file=$(image_file "$sum" "$name")
    [ -e "$file" ] || echo "$file"
  done)
  [ -n "$images" ]
}

# Sets `changes`: what differs from what is wanted, one word each.
compare() {
  changes=""
  if wrong_binary; then changes="$changes binary"; fi
  if wrong_service; then changes="$changes service"; fi
  if wrong_text "$CONFIG" "$(configuration)"; then changes="$changes config.yaml"; fi
  if wrong_text "$REGISTRIES" "${K3S_REGISTRIES:-}"; then changes="$changes registries.yaml"; fi
  if wrong_text "$ENVIRONMENT" "$(environment)"; then changes="$changes environment"; fi
  if wrong_images; then changes="$changes images"; fi
  changes=${changes# }
}

changed() { # word
  case " $changes " in
    *" $1 "*) true ;;
    *) false ;;
  esac
}

# --- changes ---

download() { # url, or a file of the bundle; file
  case $1 in
    /*)
      [ -e "$1" ] || fail "$1 is not there: the bundle is for another architecture, or its files \
are gone from this host (docs/airgap.md)"
      cp "$1" "$2"
      return
      ;;
    https://*) protocol='=https' ;;
    *) protocol='=http,https' ;; # only with both checksums given: infra/settings.py
  esac
  curl --fail --silent --show-error --location --proto "$protocol" --tlsv1.2 \
    --connect-timeout 15 --retry 3 --max-time 900 --speed-limit 1000 --speed-time 60 \
    --output "$2" "$1" || fail "cannot download $1"
}

fetch() { # what, url, file, sha256 or empty, url of the checksum file, name in there
  expected=$4
  if [ -z "$expected" ]; then
    download "$5" "$SCRATCH/sums"
    expected=$(awk -v name="$6" '$2 == name || $2 == "*" name { print $1 }' "$SCRATCH/sums")
    [ -n "$expected" ] || fail "the checksum file $5 names no $6"
  fi
  download "$2" "$3"
  got=$(sha256_of "$3")
  [ "$got" = "$expected" ] ||
    fail "$1 $K3S_VERSION: sha256 of $2 is $got, not $expected; nothing of it was installed"
}

fetch_all() {
  arch=$(architecture) asset=k3s
  [ "$arch" = amd64 ] || asset=k3s-$arch
  if changed binary; then
    if [ -n "${K3S_BUNDLE:-}" ]; then
      echo "taking k3s $K3S_VERSION ($arch) from the bundle"
    else
      echo "downloading k3s $K3S_VERSION ($arch)"
    fi
    fetch k3s "$(release)/$asset" "$SCRATCH/k3s" "${K3S_SHA256:-}" \
      "$(release)/sha256sum-$arch.txt" "$asset"
  fi
  if changed service; then
    fetch "k3s' installer" "$(installer_source)/install.sh" "$SCRATCH/install.sh" \
      "${K3S_INSTALLER_SHA256:-}" "$(installer_source)/install.sh.sha256sum" install.sh
  fi
}

# From here on the host's k3s is ours. What was there before is noted, and stays for ever.
claim() {
  [ ! -e "$OURS" ] || return 0
  before=""
  for path in $FOLDERS $LINKS; do
    if [ -e "$path" ] || [ -L "$path" ]; then before="$before${before:+
}before $path"; fi
  done
  for path in $TOOLKIT $TOOLKIT_FOLDERS; do
    [ -e "$path" ] || before="$before${before:+
}absent $path"
  done
  if ! { mkdir -p "${OURS%/*}" && (umask 077 && printf '# its own k3s, kept by disttrain\n%s\n' \
    "$before" >"$OURS.new") && mv "$OURS.new" "$OURS"; }; then
    rm -f "$OURS.new"
    fail "$OURS cannot be written: is the disk full? Nothing was installed"
  fi
}

was_there_before() { grep -qxF "before $1" "$OURS"; }

place() { # file mode source
  mkdir -p "${1%/*}"
  install -m "$2" "$3" "$1.disttrain-new"
  mv "$1.disttrain-new" "$1" # a running program keeps the old file
}

put() { # file text; readable by root alone
  if [ -z "$2" ]; then
    rm -f "$1"
    return
  fi
  (umask 077 && printf '%s\n' "$2" >"$SCRATCH/text")
  place "$1" 600 "$SCRATCH/text"
}

place_images() {
  mkdir -p "$IMAGES"
  echo "$K3S_IMAGES" | while read -r sum name; do
    file=$(image_file "$sum" "$name")
    [ ! -e "$file" ] || continue
    cp "$K3S_BUNDLE/$name" "$file.disttrain-new" || {
      rm -f "$file.disttrain-new"
      fail "$K3S_BUNDLE/$name cannot be copied to $IMAGES"
    }
    got=$(sha256_of "$file.disttrain-new")
    if [ "$got" != "$sum" ]; then
      rm -f "$file.disttrain-new"
      fail "$name: sha256 is $got, not $sum"
    fi
    chmod 600 "$file.disttrain-new"
    mv "$file.disttrain-new" "$file"
  done
  wanted=$(echo "$K3S_IMAGES" | while read -r sum name; do image_file "$sum" "$name"; done)
  for file in "$IMAGES"/disttrain-*; do # of another bundle, or a copy that was broken off
    echo "$wanted" | grep -qxF "$file" || rm -f "$file"
  done
}

# k3s' own installer writes the unit and the uninstaller. It gets no proxy: it would note it in a
# file of its own, and lose it with the next run.
run_installer() {
  skip=true
  if policy_missing; then
    skip=binary # from the distribution's package manager
  fi
  env -i PATH="$PATH" HOME=/root INSTALL_K3S_VERSION="$K3S_VERSION" \
    INSTALL_K3S_SKIP_DOWNLOAD="$skip" INSTALL_K3S_SKIP_START=true INSTALL_K3S_SYMLINK=skip \
    INSTALL_K3S_BIN_DIR="${BINARY%/*}" INSTALL_K3S_EXEC=server \
    sh "$SCRATCH/install.sh" </dev/null >"$SCRATCH/installer.log" 2>&1 || {
    tail -n 15 "$SCRATCH/installer.log" | cut -c 1-300 >&2
    fail "k3s' installer failed"
  }
  note unit "$(sha256_of "$UNIT")"
}

wait_ready() {
  start=$(date +%s) told=$(date +%s)
  until k3s_kubectl get nodes --no-headers 2>/dev/null | grep -q ' Ready'; do
    now=$(date +%s)
    if systemctl is-failed --quiet k3s || [ $((now - start)) -ge "$READY_SECONDS" ]; then
      journalctl --unit=k3s --lines=20 --no-pager --output=cat | cut -c 1-300 >&2
      fail "k3s did not get its node Ready in $((now - start)) s; its last lines are above"
    fi
    if [ $((now - told)) -ge 20 ]; then
      echo "$((now - start)) s: the node is not Ready yet"
      told=$now
    fi
    sleep 0.5
  done
}

converge() {
  trap 'rm -rf "$SCRATCH"' EXIT
  if changed binary || changed images; then free_space; fi
  default_route
  if [ -n "${K3S_BUNDLE:-}" ] && policy_missing; then
    fail "SELinux is on and the package k3s-selinux is not installed; a bundle does not hold it"
  fi
  rm -rf "$SCRATCH"
  claim
  mkdir -p "$SCRATCH"
  chmod 700 "$SCRATCH"
  fetch_all
  put "$CONFIG" "$(configuration)"
  put "$REGISTRIES" "${K3S_REGISTRIES:-}"
  put "$ENVIRONMENT" "$(environment)"
  if changed binary; then
    # noted first: a binary without its note would be taken for somebody else's
    note version "$K3S_VERSION"
    note binary "$(sha256_of "$SCRATCH/k3s")"
    place "$BINARY" 755 "$SCRATCH/k3s"
  fi
  if changed service; then run_installer; fi
  if changed images; then place_images; fi
  echo "starting k3s (changed: $changes)"
  systemctl restart k3s || {
    journalctl --unit=k3s --lines=20 --no-pager --output=cat | cut -c 1-300 >&2
    fail "k3s did not start; its last lines are above"
  }
}

adopt() {
  [ -x "$BINARY" ] || fail "k3sExisting: adopt, but this host has no $BINARY"
  is_active || fail "k3sExisting: adopt, but the k3s of this host does not run (systemctl status k3s)"
  dry || wait_ready
  range=$(k3s_kubectl get nodes -o 'jsonpath={.items[0].spec.podCIDR}')
  echo "taken as it is: $("$BINARY" --version | head -n 1), pods in $range; it is not ours"
}

create() {
  one_at_a_time
  if [ "${K3S_EXISTING:-}" = adopt ] && [ ! -e "$OURS" ]; then
    adopt
    return
  fi
  preflight
  compare
  if dry; then
    for change in ${changes:-nothing}; do echo "would change: $change"; done
    return
  fi
  if [ -n "$changes" ]; then
    guard_gpu_pods
    converge
  elif ! is_active; then
    systemctl start k3s
  fi
  wait_ready
  if [ "$(noted installed)" != "$K3S_VERSION" ]; then note installed "$K3S_VERSION"; fi
  echo "k3s $K3S_VERSION is up, the node is Ready"
}

# --- removal ---

end_pods() {
  is_active || return 0
  k3s_kubectl delete namespace "$NAMESPACE" --ignore-not-found \
    --timeout="$((GRACE_SECONDS + 60))s" || echo "namespace $NAMESPACE did not go in time"
}

# The uninstaller takes some paths whoever made them: those of before stand aside meanwhile.
aside() { # away or back
  for path in $LINKS /var/lib/cni; do
    if was_there_before "$path"; then
      case $1 in
        away) [ ! -e "$path" ] && [ ! -L "$path" ] || mv "$path" "$path.disttrain-kept" ;;
        back) [ ! -e "$path.disttrain-kept" ] && [ ! -L "$path.disttrain-kept" ] ||
          { rm -rf "$path" && mv "$path.disttrain-kept" "$path"; } ;;
      esac
    fi
  done
}

remove_rest() { # also what an install that was broken off has left
  systemctl disable --quiet --now k3s 2>/dev/null || true
  rm -rf "$UNIT" "$UNIT.env" "$UNIT.d" "$UNINSTALLER" "${BINARY%/*}/k3s-killall.sh" "$BINARY" \
    "$BINARY.disttrain-new" "$ENVIRONMENT" "$CONFIG" "$REGISTRIES" "$SCRATCH" /root/.kube/cache
  systemctl daemon-reload
  systemctl reset-failed k3s 2>/dev/null || true
}

remove_folders() {
  keep=$(grep '^before ' "$OURS" || true)
  absent=$(sed -n 's/^absent //p' "$OURS")
  rm -f "$OURS" "$OURS.new" "$LOCK"
  for path in $FOLDERS; do
    case "
$keep
" in
      *"
before $path
"*) ;;
      *) case $path in
        /etc/rancher | /var/lib/rancher | /root/.kube) rmdir "$path" 2>/dev/null || true ;;
        *) rm -rf "$path" ;;
      esac ;;
    esac
  done
  for path in $TOOLKIT; do
    if echo "$absent" | grep -qxF "$path"; then rm -rf "$path"; fi
  done
  for path in $TOOLKIT_FOLDERS; do
    if echo "$absent" | grep -qxF "$path"; then rmdir "$path" 2>/dev/null || true; fi
  done
}

delete() {
  one_at_a_time
  if [ ! -e "$OURS" ]; then
    dry || rm -f "$LOCK"
    echo "k3s here was not installed by this program, or is gone already"
    return
  fi
  if dry; then
    echo "would remove: k3s $(noted version), $BINARY, $UNIT, $ENVIRONMENT and what k3s made in"
    for path in $FOLDERS; do was_there_before "$path" || echo "  $path"; done
    return
  fi
  end_pods
  if [ -x "$UNINSTALLER" ]; then
    aside away
    "$UNINSTALLER" </dev/null >/run/disttrain-uninstall.log 2>&1 || {
      tail -n 15 /run/disttrain-uninstall.log | cut -c 1-300
      echo "k3s' uninstaller ended with an error; going on"
    }
    rm -f /run/disttrain-uninstall.log
  fi
  remove_rest
  aside back
  remove_folders
  echo "k3s is removed"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
