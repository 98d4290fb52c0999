#!/bin/sh
# create: records, in annotations of the namespace, which of the chart's CRDs exist before its release, and
#   which labels and annotations of NVIDIA's names are on nodes.
# delete: removes what the operator leaves behind when its release is gone:
# - the CRDs that its chart brings, because Helm keeps CRDs; but no CRD that was there before, none of
#   other operators of NVIDIA, and none that another node feature discovery uses by now;
# - the labels and annotations of the operator and of the node feature discovery on nodes, but none of
#   NVIDIA's names that was there before;
# - the release's roles, if somebody has deleted the namespace by hand. Helm's record of the release is gone
#   with it, and Helm removes nothing of a release that it does not know.
# If somebody else has made the namespace since then, nothing is removed: the operator is theirs.
# The charts could do that with pods of their own. But a cluster that cannot pull the images of these pods
# could then not get rid of the operator.
# Needs: KUBECTL (a command, quoted for a shell), NAMESPACE, CRDS (names of the CRDs that the chart brings,
# with blanks between them). May be empty: DRY_RUN (1: the API server only says what it would do).
# Usage: gpu-operator-cleanup.sh create|delete
set -eu

: "${KUBECTL:?}" "${NAMESPACE:?}" "${CRDS:?}"
readonly NOTE=disttrain.dev/crds-before KEYS_NOTE=disttrain.dev/node-keys-before
readonly PODS_SECONDS=120
readonly ANSWER_TRIES=12 ANSWER_PAUSE_SECONDS=5

dry_run=--dry-run=none
[ -z "${DRY_RUN:-}" ] || dry_run=--dry-run=server

kubectl_() { eval "$KUBECTL \"\$@\"" </dev/null; }

# Reads keys of labels and annotations, and prints those of the operator and of its node feature discovery,
# each once. Needs `before`, as `doomed` does, and `kept`, those that were there before.
ours() {
  prefixes='nvidia[.]com/|disttrain[.]dev/mig-config$' # the latter is of lib/mig.sh
  case $before in
    '' | *nodefeatures.nfd.*) ;; # somebody else's discovery is or may be there
    *) prefixes="$prefixes|(feature|nfd)[.]node[.]kubernetes[.]io/" ;;
  esac
  tr ' ' '\n' | sed 's/^"\(.*\)"$/\1/' | grep -E "^($prefixes)" | sort -u |
    grep -vxF "$(echo "$kept" | tr ' ' '\n')" || true
}

# shellcheck disable=SC2016 # each $ belongs to the template
readonly KEYS='{{range .items}}{{range $k, $v := .metadata.%s}}{{$k}}
{{end}}{{end}}'

keys_of_nodes() { # metadata field
  # shellcheck disable=SC2059 # the template contains the %s
  kubectl_ get nodes -o "go-template=$(printf "$KEYS" "$1")"
}

strip() { # label or annotate, metadata field
  found=$(keys_of_nodes "$2") # a failure ends the script here
  keys=$(echo "$found" | ours)
  [ -n "$keys" ] || return 0
  # shellcheck disable=SC2046 # one key per word
  kubectl_ "$1" nodes --all "$dry_run" $(echo "$keys" | sed 's/$/-/') >/dev/null
  echo "$(echo "$keys" | wc -l) ${2} removed from the nodes${DRY_RUN:+ (dry run)}"
}

crds() { # those of the chart that are there: one line, each name between blanks
  names=$(kubectl_ get crd -o 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}')
  for name in $names; do
    case " $CRDS " in *" $name "*) printf '%s ' "$name" ;; esac
  done
}

noted() { # note of what was there before; without it, as by an older program, nobody knows
  # shellcheck disable=SC2016 # each $ belongs to the template
  kubectl_ get namespace "$NAMESPACE" --ignore-not-found -o \
    'go-template={{range $k, $v := .metadata.annotations}}{{if eq $k "'"$1"'"}}noted {{$v}}{{end}}{{end}}'
}

create() {
  before=$(noted "$NOTE")
  [ -z "$before" ] || return 0
  now=$(crds) # a failure ends the script here: an empty note would doom what is there
  labels=$(keys_of_nodes labels)
  annotations=$(keys_of_nodes annotations)
  keys=$(printf '%s\n' "$labels" "$annotations" | grep '^nvidia[.]com/' | sort -u | paste -sd ' ' -)
  kubectl_ annotate namespace "$NAMESPACE" "$dry_run" "$NOTE=$now" "$KEYS_NOTE=$keys" >/dev/null
}

doomed() {
  now=$(crds)
  for crd in $now; do
    case "$before/$crd" in
      /*.nfd.k8s-sigs.io) ;; # perhaps somebody else's
      *) case " $before " in *" $crd "*) ;; *) echo "$crd" ;; esac ;;
    esac
  done
}

# The note is gone with a namespace that somebody has deleted by hand.
say_what_stays() {
  kept=$(crds | tr ' ' '\n' | grep '[.]nfd[.]k8s-sigs[.]io$' | tr '\n' ' ')
  [ -n "$kept" ] || return 0
  echo "the node feature discovery's definitions and labels of nodes are left, because nobody knows any more" \
    "whether others had them before: if nobody needs them, kubectl delete crd ${kept% }"
}

# Another node feature discovery may have come since, such as that of NVIDIA's Network Operator. Each writes
# what it finds into NodeFeatures of its own namespace. Then the definitions count as there before.
keep_for_other_discovery() {
  case $(crds) in *nodefeatures.nfd.*) ;; *) return 0 ;; esac
  places=$(kubectl_ get nodefeatures.nfd.k8s-sigs.io -A \
    -o 'jsonpath={range .items[*]}{.metadata.namespace}{"\n"}{end}') # a failure ends the script here
  other=$(echo "$places" | grep -vxF "$NAMESPACE" | grep -m 1 .) || return 0
  before="$before nodefeatures.nfd.k8s-sigs.io nodefeaturegroups.nfd.k8s-sigs.io \
nodefeaturerules.nfd.k8s-sigs.io "
  echo "the node feature discovery's definitions and labels of nodes stay, as another one is in namespace $other"
}

# Whether the API server answers. When the operator's toolkit ends, it also ends containerd, so that a k3s
# restarts meanwhile. So the API server is asked several times.
answers() {
  tries=1
  until kubectl_ get --raw /readyz --request-timeout=10s >/dev/null 2>&1; do
    [ "$tries" -lt "$ANSWER_TRIES" ] || return 1
    tries=$((tries + 1))
    sleep "$ANSWER_PAUSE_SECONDS"
  done
}

# Whether the namespace is there, and no stack has made it. If that cannot be asked, the script ends: it
# could otherwise delete what belongs to somebody else.
is_of_others() {
  # shellcheck disable=SC2016 # each $ belongs to the template
  labels=$(kubectl_ get namespace "$NAMESPACE" --ignore-not-found -o \
    'go-template={{range $k, $v := .metadata.labels}}{{$k}} {{end}}there') || exit 1
  case "$labels" in '' | *disttrain.dev/owner*) return 1 ;; esac
}

# Kind and name of each role, and binding of one, that Helm has noted as a part of a release in the namespace.
roles() {
  # shellcheck disable=SC2016 # each $ belongs to the template
  kubectl_ get clusterroles,clusterrolebindings -l app.kubernetes.io/managed-by=Helm -o \
    'go-template={{range .items}}{{$item := .}}{{with .metadata.annotations}}{{if eq (print (index . "meta.helm.sh/release-namespace")) "'"$NAMESPACE"'"}}{{$item.kind}}/{{$item.metadata.name}} {{end}}{{end}}{{end}}'
}

# Waits until the operator's pods are gone. A pod that still runs would write the labels to the nodes again.
wait_for_pods() {
  [ -z "${DRY_RUN:-}" ] || return 0
  until_=$(($(date +%s) + PODS_SECONDS))
  while ! pods=$(kubectl_ -n "$NAMESPACE" get pods -o name --request-timeout=10s 2>/dev/null) ||
    [ -n "$pods" ]; do
    if [ "$(date +%s)" -ge "$until_" ]; then
      echo "still there after $PODS_SECONDS s: $(echo "${pods:-no answer}" | tr '\n' ' ')"
      return
    fi
    sleep 1
  done
}

delete() {
  if ! answers; then
    echo "the cluster does not answer: nothing of the GPU Operator is cleaned up in it"
    return
  fi
  if is_of_others; then
    echo "the namespace $NAMESPACE is not this stack's any more, so the GPU Operator in it is left as it is"
    return
  fi
  before=$(noted "$NOTE")
  kept=$(noted "$KEYS_NOTE")
  keep_for_other_discovery
  wait_for_pods
  crds=$(doomed)
  # shellcheck disable=SC2086 # one CRD per word
  [ -z "$crds" ] || kubectl_ delete crd $crds --ignore-not-found --timeout=120s "$dry_run"
  roles=$(roles)
  # shellcheck disable=SC2086 # one role per word
  [ -z "$roles" ] || kubectl_ delete $roles --ignore-not-found "$dry_run"
  strip label labels
  strip annotate annotations
  [ -n "$before" ] || say_what_stays
}

main() {
  case $1 in
    create | delete) "$1" ;; # the operator itself comes by its chart
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
