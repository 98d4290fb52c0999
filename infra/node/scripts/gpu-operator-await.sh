#!/bin/sh
# create: waits, which takes minutes, and shows what is still missing. It fails with the reasons that the
#   pods give. It changes nothing but the nodes' label for MIG.
# delete: removes nothing. It says what to do if somebody has deleted the namespace by hand, because the
#   removal of the release fails then, with words of Helm that name no way out.
# Needs: KUBECTL (a command, quoted for a shell), NAMESPACE, TIMEOUT_SECONDS, and WAIT_FOR, which says how
# long it waits:
# - release: until Helm is done with RELEASE, which it installs or upgrades meanwhile;
# - gpus: until the operator is ready, the GPUs are divided as MIG_CONFIG says, and the nodes together
#   offer GPUS GPUs.
# May be empty: MIG_CONFIG (see lib/mig.sh), DRY_RUN (1: only says what it would wait for), and
# RELEASE_REVISION, which says how often Helm has installed or changed the release. After a change the
# operator says "ready" for some seconds before it sees it.
# Usage: gpu-operator-await.sh create|delete
set -eu

: "${KUBECTL:?}" "${NAMESPACE:?}" "${TIMEOUT_SECONDS:?}" "${WAIT_FOR:?}"
case $WAIT_FOR in
  release) : "${RELEASE:?}" ;;
  gpus) : "${GPUS:?}" ;;
  *) echo "WAIT_FOR: '$WAIT_FOR' cannot be used: set release or gpus" >&2 && exit 2 ;;
esac
MIG_CONFIG=${MIG_CONFIG:-}
readonly HEARTBEAT_SECONDS=20
readonly STEADY_CHECKS=15 # of 2 s: so often it has to be ready in a row after a change of the release
readonly QUIET_SECONDS=15 # without Helm at work: it may fetch the chart first

kubectl_() { eval "$KUBECTL \"\$@\"" </dev/null; }

. ./lib/mig.sh

# shellcheck disable=SC2016 # the $ are the template's
readonly PODS='{{range .items}}{{.metadata.name}}|{{.status.phase}}|{{range .status.conditions}}{{if eq .type "Ready"}}{{.status}}{{end}}{{end}}|{{range .status.initContainerStatuses}}{{with .state.waiting}}{{.reason}} {{end}}{{end}}{{range .status.containerStatuses}}{{with .state.waiting}}{{.reason}} {{end}}{{end}}
{{end}}'

# The state of the operator. If it fails, it keeps its former state, so the message about the failure is
# added.
readonly STATE='{{range .items}}{{with .status}}{{with .state}}{{.}}{{end}}{{range .conditions}}{{if eq .type "Error"}}{{if eq .status "True"}}: {{.message}}{{end}}{{end}}{{end}}{{end}}{{end}}'

# Prints how many GPUs all nodes together offer; 0 while the API server does not answer, for instance
# because k3s restarts.
offered() {
  kubectl_ get nodes --request-timeout=10s \
    -o 'jsonpath={range .items[*]}{.status.allocatable.nvidia\.com/gpu}{"\n"}{end}' 2>/dev/null |
    awk '{ sum += $1 } END { print sum + 0 }'
}

# Whether the operator has marked a node as one that has GPUs; also true if that cannot be asked.
has_gpu_node() {
  found=$(kubectl_ get nodes -l nvidia.com/gpu.present=true --request-timeout=10s -o name 2>/dev/null) ||
    return 0
  [ -n "$found" ]
}

missing_pods() {
  kubectl_ -n "$NAMESPACE" get pods --request-timeout=10s -o "go-template=$PODS" 2>&1 |
    awk -F '|' '$2 != "Succeeded" && $3 != "True" && NF > 2 {
      why = $4 == "" ? $2 : $4; sub(/ $/, "", why)
      sub(/ErrImagePull/, "ImagePullBackOff", why) # the two take turns
      printf "%s%s (%s)", sep, $1, why; sep = ", "
    }'
}

newest_record() { # how far Helm is with the release: pending-install, deployed, failed, ...
  kubectl_ -n "$NAMESPACE" get secrets -l "owner=helm,name=$RELEASE" --request-timeout=10s \
    --sort-by=.metadata.creationTimestamp \
    -o 'jsonpath={.items[-1:].metadata.labels.status}' 2>/dev/null || echo unknown
}

show() { # text: now if it is new, else with each heartbeat
  if [ "$1" != "$said" ] || [ $((now - told)) -ge "$HEARTBEAT_SECONDS" ]; then
    echo "$((now - start)) s: $1" | cut -c 1-500
    said=$1 told=$now
  fi
}

watch_release() {
  start=$(date +%s) told=0 said="" pods=""
  quiet=$start
  while now=$(date +%s) && [ $((now - start)) -lt $((TIMEOUT_SECONDS + QUIET_SECONDS)) ]; do
    record=$(newest_record)
    case $record/$said in
      pending-*)
        quiet=$now
        pods=$(missing_pods)
        show "Helm is at work on $RELEASE; waits for: ${pods:-nothing}"
        ;;
      deployed/?*) return 0 ;;
      failed/?*) fail "Helm has given up; it waited for: ${pods:-nothing}" ;;
      *) [ $((now - quiet)) -lt "$QUIET_SECONDS" ] || return 0 ;; # not at work yet, or at all
    esac
    sleep 2
  done
}

fail() {
  echo "the GPU Operator is not ready: $1" | cut -c 1-900
  echo "kubectl -n $NAMESPACE get pods; kubectl -n $NAMESPACE logs ds/nvidia-operator-validator" \
    "--all-containers --tail=20"
  exit 1
}

create() {
  if [ "$WAIT_FOR" = release ]; then
    [ -z "${DRY_RUN:-}" ] || { echo "would show what Helm waits for" && return; }
    watch_release
    return
  fi
  if [ -n "${DRY_RUN:-}" ]; then
    [ -z "$MIG_CONFIG" ] || echo "would label the nodes with $MIG_LABEL=$MIG_CONFIG"
    echo "would wait up to $TIMEOUT_SECONDS s until $GPUS GPUs are offered"
    return
  fi
  start=$(date +%s) told=0 said="" checks=0 wanted=$STEADY_CHECKS
  [ "${RELEASE_REVISION:-1}" != 1 ] || wanted=1
  while :; do
    now=$(date +%s)
    state=$(kubectl_ get clusterpolicies.nvidia.com --request-timeout=10s -o "go-template=$STATE" \
      2>/dev/null) || state="no answer"
    divide_gpus
    [ -z "$mig_failed" ] || fail "$mig_failed"
    gpus=$(offered) pods=$(missing_pods)
    if [ "$state$mig_missing" = ready ] && [ "$gpus" -ge "$GPUS" ]; then
      checks=$((checks + 1))
      [ "$wanted" = 1 ] || [ -z "$pods" ] || checks=0
      if [ "$checks" -ge "$wanted" ]; then
        echo "GPU Operator is ready after $((now - start)) s; $gpus GPUs are offered"
        return
      fi
      pods=${pods:-"the operator, which may not have seen the change of its release yet"}
    else
      checks=0
      [ -n "$pods" ] || [ "$gpus" != 0 ] || has_gpu_node ||
        pods="a node with an NVIDIA GPU: the node feature discovery has found none (lspci -d 10de:)"
    fi
    pods=$pods$mig_missing
    pods=${pods#, }
    now_said="operator ${state:-starting}, $gpus of $GPUS GPUs offered; waits for: ${pods:-nothing}"
    [ $((now - start)) -lt "$TIMEOUT_SECONDS" ] ||
      fail "waited $TIMEOUT_SECONDS s (gpuOperatorTimeoutSeconds); $now_said"
    show "$now_said"
    sleep 2
  done
}

delete() {
  [ "$WAIT_FOR" = gpus ] || return 0
  found=$(kubectl_ get namespace "$NAMESPACE" --ignore-not-found --request-timeout=10s -o name 2>/dev/null) ||
    return 0 # nobody knows
  [ -n "$found" ] || echo "the namespace $NAMESPACE, in which this stack has installed the GPU Operator, is" \
    "not there any more. Run \`pulumi refresh\`, and then \`pulumi up\` or \`pulumi destroy\`: the one" \
    "installs it again, the other removes what is left of it"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
