package main

import "fmt"

// operand is a DaemonSet that the operator makes and that is deleted with the ClusterPolicy.
type operand struct {
	name  string
	label string // of nodes that get it
	image string
	init  string // argument of the container that runs first, if there is one
	part  string // argument of the container that stays
	gpus  int
}

// operands are the parts of the policy that are made here: the device plugin and the validator.
func operands(policy object, count gpuCount) []operand {
	return []operand{
		{
			name:  "nvidia-device-plugin-daemonset",
			label: "nvidia.com/gpu.deploy.device-plugin",
			image: image(policy, "devicePlugin"),
			part:  "device-plugin",
			gpus:  count.physical * count.replicas,
		},
		{
			name:  "nvidia-operator-validator",
			label: "nvidia.com/gpu.deploy.operator-validator",
			image: image(policy, "validator"),
			init:  "plugin-validation",
			part:  "sleep",
		},
	}
}

func image(policy object, section string) string {
	part := func(name string) string { return text(policy, "spec", section, name) }
	return part("repository") + "/" + part("image") + ":" + part("version")
}

func (o operand) path() string {
	return "/apis/apps/v1/namespaces/" + namespace() + "/daemonsets/" + o.name
}

func (o operand) manifest(policy object) object {
	app := object{"app": o.name}
	owner := object{
		"apiVersion":         "nvidia.com/v1",
		"kind":               "ClusterPolicy",
		"name":               text(policy, "metadata", "name"),
		"uid":                text(policy, "metadata", "uid"),
		"controller":         true,
		"blockOwnerDeletion": true,
	}
	pod := object{
		"automountServiceAccountToken": false,
		"nodeSelector":                 object{o.label: "true"},
		"priorityClassName":            "system-node-critical",
		"tolerations":                  []object{{"key": "nvidia.com/gpu", "operator": "Exists"}},
		"containers":                   []object{o.container(o.name, o.part)},
		"volumes": []object{{
			"name":     "plugins",
			"hostPath": object{"path": "/var/lib/kubelet/device-plugins", "type": "Directory"},
		}},
	}
	if o.init != "" {
		pod["initContainers"] = []object{o.container(o.init, o.init)}
	}
	return object{
		"apiVersion": "apps/v1",
		"kind":       "DaemonSet",
		"metadata":   object{"name": o.name, "labels": app, "ownerReferences": []object{owner}},
		"spec": object{
			"selector": object{"matchLabels": app},
			"template": object{"metadata": object{"labels": app}, "spec": pod},
		},
	}
}

func (o operand) container(name, part string) object {
	return object{
		"name":            name,
		"image":           o.image,
		"imagePullPolicy": "IfNotPresent",
		"args":            []string{part},
		"env":             []object{{"name": "GPUS", "value": fmt.Sprint(o.gpus)}},
		"securityContext": object{"privileged": true},
		"volumeMounts":    []object{{"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"}},
	}
}
