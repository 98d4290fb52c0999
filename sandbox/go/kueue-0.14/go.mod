module disttrain.local/sandbox/kueue-0.14

go 1.26.0

require sigs.k8s.io/kueue v0.14.8
