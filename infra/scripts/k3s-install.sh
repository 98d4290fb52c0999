#!/bin/sh
# create: installs or upgrades k3s from a checksummed binary, without the curl-to-shell installer.
# delete: takes away what create made, and nothing that it did not make.
# Needs: K3S_VERSION, POD_CIDR, SERVICE_CIDR, NAMESPACE, GRACE_SECONDS; may be empty: K3S_SHA256,
# TLS_SAN, HTTP_PROXY, HTTPS_PROXY, NO_PROXY. Usage: k3s-install.sh create|delete
set -eu

: "${K3S_VERSION:?}" "${POD_CIDR:?}" "${SERVICE_CIDR:?}" "${NAMESPACE:?}" "${GRACE_SECONDS:?}"
readonly BINARY=/usr/local/bin/k3s
readonly UNIT=/etc/systemd/system/k3s.service
readonly CONFIG=/etc/rancher/k3s/config.yaml
readonly ENVIRONMENT=/etc/default/k3s # the unit reads it; nothing of k3s writes it
readonly OURS=/etc/rancher/k3s/.installed-by-disttrain
readonly READY_SECONDS=300
readonly PROXIES='HTTP_PROXY HTTPS_PROXY NO_PROXY'

fail() {
  echo "$1" >&2
  exit 1
}

preflight() {
  [ -d /run/systemd/system ] || fail "k3s is run by systemd, which is not this host's init"
  if [ -e "$BINARY" ] && [ ! -e "$OURS" ]; then
    fail "$BINARY was not installed by this program: use cluster: existing, or remove that k3s"
  fi
}

architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) fail "no k3s for $(uname -m)" ;;
  esac
}

download() { # url file
  curl --fail --silent --show-error --location --proto '=https' --tlsv1.2 \
    --connect-timeout 15 --retry 3 --max-time 600 --output "$2" "$1" || fail "cannot download $1"
}

is_checksum() { # file sha256
  [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$2" ]
}

install_binary() {
  arch=$(architecture) asset=k3s
  [ "$arch" = amd64 ] || asset=k3s-$arch
  release=https://github.com/k3s-io/k3s/releases/download/$(echo "$K3S_VERSION" | sed 's/+/%2B/')
  if [ -x "$BINARY" ] && "$BINARY" --version | grep -qF "k3s version $K3S_VERSION " &&
    { [ -z "${K3S_SHA256:-}" ] || is_checksum "$BINARY" "$K3S_SHA256"; }; then
    return
  fi
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  expected=${K3S_SHA256:-}
  if [ -z "$expected" ]; then
    download "$release/sha256sum-$arch.txt" "$scratch/sums"
    expected=$(awk -v name="$asset" '$2 == name { print $1 }' "$scratch/sums")
    [ -n "$expected" ] || fail "the release's checksum file names no $asset"
  fi
  echo "downloading k3s $K3S_VERSION ($arch)"
  download "$release/$asset" "$scratch/k3s"
  is_checksum "$scratch/k3s" "$expected" ||
    fail "k3s $K3S_VERSION: the download's sha256 is not $expected; nothing was installed"
  mkdir -p "${OURS%/*}"
  touch "$OURS"
  install -m 755 "$scratch/k3s" "$BINARY.new"
  mv "$BINARY.new" "$BINARY" # a running k3s keeps the old file
  changed=binary
}

# Makes a file hold a text, readable by root alone.
put() { # file text
  mkdir -p "${1%/*}"
  (umask 077 && printf '%s\n' "$2" >"$1.new")
  if cmp -s "$1.new" "$1"; then
    rm "$1.new"
  else
    mv "$1.new" "$1"
    changed=$changed,${1##*/}
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

unit() {
  cat <<END
[Unit]
Description=Kubernetes (k3s), installed by disttrain
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
EnvironmentFile=-$ENVIRONMENT
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=$BINARY server
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
END
}

wait_ready() {
  start=$(date +%s) told=$(date +%s)
  until "$BINARY" kubectl get nodes --no-headers 2>/dev/null | grep -q ' Ready'; do
    now=$(date +%s)
    if [ $((now - start)) -ge "$READY_SECONDS" ]; then
      journalctl --unit=k3s --lines=20 --no-pager --output=cat | cut -c 1-300 >&2
      fail "waited $READY_SECONDS s for the node to be Ready"
    fi
    if [ $((now - told)) -ge 20 ]; then
      echo "$((now - start)) s: the node is not Ready yet"
      told=$now
    fi
    sleep 1
  done
  echo "k3s $K3S_VERSION is up, the node is Ready"
}

create() {
  preflight
  changed=""
  install_binary
  put "$CONFIG" "$(configuration)"
  put "$ENVIRONMENT" "$(environment)"
  put "$UNIT" "$(unit)"
  case $changed in *k3s.service*) systemctl daemon-reload ;; esac
  systemctl enable --quiet k3s
  if [ -n "$changed" ]; then
    echo "starting k3s (changed: ${changed#,})"
    systemctl restart k3s
  else
    systemctl start k3s
  fi
  wait_ready
}

end_pods() {
  "$BINARY" kubectl delete namespace "$NAMESPACE" --ignore-not-found --request-timeout=15s \
    --timeout="$((GRACE_SECONDS + 60))s" </dev/null || echo "namespace $NAMESPACE did not go in time"
}

# Pods outlive k3s on purpose (KillMode=process): their shims run from k3s' data folder.
end_shims() {
  for exe in /proc/[0-9]*/exe; do
    case $(readlink "$exe" 2>/dev/null) in
      /var/lib/rancher/k3s/data/*/bin/containerd-shim*)
        pid=${exe#/proc/}
        pid=${pid%/exe}
        # shellcheck disable=SC2046 # one pid per word
        kill -9 "$pid" $(cat "/proc/$pid/task/"*/children 2>/dev/null) 2>/dev/null || true
        ;;
    esac
  done
}

remove_mounts() {
  awk '$2 ~ "^/(run/k3s|var/lib/rancher/k3s|var/lib/kubelet|run/netns/cni-)" { print $2 }' \
    /proc/self/mounts | sort -r | while read -r mount; do
    umount "$mount" || umount -l "$mount" || true
  done
}

remove_network() {
  for link in cni0 flannel.1 flannel-v6.1 kube-ipvs0; do
    ip link delete "$link" 2>/dev/null || true
  done
  for tool in iptables ip6tables; do
    command -v "$tool-save" >/dev/null || continue
    "$tool-save" | grep -v -e KUBE- -e CNI- -e flannel | "$tool-restore" || true
  done
}

delete() {
  if [ ! -e "$OURS" ]; then
    echo "k3s here was not installed by this program, or is gone already"
    return
  fi
  end_pods
  systemctl disable --quiet --now k3s || true
  end_shims
  remove_mounts
  remove_network
  rm -rf "$UNIT" "$ENVIRONMENT" /etc/rancher/k3s /etc/rancher/node /run/k3s /run/flannel \
    /var/lib/rancher/k3s /var/lib/kubelet /var/lib/cni /etc/cni/net.d/10-flannel.conflist "$BINARY"
  systemctl daemon-reload
  echo "k3s is removed"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
