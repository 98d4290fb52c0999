module disttrain.local/tests/probe

go 1.25
