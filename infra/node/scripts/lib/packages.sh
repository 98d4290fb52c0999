# shellcheck shell=sh
# Installs a package of the distribution with what it needs, and removes exactly that again.
# Needs: NOTES (a folder of this program), REMAINS (files and empty folders that the packages leave
# behind, each folder after its files) and the function `fail`. May be empty: HTTP_PROXY, HTTPS_PROXY,
# NO_PROXY (the proxies for downloading packages).
readonly OURS="$NOTES/packages"             # those that came with ours, one a line
readonly THERE="$NOTES/there"               # of REMAINS what was there before
readonly CONFIGURED="$NOTES/configurations" # of these the configuration alone was there before
readonly DPKG_SECONDS=300                    # how long another program may be at work with packages

package_manager() {
  for manager in apt-get dnf zypper; do
    command -v "$manager" >/dev/null || continue
    echo "$manager"
    return
  done
  fail "this host has none of apt-get, dnf and zypper: install an NFS server and its client there \
by hand, and run pulumi up again"
}

# Runs a command with the proxies. apt, dnf and zypper read the names in lower case. Their output may
# contain an address with a password. The variables are not arguments of `env`, because every user of the
# host can see command lines.
with_proxy() {
  http_proxy="${HTTP_PROXY:-}" https_proxy="${HTTPS_PROXY:-}" no_proxy="${NO_PROXY:-}" \
    DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 "$@" </dev/null 2>&1 9>&-
}

# Installs without removing any package, and without the recommended ones.
apt_install() {
  with_proxy apt-get -q -y -o DPkg::Lock::Timeout="$DPKG_SECONDS" --no-install-recommends --no-remove install "$@"
}

# Prints the packages that apt would install. Packages that it would only upgrade are left out: their
# lines have the old version in brackets.
apt_plan() { apt_install --simulate "$1" | sed -n 's/^Inst \([^ ]*\) (.*/\1/p'; }

packages_in() { # state, as dpkg shortens it
  dpkg-query -W -f '${db:Status-Abbrev}|${Package}\n' | awk -F '|' -v state="$1" '$1 ~ "^" state { print $2 }'
}

# The planned packages are recorded first, so that an interrupted installation can be removed too.
install_by_apt() { # package
  for try in 1 2; do
    planned=$(apt_plan "$1")
    if [ -n "$planned" ]; then
      echo "$planned" | add_to "$OURS"
      packages_in rc | grep -xF "$planned" | add_to "$CONFIGURED"
      apt_install "$1" && return
    fi
    # A fresh machine's list of packages is empty, and an old list names packages that are gone.
    [ "$try" = 2 ] || with_proxy apt-get -q -o DPkg::Lock::Timeout="$DPKG_SECONDS" update || return
  done
  apt_install "$1"
}

# Prints the names of all packages. A repository's key (gpg-pubkey) is listed too, but is no package.
rpm_names() {
  all=$(rpm -qa --queryformat '%{NAME}\n') || return 1
  echo "$all" | grep -vx gpg-pubkey | sort -u
}

install_by_rpm() { # words of the manager, and the package
  rpm_names >"$NOTES/then" || return # all packages would count as ours
  with_proxy "$@" || installed=$?
  rpm_names | comm -13 "$NOTES/then" - | add_to "$OURS"
  rm -f "$NOTES/then"
  return "${installed:-0}"
}

add_to() { # file; names on standard input
  cat - "$1" 2>/dev/null | sort -u >"$1.new"
  sync "$1.new" # see lib/k3s.sh
  mv "$1.new" "$1"
}

install_package() { # its name for apt, for dnf, for zypper
  manager=$(package_manager)
  mkdir -p "$NOTES"
  [ -e "$THERE" ] || for path in $REMAINS; do
    [ ! -e "$path" ] || echo "$path"
  done >"$THERE"
  case $manager in
    apt-get) package=$1 && set -- install_by_apt "$1" ;;
    dnf) package=$2 && set -- install_by_rpm dnf -q -y --setopt=install_weak_deps=False install "$2" ;;
    zypper)
      package=$3
      set -- install_by_rpm zypper --quiet --non-interactive install --no-recommends "$3"
      ;;
  esac
  echo "installing $package by $manager"
  "$@" >"$NOTES/says" || {
    tail -n 15 "$NOTES/says" | cut -c 1-300 | sed 's#://[^/]*@#://[secret]@#g' >&2
    fail "$manager cannot install $package, which the setting storage needs on this host. Mend what \
it says, or install the package by hand, and run pulumi up again"
  }
  rm -f "$NOTES/says"
}

# Removes the packages that came with ours. dpkg and rpm do not remove a package that another one needs.
# Such a package stays, and its name is printed.
remove_packages() {
  [ -s "$OURS" ] || return 0
  if [ "$(package_manager)" = apt-get ]; then
    remove_in_turn
    left=$(packages_in .i | grep -xF "$(cat "$OURS")" | paste -sd ' ' -)
  else
    there=$(rpm_names)
    names=$(echo "$there" | grep -xF "$(cat "$OURS")") || true # there may be none any more
    # shellcheck disable=SC2086 # one word for each
    [ -z "$names" ] || rpm -e $names >"$NOTES/says" 2>&1 || true
    left=$(rpm_names | grep -xF "$(cat "$OURS")" | paste -sd ' ' -)
  fi
  if [ -n "$left" ]; then
    tail -n 10 "$NOTES/says" | cut -c 1-300
    echo "these packages stay, as others need them: $left"
    return
  fi
  for path in $REMAINS; do
    if grep -qxF "$path" "$THERE"; then continue; fi
    if [ -d "$path" ]; then rmdir "$path" 2>/dev/null || true; else rm -f "$path"; fi
  done
}

# Unlike apt, dpkg does not wait while another program works with packages, such as an unattended upgrade.
# So it is called again until it gets its turn.
remove_in_turn() {
  begun=$(date +%s)
  while
    remove_by_dpkg >"$NOTES/says" 2>&1
    grep -q 'locked by another process' "$NOTES/says"
  do
    [ $(($(date +%s) - begun)) -lt "$DPKG_SECONDS" ] || fail "another program has been at work with \
the packages of this host for $DPKG_SECONDS s, so that these cannot be removed: \
$(paste -sd ' ' "$OURS"). Let it end, and run the same command of pulumi again"
    sleep 2
  done
}

remove_by_dpkg() {
  names=$(packages_in .i | grep -xF "$(cat "$OURS")")
  # shellcheck disable=SC2086 # one word for each
  [ -z "$names" ] || dpkg --remove $names
  names=$(packages_in rc | grep -xF "$(cat "$OURS")" | grep -vxF "$(cat "$CONFIGURED" 2>/dev/null)")
  # shellcheck disable=SC2086
  [ -z "$names" ] || dpkg --purge $names
}
