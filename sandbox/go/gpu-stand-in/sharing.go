package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// gpuCount is how many GPUs each node has, and how many times each one is offered.
type gpuCount struct{ physical, replicas int }

var replicas = regexp.MustCompile(`replicas: (\d+)`)

// countGPUs reads the time slices from the ConfigMap that the policy names for the device plugin.
func countGPUs(cluster *api, policy object) (gpuCount, error) {
	physical, err := strconv.Atoi(os.Getenv("GPUS"))
	if err != nil {
		return gpuCount{}, fmt.Errorf("GPUS: %w", err)
	}
	count := gpuCount{physical, 1}
	name := text(policy, "spec", "devicePlugin", "config", "name")
	if name == "" {
		return count, nil
	}
	config, err := cluster.get("/api/v1/namespaces/" + namespace() + "/configmaps/" + name)
	if err != nil {
		return count, err
	}
	content := text(config, "data", text(policy, "spec", "devicePlugin", "config", "default"))
	if found := replicas.FindStringSubmatch(content); found != nil {
		count.replicas, err = strconv.Atoi(found[1])
	}
	return count, err
}
