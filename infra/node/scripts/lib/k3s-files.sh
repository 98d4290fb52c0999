# shellcheck shell=sh
# Writes the files of k3s to the host. Needs lib/k3s.sh, lib/k3s-wanted.sh, lib/k3s-download.sh.

# The folders that k3s and its tools make on a host. Those that were there before are not removed.
readonly FOLDERS='/etc/rancher/k3s /etc/rancher/node /etc/rancher /var/lib/rancher/k3s
/var/lib/rancher /var/lib/kubelet /var/lib/cni /run/k3s /run/flannel /var/log/pods
/var/log/containers /root/.kube'
# What the GPU Operator leaves on the host, because it ends together with k3s: the files of its toolkit,
# and a configuration of containerd that imports one of them. The toolkit makes that configuration if
# there is none.
readonly TOOLKIT='/usr/local/nvidia/toolkit /etc/containerd/conf.d/99-nvidia.toml'
readonly TOOLKIT_CONFIG=/etc/containerd/config.toml
# Folders that the toolkit, the node feature discovery and the kubelet leave, the inner ones first. They
# are removed if they are empty.
readonly FEATURES=/etc/kubernetes/node-feature-discovery
readonly IF_EMPTY="/usr/local/nvidia /etc/containerd/conf.d /etc/containerd
$FEATURES/features.d $FEATURES/source.d $FEATURES /etc/kubernetes
/usr/libexec/kubernetes/kubelet-plugins/volume/exec /usr/libexec/kubernetes/kubelet-plugins/volume
/usr/libexec/kubernetes/kubelet-plugins /usr/libexec/kubernetes /usr/libexec"
readonly LINKS='/usr/local/bin/kubectl /usr/local/bin/crictl /usr/local/bin/ctr'

readonly POLICY=k3s-selinux # the package with k3s' rules for SELinux
# Where package managers find the repository of this package. k3s' uninstaller deletes these files.
readonly REPOSITORIES='/etc/yum.repos.d/rancher-k3s-common.repo /etc/zypp/repos.d/rancher-k3s-common.repo'
has_policy() { command -v rpm >/dev/null && rpm -q --quiet "$POLICY"; }

# Records that the k3s of this host belongs to this program from now on. It also records which paths
# exist already, so that they are not removed with k3s.
record_ownership() {
  [ ! -e "$OWNERSHIP_FILE" ] || return 0
  before=""
  for path in $FOLDERS $LINKS $REPOSITORIES; do
    if [ -e "$path" ] || [ -L "$path" ]; then before="$before${before:+
}before $path"; fi
  done
  if has_policy; then before="$before${before:+
}before $POLICY"; fi
  for path in $TOOLKIT $TOOLKIT_CONFIG $IF_EMPTY; do
    [ -e "$path" ] || before="$before${before:+
}absent $path"
  done
  if ! { mkdir -p "${OWNERSHIP_FILE%/*}" &&
    (umask 077 && printf '# its own k3s, kept by disttrain\n%s\n' "$before" \
      >"$OWNERSHIP_FILE.new") && sync "$OWNERSHIP_FILE.new" &&
    mv "$OWNERSHIP_FILE.new" "$OWNERSHIP_FILE"; }; then
    rm -f "$OWNERSHIP_FILE.new"
    fail "$OWNERSHIP_FILE cannot be written: is the disk full? Nothing was installed"
  fi
}

replace_file() { # file mode source
  mkdir -p "${1%/*}"
  install -m "$2" "$3" "$1.disttrain-new"
  mv "$1.disttrain-new" "$1" # a running program keeps the old file
}

put() { # file text; readable by root alone
  if [ -z "$2" ]; then
    rm -f "$1"
  elif wrong_text "$1" "$2"; then
    (umask 077 && printf '%s\n' "$2" >"$SCRATCH/text")
    replace_file "$1" 600 "$SCRATCH/text"
  fi
}

put_images() {
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
    sync "$file.disttrain-new"
    mv "$file.disttrain-new" "$file"
  done
  wanted=$(echo "$K3S_IMAGES" | while read -r sum name; do image_file "$sum" "$name"; done)
  for file in "$IMAGES"/disttrain-*; do # of another bundle, or a copy that was broken off
    echo "$wanted" | grep -qxF "$file" || rm -f "$file"
  done
}

# Runs k3s' own installer, which writes the systemd unit and the uninstaller, and lets systemd read them
# with the limits. It gets the proxies only if it has to install the package for SELinux. Then it also
# writes them into the unit's own file, where they would stay when the settings change, so that file is
# emptied.
run_installer() {
  put "$LIMITS" "$(limits)"
  skip=true exports=""
  if policy_missing; then
    skip=binary exports=$(proxies_for_packages)
  fi
  printf '%s\n' "$exports" >"$SCRATCH/proxies"
  # shellcheck disable=SC2016 # the shell that env starts expands the arguments
  env -i PATH="$PATH" HOME=/root INSTALL_K3S_VERSION="$K3S_VERSION" \
    INSTALL_K3S_SKIP_DOWNLOAD="$skip" INSTALL_K3S_SKIP_START=true INSTALL_K3S_SYMLINK=skip \
    INSTALL_K3S_BIN_DIR="${BINARY%/*}" INSTALL_K3S_EXEC="$K3S_EXEC" \
    sh -c '. "$1"; exec sh "$2"' sh "$SCRATCH/proxies" "$SCRATCH/install.sh" \
    </dev/null >"$SCRATCH/installer.log" 2>&1 || {
    tail -n 15 "$SCRATCH/installer.log" | cut -c 1-300 | sed 's#://[^/]*@#://[secret]@#g' >&2
    fail "k3s' installer failed"
  }
  [ -z "$exports" ] || : >"$UNIT.env"
  note unit "$(sha256_of "$UNIT")"
  note limits set
}

# Prints lines for a shell that export the proxies. dnf and zypper read the names in lower case.
proxies_for_packages() {
  for name in $PROXIES; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || printf "export %s='%s'\n" "$(echo "$name" | tr '[:upper:]' '[:lower:]')" \
      "$(printf '%s' "$value" | sed "s/'/'\\\\''/g")"
  done
}
