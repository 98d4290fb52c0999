module disttrain.local/sandbox/jobset-0.8

go 1.26.0

require sigs.k8s.io/jobset v0.8.2
