# shellcheck shell=sh
# NVIDIA's MIG manager divides the GPUs of a node as a label of the node says, and writes its progress into
# another label. When this program sets the label, it also writes the value into an annotation.
# Needs: the function `kubectl_`, and MIG_CONFIG (such as all-1g.10gb; empty: GPUs that this program has
# divided become whole again).
readonly MIG_LABEL=nvidia.com/mig.config MIG_NOTE=disttrain.dev/mig-config
readonly WHOLE=all-disabled # the operator gives it to each node that has no such label

# shellcheck disable=SC2016 # each $ belongs to the template
readonly MIG_NODES='{{range .items}}{{.metadata.name}}|{{with index .metadata.labels "'$MIG_LABEL'"}}{{.}}{{end}}|{{with index .metadata.labels "'$MIG_LABEL.state'"}}{{.}}{{end}}|{{with .metadata.annotations}}{{with index . "'$MIG_NOTE'"}}{{.}}{{end}}{{end}}
{{end}}'

mig_nodes() { # name|label|state|annotation, for each node whose GPUs can be divided
  kubectl_ get nodes -l "nvidia.com/gpu.present=true,nvidia.com/mig.capable!=false" \
    --request-timeout=10s -o "go-template=$MIG_NODES"
}

mig_missing="" mig_failed=""

# Changes a node. A request may fail while k3s restarts, which the operator's toolkit causes. Then the reason
# is added to mig_missing, and the caller of divide_gpus tries again.
change_node() { # label, annotate or patch; node; further words for kubectl
  mig_verb=$1 mig_changed=$2
  shift 2
  mig_said=$(kubectl_ "$mig_verb" node "$mig_changed" "$@" 2>&1) || {
    mig_missing="$mig_missing, a change of node $mig_changed ($(echo "$mig_said" | tail -n 1))"
    return 1
  }
}

# The two functions that set the label remove the state, which would look like the state for the new label.
make_whole() { change_node label "$1" --overwrite "$MIG_LABEL=$WHOLE" "$MIG_LABEL.state-"; }

# One request sets the label and the annotation. With the new annotation alone, the next check would take the
# label of before for one that somebody else has set.
divide() { # node
  change_node patch "$1" --type=merge --patch="{\"metadata\": {\
\"labels\": {\"$MIG_LABEL\": \"$MIG_CONFIG\", \"$MIG_LABEL.state\": null}, \
\"annotations\": {\"$MIG_NOTE\": \"$MIG_CONFIG\"}}}"
}

forget_node() { change_node annotate "$1" "$MIG_NOTE-" || true; }

await_node() { # node, its state
  case $2 in
    success) ;;
    failed) mig_failed="node $1 could not be divided as its label $MIG_LABEL says: its label $MIG_LABEL.state is failed. kubectl -n $NAMESPACE logs ds/nvidia-mig-manager says why, such as a program that uses a GPU. Then: kubectl label node $1 --overwrite $MIG_LABEL=$WHOLE, and pulumi up" ;;
    *) mig_missing="$mig_missing, node $1 (MIG: ${2:-not begun})" ;;
  esac
}

divide_node() { # node, label, state, annotation
  case $2 in
    "$MIG_CONFIG") await_node "$1" "$3" ;;
    '' | "$WHOLE" | "$4") if divide "$1"; then await_node "$1" ""; fi ;;
    *) mig_failed="migProfile: node $1 has the label $MIG_LABEL=$2, which this stack has not given it, so it is left as it is. Set migProfile to ${2#all-}, or remove the label: kubectl label node $1 $MIG_LABEL-" ;;
  esac
}

make_node_whole() { # node, label, state, annotation
  case $2/$3 in
    "$WHOLE/success") forget_node "$1" ;;
    "$WHOLE"/*) await_node "$1" "$3" ;;
    "$4"/*) if make_whole "$1"; then await_node "$1" ""; fi ;;
    *) forget_node "$1" ;; # somebody has given it another one since
  esac
}

# Labels the nodes that need it. Sets mig_missing to what has to be waited for, and mig_failed to the
# reason why a node cannot be divided. Both are empty when everything is done.
divide_gpus() {
  mig_missing="" mig_failed=""
  if ! rows=$(mig_nodes 2>/dev/null); then
    mig_missing=", an answer of the cluster"
    return
  fi
  for row in $rows; do
    mig_node=${row%%|*} row=${row#*|}
    mig_label=${row%%|*} row=${row#*|}
    mig_state=${row%%|*} mig_note=${row#*|}
    if [ -n "$MIG_CONFIG" ]; then
      divide_node "$mig_node" "$mig_label" "$mig_state" "$mig_note"
    elif [ -n "$mig_note" ]; then
      make_node_whole "$mig_node" "$mig_label" "$mig_state" "$mig_note"
    fi
  done
  [ -z "$MIG_CONFIG" ] || [ -n "$rows" ] || mig_missing=", a node whose GPUs can be divided"
}
