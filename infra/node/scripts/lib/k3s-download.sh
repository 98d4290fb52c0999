# shellcheck shell=sh
# Gets k3s and its installer from the network or from a bundle, and compares their sha256 before
# anything of them is used. Needs lib/k3s.sh.
readonly SCRATCH=/var/lib/rancher/disttrain-scratch

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

download() { # URL or a file of the bundle; file
  case $1 in
    /*)
      [ -e "$1" ] || fail "$1 is not there: the bundle is for another architecture, or its files \
are gone from this host (docs/airgap.md)"
      cp "$1" "$2"
      return
      ;;
    https://*) protocol='=https' ;;
    *) protocol='=http,https' ;; # the settings allow it only with both checksums given
  esac
  # For an http address, curl reads the name in lower case alone.
  http_proxy="${HTTP_PROXY:-}" curl --fail --silent --show-error --location --proto "$protocol" --tlsv1.2 \
    --connect-timeout 15 --retry 3 --max-time 900 --speed-limit 1000 --speed-time 60 \
    --stderr "$SCRATCH/curl-says" --output "$2" "$1" 9>&- && return
  # If curl cannot read the address of a proxy, it prints the address with its password.
  sed 's#://[^/]*@#://[secret]@#g' "$SCRATCH/curl-says" >&2
  fail "cannot download $1"
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

fetch_binary() {
  arch=$(architecture) asset=k3s
  [ "$arch" = amd64 ] || asset=k3s-$arch
  if [ -n "${K3S_BUNDLE:-}" ]; then
    echo "taking k3s $K3S_VERSION ($arch) from the bundle"
  else
    echo "downloading k3s $K3S_VERSION ($arch)"
  fi
  fetch k3s "$(release)/$asset" "$SCRATCH/k3s" "${K3S_SHA256:-}" \
    "$(release)/sha256sum-$arch.txt" "$asset"
}

fetch_installer() {
  fetch "k3s' installer" "$(installer_source)/install.sh" "$SCRATCH/install.sh" \
    "${K3S_INSTALLER_SHA256:-}" "$(installer_source)/install.sh.sha256sum" install.sh
}
