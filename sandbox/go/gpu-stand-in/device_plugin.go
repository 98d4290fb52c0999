package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource     = "nvidia.com/gpu"
	socketName   = "nvidia-gpu.sock"
	pluginSocket = plugin.DevicePluginPath + socketName
)

// devicePlugin offers devices that do not exist; a container gets their names and nothing else.
type devicePlugin struct {
	plugin.UnimplementedDevicePluginServer
	devices []*plugin.Device
}

// runDevicePlugin serves the kubelet until it is gone; after each start of the kubelet, which
// removes all sockets of plugins, it begins anew.
func runDevicePlugin() {
	count, err := strconv.Atoi(os.Getenv("GPUS"))
	check(err)
	offered := &devicePlugin{}
	for i := range count {
		id := fmt.Sprintf("GPU-%08d", i)
		offered.devices = append(offered.devices, &plugin.Device{ID: id, Health: plugin.Healthy})
	}
	for {
		check(offered.serve())
		log.Print("the kubelet was started again")
	}
}

// serve returns when the kubelet has removed the plugin's socket.
func (p *devicePlugin) serve() error {
	if err := os.Remove(pluginSocket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", pluginSocket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, p)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer server.Stop()
	if err := register(); err != nil {
		return err
	}
	log.Printf("offered %d of %s", len(p.devices), resource)
	for {
		select {
		case err := <-failed:
			return err
		case <-time.After(time.Second):
			if _, err := os.Stat(pluginSocket); os.IsNotExist(err) {
				return nil
			}
		}
	}
}

// register tells the kubelet where the plugin listens and what it offers.
func register() error {
	kubelet, err := grpc.NewClient(
		"unix://"+plugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request := &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: socketName, ResourceName: resource,
	}
	_, err = plugin.NewRegistrationClient(kubelet).Register(ctx, request)
	return err
}

// GetDevicePluginOptions says that the kubelet need not ask before it starts a container.
func (p *devicePlugin) GetDevicePluginOptions(
	context.Context, *plugin.Empty,
) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices once: their health never changes.
func (p *devicePlugin) ListAndWatch(_ *plugin.Empty, stream plugin.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&plugin.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate gives each container the names of its devices, as NVIDIA's plugin does.
func (p *devicePlugin) Allocate(
	_ context.Context, request *plugin.AllocateRequest,
) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given := map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}
		response.ContainerResponses = append(
			response.ContainerResponses, &plugin.ContainerAllocateResponse{Envs: given})
	}
	return response, nil
}
