package main

import (
	"errors"
	"log"
	"os"
	"strconv"
	"time"
)

const policies = "/apis/nvidia.com/v1/clusterpolicies"

// runOperator looks once a second whether the cluster is as its ClusterPolicy wants it.
func runOperator() {
	cluster := newAPI()
	said := ""
	for {
		// The discovery of nodes and GPUs, which this stands in for too, asks for no policy.
		err := labelNodes(cluster, discoveryLabels(), discoveryAnnotations())
		found, failed := cluster.get(policies)
		err = errors.Join(err, failed)
		if failed == nil {
			for _, policy := range items(found) {
				err = errors.Join(err, reconcile(cluster, policy))
			}
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			log.Print(said)
		}
		time.Sleep(time.Second)
	}
}

// reconcile labels the nodes, makes the operands, and writes how far they are into the policy.
//
// As in NVIDIA's operator, an error in one of its steps makes the state notReady, and one before
// the first step leaves the state as it was; a condition says the error in both cases.
func reconcile(cluster *api, policy object) error {
	ready, err := operandsReady(cluster, policy)
	state, reason, problem := "notReady", "OperandNotReady", ""
	switch told := os.Getenv("RECONCILE_ERROR"); {
	case err != nil:
		state, reason, problem = text(policy, "status", "state"), "ReconcileFailed", err.Error()
	case told != "":
		reason, problem = "ReconcileFailed", told
	case ready:
		state, reason = "ready", "Reconciled"
	}
	return errors.Join(err, writeStatus(cluster, policy, state, reason, problem))
}

func operandsReady(cluster *api, policy object) (bool, error) {
	count, err := countGPUs(cluster, policy)
	if err != nil {
		return false, err
	}
	shared := object{"nvidia.com/gpu.replicas": strconv.Itoa(count.replicas)}
	if err := labelNodes(cluster, shared, object{}); err != nil {
		return false, err
	}
	ready := true
	for _, operand := range operands(policy, count) {
		if err := cluster.apply(operand.path(), operand.manifest(policy)); err != nil {
			return false, err
		}
		made, err := cluster.get(operand.path())
		if err != nil {
			return false, err
		}
		ready = ready && rolledOut(made)
	}
	return ready, nil
}

// rolledOut says whether each node that is to have a pod of the DaemonSet has a ready, new one.
func rolledOut(daemonSet object) bool {
	number := func(keys ...string) float64 {
		value, _ := at(daemonSet, keys...).(float64)
		return value
	}
	wanted := number("status", "desiredNumberScheduled")
	return number("status", "observedGeneration") == number("metadata", "generation") && wanted > 0 &&
		number("status", "numberReady") == wanted && number("status", "updatedNumberScheduled") == wanted
}

func writeStatus(cluster *api, policy object, state, reason, problem string) error {
	there, _ := at(policy, "status", "conditions").([]any)
	same := text(policy, "status", "state") == state && len(there) == 2
	ready, failed := "False", "False"
	if reason == "Reconciled" {
		ready = "True"
	}
	if problem != "" {
		failed = "True"
	}
	now := time.Now().UTC().Format(time.RFC3339)
	conditions := []object{
		{"type": "Ready", "status": ready, "reason": reason, "message": "", "lastTransitionTime": now},
		{"type": "Error", "status": failed, "reason": reason, "message": problem, "lastTransitionTime": now},
	}
	for i := range conditions {
		same = same && text(there[i], "reason") == reason && text(there[i], "status") == conditions[i]["status"] &&
			text(there[i], "message") == conditions[i]["message"]
	}
	if same {
		return nil
	}
	log.Printf("%s: %s %s", text(policy, "metadata", "name"), reason, problem)
	status := object{"namespace": namespace(), "conditions": conditions}
	if state != "" {
		status["state"] = state
	}
	return cluster.merge(
		policies+"/"+text(policy, "metadata", "name")+"/status", object{"status": status})
}

func namespace() string { return os.Getenv("OPERATOR_NAMESPACE") }
