package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// object is a Kubernetes object, or a part of one, as its JSON text says.
type object = map[string]any

// api is the cluster's API server, asked with the pod's own service account.
type api struct {
	client http.Client
	server string
}

func newAPI() *api {
	authorities, err := os.ReadFile(account + "ca.crt")
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	return &api{
		client: http.Client{Timeout: 10 * time.Second, Transport: transport},
		server: "https://" + os.Getenv("KUBERNETES_SERVICE_HOST") + ":" + os.Getenv("KUBERNETES_SERVICE_PORT"),
	}
}

// get reads one object or one list.
func (a *api) get(path string) (object, error) {
	return a.send(http.MethodGet, path, "", nil)
}

// merge changes the fields that are named in the change (a JSON merge patch).
func (a *api) merge(path string, change object) error {
	_, err := a.send(http.MethodPatch, path, "application/merge-patch+json", change)
	return err
}

// apply makes or updates an object by server-side apply.
func (a *api) apply(path string, wanted object) error {
	path += "?fieldManager=gpu-operator&force=true"
	_, err := a.send(http.MethodPatch, path, "application/apply-patch+yaml", wanted)
	return err
}

func (a *api) send(method, path, kind string, content object) (object, error) {
	var body io.Reader
	if content != nil {
		packed, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(packed)
	}
	request, err := http.NewRequest(method, a.server+path, body)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(account + "token") // the kubelet renews it
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	answer := object{}
	return answer, json.Unmarshal(text, &answer)
}

// at is the value at a path of keys below an object; nil where a key is missing.
func at(value any, keys ...string) any {
	for _, key := range keys {
		inside, _ := value.(object)
		value = inside[key]
	}
	return value
}

// text is the text at a path of keys; empty where there is none.
func text(value any, keys ...string) string {
	found, _ := at(value, keys...).(string)
	return found
}

// items are the objects of a list.
func items(list object) []object {
	values, _ := list["items"].([]any)
	found := make([]object, 0, len(values))
	for _, value := range values {
		found = append(found, value.(object))
	}
	return found
}
