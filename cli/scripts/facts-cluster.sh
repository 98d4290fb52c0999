#!/bin/sh
# Prints facts about a cluster, one on each line: `name=value`, or `name?reason` for a fact that
# cannot be found out. It changes nothing. Each command has a limit of PROBE_SECONDS.
# Variables: KUBECTL (a command, quoted for a shell), NAMESPACE, PROBE_SECONDS, and two that may be
# empty: KUBECONFIG_FILE, and NODE_SELECTOR (labels of the nodes for training pods, as kubectl takes
# them). Usage: facts-cluster.sh
set -u

: "${KUBECTL:?}" "${NAMESPACE:?}" "${PROBE_SECONDS:?}"
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export LC_ALL PATH

# shellcheck disable=SC2016 # the $ are the template's
readonly OBJECTS='{{range .items}}{{if eq .kind "Node"}}node={{.metadata.name}}|{{range .status.conditions}}{{.type}}:{{.status}} {{end}}|{{with .spec.unschedulable}}cordoned{{end}}|{{range .spec.taints}}{{.key}}:{{.effect}} {{end}}|{{with index .status.allocatable "nvidia.com/gpu"}}{{.}}{{end}}|{{with index .metadata.labels "nvidia.com/gpu.count"}}{{.}}{{end}}|{{with index .metadata.labels "nvidia.com/gpu.replicas"}}{{.}}{{end}}|{{with index .metadata.labels "nvidia.com/mig.strategy"}}{{.}}{{end}}|{{.status.nodeInfo.kubeletVersion}}
{{else if eq .kind "Namespace"}}namespace={{.metadata.name}}|{{.status.phase}}|{{range .status.conditions}}{{if eq .status "True"}}{{.message}} {{end}}{{end}}
{{else if eq .kind "PersistentVolume"}}volume={{.metadata.name}}|{{.status.phase}}|{{with .spec.claimRef}}{{.namespace}}/{{.name}}{{end}}
{{else if eq .kind "PersistentVolumeClaim"}}claim={{.metadata.namespace}}/{{.metadata.name}}|{{.status.phase}}|{{with .spec.storageClassName}}{{.}}{{end}}
{{else if eq .kind "StorageClass"}}class={{.metadata.name}}|{{with .volumeBindingMode}}{{.}}{{end}}
{{else if eq .kind "Secret"}}release={{.metadata.namespace}}/{{index .metadata.labels "name"}}|{{index .metadata.labels "status"}}|{{index .metadata.labels "version"}}
{{else if eq .kind "Deployment"}}deployment={{.metadata.namespace}}/{{.metadata.name}}|{{with .status.availableReplicas}}{{.}}{{end}}|{{range $key, $value := .metadata.labels}}{{$key}}={{$value}},{{end}}
{{else if eq .kind "ResourceSlice"}}{{if eq .spec.driver "gpu.nvidia.com"}}gpu_slice={{.spec.nodeName}}|{{range .spec.devices}}{{$name := .name}}{{with .attributes}}{{with .type}}{{if eq .string "gpu"}}{{$name}} {{end}}{{end}}{{end}}{{end}}{{end}}
{{else if eq .kind "Pod"}}pod={{.metadata.namespace}}/{{.metadata.name}}|{{.status.phase}}|{{range .status.conditions}}{{if eq .type "Ready"}}{{.status}}{{end}}{{end}}|{{range .status.containerStatuses}}{{with .state.waiting}}{{.reason}} {{end}}{{end}}{{range .status.initContainerStatuses}}{{with .state.waiting}}{{.reason}} {{end}}{{end}}|{{range .status.conditions}}{{if eq .type "PodScheduled"}}{{if eq .status "False"}}{{printf "%q" .message}}{{end}}{{end}}{{end}}|{{with .metadata.labels}}{{with index . "k8s-app"}}{{.}}{{end}}{{end}}
{{end}}{{end}}'

# An operator that fails keeps its former state in `state`. So the message of its condition Error is
# appended.
readonly POLICY='{{range .items}}{{with .status}}{{with .state}}{{.}}{{end}}{{range .conditions}}{{if eq .type "Error"}}{{if eq .status "True"}}: {{.message}}{{end}}{{end}}{{end}}{{end}}{{end}}'

fact() { printf '%s=%.900s\n' "$1" "$2"; }
unseen() { printf '%s?%.900s\n' "$1" "$2"; }

# It uses eval because KUBECTL is shell text, and timeout because kubectl tries again after its own
# limit.
kubectl_() {
  eval "timeout -k 1 $PROBE_SECONDS $KUBECTL --request-timeout=${PROBE_SECONDS}s \"\$@\"" </dev/null
}

reason() { # output of a kubectl that failed; one that `timeout` ended has written nothing
  [ -n "$1" ] || echo "the API server gave no answer in $PROBE_SECONDS s"
  printf '%s' "$1" | tail -n 1
}

objects() { # fact arguments of kubectl get
  what=$1
  shift
  if lines=$(kubectl_ get "$@" -o "go-template=$OBJECTS" 2>&1); then
    printf '%s\n' "$lines" | grep -v '^$' | cut -c 1-1500
  else
    unseen "$what" "$(reason "$lines")"
  fi
}

selected_nodes() {
  [ -n "${NODE_SELECTOR:-}" ] || return 0
  if names=$(kubectl_ get nodes -l "$NODE_SELECTOR" -o name 2>&1); then
    fact selected_nodes "$(printf '%s\n' "$names" | grep -c .)"
    printf '%s\n' "$names" | sed -n 's|^node/|selected_node=|p'
  else
    unseen selected_nodes "$(reason "$names")"
  fi
}

kubeconfig() {
  file=${KUBECONFIG_FILE:-}
  [ -n "$file" ] || return 0
  if [ ! -r "$file" ]; then
    fact kubeconfig unreadable
    return
  fi
  fact kubeconfig readable
  if mode=$(stat -L -c %a "$file" 2>&1); then
    fact kubeconfig_mode "$mode"
  else
    unseen kubeconfig_mode "$(reason "$mode")"
  fi
  # Only the context in use matters, with the content of the files that it names. If kubectl cannot
  # read one of these files, the text of the kubeconfig is examined instead.
  used=$(kubectl_ config view --raw --minify --flatten -o yaml 2>/dev/null) || used=$(cat "$file")
  insecure=no ca=no
  ! printf '%s\n' "$used" | grep -q 'insecure-skip-tls-verify: *true' || insecure=yes
  ! printf '%s\n' "$used" | grep -q 'certificate-authority' || ca=yes
  fact kubeconfig_insecure "$insecure"
  fact kubeconfig_ca "$ca"
  command -v openssl >/dev/null 2>&1 || return 0
  until=$(printf '%s\n' "$used" |
    sed -n 's/.*client-certificate-data"*: *"*\([A-Za-z0-9+/=]*\).*/\1/p' | head -n 1 |
    base64 -d 2>/dev/null | openssl x509 -noout -enddate 2>/dev/null)
  [ -z "$until" ] || fact client_certificate_until "${until#notAfter=}"
}

main() {
  kubeconfig
  if ! answer=$(kubectl_ get --raw /readyz 2>&1); then
    fact api "$(printf '%s' "$answer" | tail -n 1)"
    fact cluster_done yes
    return
  fi
  fact api ok
  objects nodes nodes &
  selected_nodes &
  objects namespaces namespaces &
  objects volumes persistentvolumes &
  objects claims persistentvolumeclaims -n "$NAMESPACE" &
  objects classes storageclasses &
  objects releases secrets -A -l owner=helm &
  objects gpu_slices resourceslices &
  objects deployments deployments -A &
  objects pods pods -n "$NAMESPACE" &
  objects operator_pods pods -n gpu-operator &
  objects dns_pods pods -n kube-system -l k8s-app=kube-dns &
  {
    if state=$(kubectl_ get clusterpolicies.nvidia.com -o "go-template=$POLICY" 2>&1); then
      fact cluster_policy "$(printf '%s' "$state" | tr '\n' ' ')"
    else
      unseen cluster_policy "$(reason "$state")"
    fi
  } &
  wait
  fact cluster_done yes
}

main
