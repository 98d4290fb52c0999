# shellcheck shell=sh
# Computes what the variables ask for, and how the host differs from that. Needs lib/k3s.sh.
readonly PROXIES='HTTP_PROXY HTTPS_PROXY NO_PROXY'
readonly IMAGES=/var/lib/rancher/k3s/agent/images # k3s imports what lies there as it starts

environment() {
  for name in $PROXIES; do
    eval "value=\${$name:-}"
    # shellcheck disable=SC2154 # set by the eval
    [ -z "$value" ] || printf '%s%s="%s"\n' "${PROXY_PREFIX:-}" "$name" "$value"
  done
}

# The line of config.yaml for the network interface whose address becomes the node's. Without it, k3s
# uses the interface of the default route.
chosen_interface() {
  [ -z "${NODE_INTERFACE:-}" ] || echo "flannel-iface: \"$NODE_INTERFACE\""
}

wrong_binary() {
  [ -x "$BINARY" ] && [ "$(noted version)" = "$K3S_VERSION" ] &&
    [ "$(noted binary)" = "${K3S_SHA256:-$(noted binary)}" ] &&
    [ "$(noted binary)" = "$(sha256_of "$BINARY")" ] && return 1
  return 0
}

# Containers inherit the limits of k3s. An RDMA device needs pinned memory, of which systemd allows 8 MiB.
limits() { printf '[Service]\nLimitMEMLOCK=infinity'; }

# Older versions have not set the limits. They are set when something else about the service changes, so
# that k3s is not restarted because of them alone.
wrong_limits() { [ -n "$(noted limits)" ] && wrong_text "$LIMITS" "$(limits)"; }

wrong_service() { # the last note of an install that went through
  [ "$(noted installed)" = "$K3S_VERSION" ] && [ -x "$UNINSTALLER" ] && [ -e "$UNIT" ] &&
    [ "$(noted unit)" = "$(sha256_of "$UNIT")" ] && ! wrong_limits && return 1
  return 0
}

wrong_text() { # file text; minimal systems have no `cmp`
  if [ -z "$2" ]; then
    [ -e "$1" ]
  elif [ -e "$1" ] && [ "$(cat "$1" && echo x)" = "$(printf '%s\nx' "$2")" ]; then
    return 1
  fi
}

# Path of an archive of images. It contains the checksum, because k3s imports a changed file with the
# same name again only if its size differs too.
image_file() { # sha256 name
  echo "$IMAGES/disttrain-$(echo "$1" | cut -c 1-16)-${2##*/}"
}

wrong_images() { # where none are asked for, those of before may stay
  [ -n "${K3S_IMAGES:-}" ] || return 1
  images=$(echo "$K3S_IMAGES" | while read -r sum name; do
    file=$(image_file "$sum" "$name")
    [ -e "$file" ] || echo "$file"
  done)
  [ -n "$images" ]
}

# Whether k3s was started with other authorities than those of the host now. containerd reads them once,
# when k3s starts. Older versions have not recorded them; then it is not known, and counts as no change.
wrong_authorities() {
  [ -n "${AUTHORITIES:-}" ] && [ -n "$(noted authorities)" ] &&
    [ "$(noted authorities)" != "$AUTHORITIES" ]
}

# Sets `changes` to what differs from what is wanted, with one word for each difference.
compare() {
  changes=""
  if wrong_binary; then changes="$changes binary"; fi
  if wrong_service; then changes="$changes service"; fi
  if wrong_text "$CONFIG" "$(configuration)"; then changes="$changes config.yaml"; fi
  if wrong_text "$REGISTRIES" "${K3S_REGISTRIES:-}"; then changes="$changes registries.yaml"; fi
  if wrong_text "$ENVIRONMENT" "$(environment)"; then changes="$changes environment"; fi
  if wrong_authorities; then changes="$changes authorities"; fi
  if wrong_images; then changes="$changes images"; fi
  if wrong_files_of_role; then changes="$changes $files_of_role"; fi
  if [ "$(noted unfinished)" = yes ] && is_active; then changes="$changes restart"; fi
  changes=${changes# }
}

changed() { # word
  case " $changes " in
    *" $1 "*) true ;;
    *) false ;;
  esac
}
