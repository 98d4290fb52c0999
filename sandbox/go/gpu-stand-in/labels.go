package main

import "os"

// discoveryLabels and discoveryAnnotations are what the operator and its discovery of nodes and of
// GPUs write on a node. Nothing takes them away again, neither here nor in NVIDIA's operator.
func discoveryLabels() object {
	return object{
		"feature.node.kubernetes.io/pci-10de.present": "true",
		"nvidia.com/gpu.present":                      "true",
		"nvidia.com/gpu.count":                        os.Getenv("GPUS"),
		"nvidia.com/gpu.product":                      "Stand-In",
		"nvidia.com/mig.strategy":                     "single",
		"nvidia.com/gpu.deploy.device-plugin":         "true",
		"nvidia.com/gpu.deploy.operator-validator":    "true",
	}
}

func discoveryAnnotations() object {
	return object{
		"nfd.node.kubernetes.io/feature-labels": "pci-10de.present",
		"nvidia.com/gpu-driver-upgrade-enabled": "true",
	}
}

// labelNodes writes what a node lacks; each node is taken for one with GPUs.
func labelNodes(cluster *api, labels, annotations object) error {
	nodes, err := cluster.get("/api/v1/nodes")
	if err != nil {
		return err
	}
	change := object{"metadata": object{"labels": labels, "annotations": annotations}}
	for _, node := range items(nodes) {
		if holds(node, "labels", labels) && holds(node, "annotations", annotations) {
			continue
		}
		if err := cluster.merge("/api/v1/nodes/"+text(node, "metadata", "name"), change); err != nil {
			return err
		}
	}
	return nil
}

func holds(node object, field string, wanted object) bool {
	there, _ := at(node, "metadata", field).(object)
	for key, value := range wanted {
		if there[key] != value {
			return false
		}
	}
	return true
}
