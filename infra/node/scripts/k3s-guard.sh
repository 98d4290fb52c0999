#!/bin/sh
# create: refuses a value of the setting k3sExisting that does not fit the k3s of this host.
# delete: refuses to let the stack leave this host while runs of other stacks are in its k3s. Leaving the
#   host removes k3s.
# Both run before anything is changed, on this host or on the next one, and change nothing themselves.
# Needs: NAMESPACE. May be empty: OWNER (the platform, whose own runs do not count), K3S_EXISTING (refuse or
# adopt), DRY_RUN (1 makes no difference, because nothing is changed).
# Usage: k3s-guard.sh create|delete
set -eu

: "${NAMESPACE:?}"

. ./lib/k3s.sh
. ./lib/other-runs.sh

create() {
  if [ "${K3S_EXISTING:-}" != adopt ]; then
    refuse_k3s_of_others
  elif [ -e "$OWNERSHIP_FILE" ] && ! is_adopted; then
    fail "k3sExisting: 'adopt' cannot be used: this stack has installed the k3s of this host itself, \
and would take it for somebody else's. Nothing was changed. Set it back: \
pulumi config set k3sExisting refuse"
  fi
  echo "k3sExisting fits; this host is not left while runs of other stacks are on it"
}

delete() {
  if is_adopted; then
    in_namespace="$NAMESPACE/" # k3s stays, and of what is in it our namespace alone goes
  elif is_ours; then
    in_namespace=""
  else
    return 0 # `pulumi destroy` comes here last, when k3s is gone
  fi
  refuse_other_runs "$in_namespace" \
    "host or sshHost: it names another host now, and this stack would leave the host of before. Runs
of other stacks are there, and would be lost:" \
    "Nothing was changed. Either set host and sshHost back to what they were, or first take these
runs away; their data stay on this host:"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
