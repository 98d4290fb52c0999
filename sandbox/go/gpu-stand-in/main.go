// This program stands in for the parts of NVIDIA's GPU Operator: the operator itself, its device
// plugin and its validator; in pods of tests it is a user of GPUs. Its only argument says which of
// these it is. The sandbox starts the device plugin alone, as a process of the node.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(log.Ltime)
	part := ""
	if len(os.Args) == 2 {
		part = os.Args[1]
	}
	switch part {
	case "operator":
		runOperator()
	case "device-plugin":
		runDevicePlugin()
	case "plugin-validation":
		waitForDevicePlugin()
	case "visible-devices":
		fmt.Println(os.Getenv("NVIDIA_VISIBLE_DEVICES"))
	case "sleep":
		log.Print("all validations are successful")
		waitForTheEnd()
	default:
		log.Fatal("usage: gpu-operator operator | device-plugin | plugin-validation | visible-devices | sleep")
	}
}

// waitForDevicePlugin returns when the device plugin's socket answers.
func waitForDevicePlugin() {
	for {
		connection, err := net.Dial("unix", pluginSocket)
		if err == nil {
			check(connection.Close())
			return
		}
		log.Printf("the device plugin is not there yet: %v", err)
		time.Sleep(time.Second)
	}
}

// waitForTheEnd returns when the pod is told to end.
func waitForTheEnd() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	<-told
}

// check ends the program with the error's text; the pod's restart is the second try.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
