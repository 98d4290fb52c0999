#!/bin/sh
# create: refuses to go on if the cluster has a GPU Operator that this stack has not installed, before
#   anything is made. It says who has installed it, and what can be done. Of an operator of this stack, it
#   refuses a change that replaces NVIDIA's driver while trainings use it. It never changes anything.
# delete: does nothing.
# Needs: KUBECTL (a command, quoted for a shell), NAMESPACE and RELEASE (of the operator that is to be
# installed), OWNER (identifies the stack's state). May be empty: DRIVER_CHART, the chart's version that is to
# be installed, if the operator brings the driver; DRIVER_VERSION, the driver's, if the settings name it; and
# DRY_RUN (makes no difference).
# Usage: gpu-operator-guard.sh create|delete
set -eu

: "${KUBECTL:?}" "${NAMESPACE:?}" "${RELEASE:?}" "${OWNER:?}"
readonly POLICIES=clusterpolicies.nvidia.com

kubectl_() { eval "$KUBECTL --request-timeout=30s \"\$@\"" </dev/null; }

# shellcheck disable=SC2016 # each $ belongs to the template
readonly LABELS='{{range $k, $v := .metadata.labels}}{{$k}}={{$v}}
{{end}}there
'

# shellcheck disable=SC2016 # each $ belongs to the template
readonly POLICY_RELEASES='{{range .items}}{{.metadata.name}} of release {{with .metadata.annotations}}{{with index . "meta.helm.sh/release-namespace"}}{{.}}{{end}}/{{with index . "meta.helm.sh/release-name"}}{{.}}{{end}}{{else}}(none){{end}}
{{end}}'

readonly INSTALLED='{range .items[*]}{.metadata.labels.helm\.sh/chart} {.spec.driver.version}{end}'
readonly TRAINING=app.kubernetes.io/name=disttrain,app.kubernetes.io/component=training
readonly GPUS_OF='{range .items[*]}{.metadata.namespace}/{.metadata.name} {.spec.containers[*].resources.limits.nvidia\.com/gpu}{"\n"}{end}'

label() { printf '%s\n' "$labels" | sed -n "s|^disttrain.dev/$1=||p"; }

releases() { # namespace/name of each Helm release of this name, in any namespace
  kubectl_ get secrets -A -l "owner=helm,name=$RELEASE" \
    -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.labels.name}{"\n"}{end}' | sort -u
}

policies() {
  [ -n "$(kubectl_ get crd "$POLICIES" --ignore-not-found -o name)" ] || return 0
  kubectl_ get "$POLICIES" -o "go-template=$POLICY_RELEASES"
}

one_line() { tr '\n' ',' | sed 's/,*$//; s/,/, /g'; }

refuse() { # why
  echo "the GPU Operator is not installed: $1"
  [ -z "$stack" ] ||
    echo "- to use the platform of that stack: pulumi config set platform $stack"
  echo "- to use the GPU Operator that is there: pulumi config set gpuOperator false"
  echo "- to have this stack install its own, remove the other one first: helm uninstall RELEASE" \
    "--namespace NAMESPACE, then kubectl delete namespace $NAMESPACE"
  echo "Nothing has been changed."
  exit 1
}

# Fails if the driver's container of the release would change, and trainings use the GPUs. The operator would
# cordon their nodes. But it does not evict pods with an emptyDir, as they have for /dev/shm. It would give
# up, and leave the nodes cordoned, so that the next start of a training would find none.
refuse_driver_under_trainings() {
  [ -n "${DRIVER_CHART:-}" ] || return 0
  defined=$(kubectl_ get crd "$POLICIES" --ignore-not-found -o name)
  [ -n "$defined" ] || return 0
  installed=$(kubectl_ get "$POLICIES" -o "jsonpath=$INSTALLED")
  chart=${installed%% *} driver=${installed#* } back=""
  case $chart in
    "" | *"-$DRIVER_CHART") ;;
    *) back="gpuOperatorVersion ${chart##*-}" ;;
  esac
  case ${DRIVER_VERSION:-$driver} in
    "$driver") ;;
    *) back=${back:-"--path gpuOperatorValues.driver.version $driver"} ;;
  esac
  [ -n "$back" ] || return 0
  trainings=$(kubectl_ get pods -A -l "$TRAINING" --field-selector=status.phase=Running -o "jsonpath=$GPUS_OF")
  trainings=$(printf '%s\n' "$trainings" | awk 'NF > 1 { print $1 }' | one_line)
  [ -n "$trainings" ] || return 0
  echo "the GPU Operator is not changed: trainings use the driver that it would replace: $trainings. It does" \
    "not replace a driver under them, but cordons their nodes, and leaves them cordoned."
  echo "- to change it, let their runs save and end (./disttrain stop), and run pulumi up again, which resumes" \
    "those of this stack"
  echo "- to leave it as it is: pulumi config set $back"
  echo "Nothing has been changed."
  exit 1
}

create() {
  labels=$(kubectl_ get namespace "$NAMESPACE" --ignore-not-found -o "go-template=$LABELS")
  if [ "$(label owner)" = "$OWNER" ]; then # made by an earlier `up` of this stack
    refuse_driver_under_trainings
    return
  fi
  stack=$(label stack)
  installed=$(releases)
  installed=$(printf '%s\n' "$installed" | one_line)
  if [ -n "$stack" ]; then
    refuse "the namespace $NAMESPACE belongs to the stack $stack, whose state is another one"
  elif [ -n "$labels" ]; then
    refuse "the namespace $NAMESPACE exists, and no stack has made it (Helm releases named $RELEASE: ${installed:-none})"
  elif [ -n "$installed" ]; then
    refuse "the name of its Helm release is taken: $installed"
  fi
  found=$(policies)
  [ -z "$found" ] || refuse "another one is in the cluster: ClusterPolicy $(printf '%s\n' "$found" | one_line)"
}

main() {
  case $1 in
    create) create ;;
    delete) : ;; # it has made nothing
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
