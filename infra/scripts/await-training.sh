#!/bin/sh
# create: returns when all ranks have stepped or the training has finished; fails with the reason
# and the pods' last lines. delete: refuses while another stack is in force in the namespace.
# Needs: KUBECTL (a command, shell-quoted), NAMESPACE, STACK, KIND (Job or StatefulSet), NAME,
# REVISION, PODS, TIMEOUT_SECONDS; may be empty: DRY_RUN (1: says what it would wait for; nothing
# is ever changed). Usage: await-training.sh create|delete
set -eu

: "${KUBECTL:?}" "${NAMESPACE:?}" "${STACK:?}" "${KIND:?}" "${NAME:?}" "${REVISION:?}" "${PODS:?}"
: "${TIMEOUT_SECONDS:?}"

readonly FATAL=78 # exit code of the trainer for what no retry mends (trainer/exit_codes.py)
readonly HEARTBEAT_SECONDS=20
readonly STUCK_SECONDS=20 # how long a reason that rarely mends itself is borne
readonly MOST_RESTARTS=3
readonly LOG_LINES=20

kubectl_() { eval "$KUBECTL \"\$@\"" </dev/null; }

# One line for the workload, `W|name|condition|reason and message`, and one for each pod,
# `P|name|phase|ready|restarts|waiting for|exit code|last exit code|why, in words`.
# shellcheck disable=SC2016 # the $ are the template's
readonly TEMPLATE='{{range .items}}{{if eq .kind "Pod"}}P|{{.metadata.name}}|{{.status.phase}}|{{range .status.conditions}}{{if eq .type "Ready"}}{{.status}}{{end}}{{end}}|{{with .status.containerStatuses}}{{with index . 0}}{{.restartCount}}|{{with .state.waiting}}{{.reason}}{{end}}|{{with .state.terminated}}{{.exitCode}}{{end}}|{{with .lastState}}{{with .terminated}}{{.exitCode}}{{end}}{{end}}{{end}}{{else}}0|||{{end}}|{{range .status.conditions}}{{if eq .type "PodScheduled"}}{{if eq .status "False"}}{{printf "%s: %q" .reason .message}}{{end}}{{end}}{{end}}{{with .status.containerStatuses}}{{with index . 0}}{{with .state.waiting}}{{with .message}}{{printf "%q" .}}{{end}}{{end}}{{end}}{{end}}{{else}}W|{{.metadata.name}}|{{with .status.conditions}}{{range .}}{{if eq .status "True"}}{{if or (eq .type "Complete") (eq .type "Failed")}}{{.type}}|{{.reason}}{{with .message}}: {{.}}{{end}}{{end}}{{end}}{{end}}{{end}}{{end}}
{{end}}'

look() {
  kubectl_ -n "$NAMESPACE" get "$(echo "$KIND" | tr '[:upper:]' '[:lower:]'),pod" \
    -l "disttrain.dev/revision=$REVISION,app.kubernetes.io/component=training" \
    -o "go-template=$TEMPLATE"
}

# Sets: ready (pods), state (in words), ending (Complete, Failed or empty), problem, stuck.
judge() { # lines of look()
  ready=0 state="" ending="" problem="" stuck=""
  while IFS='|' read -r what name phase is_ready restarts waiting code last_code text; do
    if [ "$what" = W ]; then
      ending=$phase # of a workload, the third field is its condition
      [ "$ending" != Failed ] || problem="$KIND $name failed: $is_ready"
    elif [ "$what" = P ]; then
      [ "$is_ready" != True ] || ready=$((ready + 1))
      state="$state${state:+, }$name ${waiting:-$phase}${text:+ ($text)}"
      case $waiting in
        ImagePullBackOff | ErrImagePull | ErrImageNeverPull | InvalidImageName | \
          CreateContainerConfigError | CreateContainerError | RunContainerError)
          stuck="pod $name: $waiting ${text}"
          ;;
      esac
      if [ "$code" = "$FATAL" ] || [ "$last_code" = "$FATAL" ]; then
        problem=${problem:-"pod $name ended with exit code $FATAL: nothing that a retry mends"}
      elif [ "$restarts" -ge "$MOST_RESTARTS" ]; then
        problem=${problem:-"pod $name was started $((restarts + 1)) times"}
      fi
    fi
  done <<EOF
$1
EOF
}

last_lines() {
  for pod in $(kubectl_ -n "$NAMESPACE" get pod -o name \
    -l "disttrain.dev/revision=$REVISION,app.kubernetes.io/component=training"); do
    echo "--- last lines of $pod"
    { kubectl_ -n "$NAMESPACE" logs "$pod" --previous --tail="$LOG_LINES" 2>/dev/null ||
      kubectl_ -n "$NAMESPACE" logs "$pod" --tail="$LOG_LINES" 2>&1; } | cut -c 1-500
  done
}

fail() { # reason
  echo "training failed: $1" | cut -c 1-900 # the provider fails at lines of 64 KiB
  last_lines
  echo "When the cause is mended: change the setting and run pulumi up; if it was no setting," \
    "first: kubectl -n $NAMESPACE delete $KIND $NAME"
  exit 1
}

create() {
  if [ -n "${DRY_RUN:-}" ]; then
    echo "would wait: $TIMEOUT_SECONDS s for $PODS ready pods of $KIND $NAME"
    return
  fi
  start=$(date +%s) told=0 said="" stuck_since=0
  while :; do
    now=$(date +%s)
    if ! lines=$(look 2>&1); then
      lines="" look_error=$(echo "$lines" | tail -n 1)
      state="the API server does not answer: $look_error" ready=0 ending="" problem="" stuck=""
    else
      judge "$lines"
    fi
    [ -z "$problem" ] || fail "$problem"
    if [ "$ending" = Complete ]; then
      echo "$KIND $NAME has finished"
      return
    fi
    if [ "$ready" -ge "$PODS" ]; then
      echo "all ranks have stepped: $ready of $PODS pods ready after $((now - start)) s"
      return
    fi
    if [ -z "$stuck" ]; then
      stuck_since=0
    elif [ "$stuck_since" = 0 ]; then
      stuck_since=$now
    elif [ $((now - stuck_since)) -ge "$STUCK_SECONDS" ]; then
      fail "$stuck"
    fi
    if [ $((now - start)) -ge "$TIMEOUT_SECONDS" ]; then
      fail "waited $TIMEOUT_SECONDS s (trainingTimeoutSeconds) for $PODS ready pods of $KIND \
$NAME; $ready are; ${state:-no pod yet}"
    fi
    if [ "$state" != "$said" ] || [ $((now - told)) -ge "$HEARTBEAT_SECONDS" ]; then
      echo "$((now - start)) s: $ready of $PODS pods ready; ${state:-no pod yet}" | cut -c 1-500
      said=$state told=$now
    fi
    sleep 1
  done
}

delete() {
  if ! owner=$(kubectl_ get namespace "$NAMESPACE" --ignore-not-found --request-timeout=10s \
    -o 'jsonpath={.metadata.labels.disttrain\.dev/stack}' 2>&1); then
    echo "cluster not asked for the stack in force: $owner" | tail -n 1 | cut -c 1-300
  elif [ -n "$owner" ] && [ "$owner" != "$STACK" ]; then
    echo "stack $owner is in force in namespace $NAMESPACE, and shares its volume with $STACK." >&2
    echo "First: pulumi destroy --stack $owner (data is kept), then this one again." >&2
    exit 1
  fi
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
