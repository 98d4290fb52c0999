// Command pulumi-resource-command is disttrain's stand-in for the resource plugin of Pulumi's
// "command" package, for machines that cannot download the official one. See README.md.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/pulumi/pulumi-go-provider/infer"
)

// version is that of the SDK that asks for this plugin.
const version = "1.2.1"

func main() {
	provider, err := infer.NewProviderBuilder().
		WithDisplayName("Command").
		WithDescription("The disttrain stand-in for Pulumi's command provider.").
		WithResources(
			infer.Resource(&LocalCommand{}),
			infer.Resource(&RemoteCommand{}),
			infer.Resource(&CopyToRemote{}),
		).
		WithFunctions(infer.Function(&Run{})).
		Build()
	if err == nil {
		err = provider.Run(context.Background(), "command", version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-command:", err)
		os.Exit(1)
	}
}
