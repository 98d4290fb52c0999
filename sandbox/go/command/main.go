// Command pulumi-resource-command is disttrain's stand-in for the resource plugin of the Pulumi
// "command" package. It answers to the tokens and property names of the public SDKs of version
// 1.2.1, so that a sandbox without access to the official plugin can run the same programs.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
)

// version is that of the SDKs that ask for this plugin; the engine warns when the two differ.
const version = "1.2.1"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version, "(disttrain stand-in)")
		return
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: pulumi-resource-command ENGINE_ADDRESS (the engine starts it)")
		os.Exit(2)
	}
	// The engine puts its own flags first and its address last.
	if err := serve(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-command:", err)
		os.Exit(1)
	}
}

// serve answers the engine until it goes away or ends us; commands still running then are ended.
func serve(engineAddress string) error {
	// Stdout is for the port alone.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr))
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()

	connection, err := grpc.NewClient(engineAddress,
		grpc.WithTransportCredentials(insecure.NewCredentials()), rpcutil.GrpcChannelOptions())
	if err != nil {
		return fmt.Errorf("engine at %s: %w", engineAddress, err)
	}
	if err := rpcutil.Healthcheck(ctx, engineAddress, 10*time.Second, cancel); err != nil {
		return fmt.Errorf("engine at %s: %w", engineAddress, err)
	}
	stop := make(chan bool)
	context.AfterFunc(ctx, func() { close(stop) })

	p := newProvider(ctx, pulumirpc.NewEngineClient(connection))
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stop,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterResourceProviderServer(server, plugin.NewProviderServer(p))
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port)
	return <-handle.Done
}
