module disttrain.local/sandbox/volcano-1.15

go 1.26.0

require volcano.sh/volcano v1.15.1
