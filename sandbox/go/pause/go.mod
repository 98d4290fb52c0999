module disttrain.local/sandbox/pause

go 1.25
