// Command pulumi-resource-kubernetes is the real Kubernetes provider of Pulumi, served from its published
// module. Only this entry point is ours: the module leaves its generated schema out, which only code
// generators ask for.
package main

import (
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

func main() {
	schema := []byte(`{"name":"kubernetes","version":"` + version.Version + `"}`)
	provider.Serve("kubernetes", version.Version, schema, []byte(`{}`))
}
