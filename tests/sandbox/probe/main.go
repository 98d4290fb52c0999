// Probe is what the tests run in pods: a web server that says its host name, and its client.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		serve(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "get":
		get(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "lookup":
		lookup(os.Args[2])
	default:
		log.Fatal("usage: probe serve ADDRESS | get URL | lookup NAME")
	}
}

func serve(address string) {
	host, err := os.Hostname()
	check(err)
	log.Printf("%s serves on %s", host, address)
	check(http.ListenAndServe(address, http.HandlerFunc(
		func(response http.ResponseWriter, _ *http.Request) { fmt.Fprint(response, host) })))
}

func get(url string) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(err)
	fmt.Print(string(body))
}

func lookup(name string) {
	addresses, err := net.LookupHost(name)
	check(err)
	fmt.Print(strings.Join(addresses, " "))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
