#!/bin/sh
# create: nothing. delete: takes away what the GPU Operator leaves behind when its release is gone:
# its CRDs (Helm keeps CRDs) and its labels and annotations on nodes. Needs: KUBECTL (a command,
# shell-quoted); may be empty: DRY_RUN (1: only says what would change).
# Usage: gpu-operator-cleanup.sh create|delete
set -eu

: "${KUBECTL:?}"
readonly CRDS='clusterpolicies.nvidia.com nvidiadrivers.nvidia.com gpuclusters.nvidia.com'

kubectl_() { eval "$KUBECTL \"\$@\"" </dev/null; }

ours() { # the keys of labels and annotations that are NVIDIA's, each once
  tr ' ' '\n' | sed 's/^"\(.*\)"$/\1/' | grep -E '^nvidia\.com/' | sort -u || true
}

# shellcheck disable=SC2016 # the $ are the template's
readonly KEYS='{{range .items}}{{range $k, $v := .metadata.%s}}{{$k}}
{{end}}{{end}}'

strip() { # label or annotate, metadata field
  # shellcheck disable=SC2059 # the template has the %s
  keys=$(kubectl_ get nodes -o "go-template=$(printf "$KEYS" "$2")" | ours)
  [ -n "$keys" ] || return 0
  if [ -n "${DRY_RUN:-}" ]; then
    echo "would remove from the nodes: $2 $(echo "$keys" | tr '\n' ' ')"
    return
  fi
  # shellcheck disable=SC2046 # one key per word
  kubectl_ "$1" nodes --all $(echo "$keys" | sed 's/$/-/') >/dev/null
  echo "$(echo "$keys" | wc -l) ${2} of nvidia.com removed from the nodes"
}

delete() {
  if ! kubectl_ get --raw /readyz --request-timeout=10s >/dev/null 2>&1; then
    echo "the cluster does not answer: nothing of the GPU Operator is cleaned up in it"
    return
  fi
  if [ -n "${DRY_RUN:-}" ]; then echo "would remove: the CRDs $CRDS"; fi
  # shellcheck disable=SC2086 # one CRD per word
  [ -n "${DRY_RUN:-}" ] || kubectl_ delete crd $CRDS --ignore-not-found --timeout=120s
  strip label labels
  strip annotate annotations
}

main() {
  case $1 in
    create) : ;; # the operator itself comes by its chart
    delete) delete ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
