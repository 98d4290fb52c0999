package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
)

// The tokens of the package.
const (
	localCommand  = "command:local:Command"
	remoteCommand = "command:remote:Command"
	copyToRemote  = "command:remote:CopyToRemote"
	localRun      = "command:local:run"
)

// commonInputs are the properties of every command; Stdout and Stderr are there in state only.
type commonInputs struct {
	Create                 string            `json:"create"`
	Update                 string            `json:"update"`
	Delete                 string            `json:"delete"`
	Environment            map[string]string `json:"environment"`
	Stdin                  *string           `json:"stdin"`
	Logging                string            `json:"logging"`
	AddPreviousOutputInEnv *bool             `json:"addPreviousOutputInEnv"`
	Triggers               any               `json:"triggers"`
	Stdout                 string            `json:"stdout"`
	Stderr                 string            `json:"stderr"`
}

// localInputs serve local.Command and local.run; only the latter has Command.
type localInputs struct {
	commonInputs
	Command      string   `json:"command"`
	Interpreter  []string `json:"interpreter"`
	Dir          string   `json:"dir"`
	AssetPaths   []string `json:"assetPaths"`
	ArchivePaths []string `json:"archivePaths"`
	Assets       any      `json:"assets"`
	Archive      any      `json:"archive"`
}

type remoteInputs struct {
	commonInputs
	Connection connection `json:"connection"`
}

type copyInputs struct {
	Connection connection `json:"connection"`
	RemotePath string     `json:"remotePath"`
	Source     any        `json:"source"` // assets do not go through JSON: see copy.go
	Triggers   any        `json:"triggers"`
}

// connection says how to reach a host; the jump host in Proxy has none of its own.
type connection struct {
	Host               string      `json:"host"`
	Port               int         `json:"port"`
	User               string      `json:"user"`
	Password           string      `json:"password"`
	PrivateKey         string      `json:"privateKey"`
	PrivateKeyPassword string      `json:"privateKeyPassword"`
	AgentSocketPath    string      `json:"agentSocketPath"`
	HostKey            string      `json:"hostKey"`
	DialErrorLimit     int         `json:"dialErrorLimit"`
	PerDialTimeout     int         `json:"perDialTimeout"` // seconds
	Proxy              *connection `json:"proxy"`
}

// UnmarshalJSON starts from the defaults.
func (c *connection) UnmarshalJSON(text []byte) error {
	type plain connection // has no UnmarshalJSON
	read := plain{User: "root", Port: 22, DialErrorLimit: 10, PerDialTimeout: 15}
	err := strictly(text, &read)
	*c = connection(read)
	return err
}

var loggingModes = []string{"stdout", "stderr", "stdoutAndStderr", "none"}

// decode fills the struct that into points to. Secrets are unwrapped; what is unknown stays zero.
func decode(properties resource.PropertyMap, into any) error {
	var plain func(v resource.PropertyValue) (any, bool)
	plain = func(v resource.PropertyValue) (any, bool) {
		switch {
		case v.IsSecret():
			return v.SecretValue().Element.MapRepl(nil, plain), true
		case v.IsComputed(), v.IsOutput(), v.IsAsset(), v.IsArchive():
			return nil, true
		default:
			return nil, false
		}
	}
	text, err := json.Marshal(properties.MapRepl(nil, plain))
	if err != nil {
		return err
	}
	return strictly(text, into)
}

// strictly decodes JSON without a property that the struct does not know.
func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// check returns what is wrong with the inputs of a resource or function, as far as they are known.
func check(token string, inputs resource.PropertyMap) []plugin.CheckFailure {
	var failures []plugin.CheckFailure
	fail := func(property, reason string) {
		failures = append(failures,
			plugin.CheckFailure{Property: resource.PropertyKey(property), Reason: reason})
	}
	required := func(properties ...string) {
		for _, property := range properties {
			if !inputs.HasValue(resource.PropertyKey(property)) {
				fail(property, "is required and was not given")
			}
		}
	}
	var target any
	local, remote, source := localInputs{}, remoteInputs{}, copyInputs{}
	switch token {
	case localRun:
		required("command")
		target = &local
	case localCommand:
		target = &local
	case remoteCommand:
		required("connection")
		target = &remote
	case copyToRemote:
		required("connection", "source", "remotePath")
		target = &source
	default:
		fail("", fmt.Sprintf("%q is not a token of this plugin", token))
		return failures
	}
	var mismatch *json.UnmarshalTypeError
	if err := decode(inputs, target); errors.As(err, &mismatch) {
		field := strings.TrimPrefix(mismatch.Field, "commonInputs.")
		fail(field, fmt.Sprintf("is of type %s, must be %s", mismatch.Value, mismatch.Type))
	} else if err != nil {
		fail("", err.Error())
	}
	if mode := local.Logging + remote.Logging; mode != "" && !slices.Contains(loggingModes, mode) {
		fail("logging", fmt.Sprintf("is %q, must be one of %s", mode, strings.Join(loggingModes, ", ")))
	}
	return failures
}

// masker replaces what is secret in the inputs. The connection is left out: the words in it, such as
// a user "root" or a host's address, are in every other line, and its keys reach no command.
func masker(inputs resource.PropertyMap) *strings.Replacer {
	var secrets []string
	var collect func(v resource.PropertyValue, inSecret bool)
	collect = func(v resource.PropertyValue, inSecret bool) {
		switch {
		case v.IsSecret():
			collect(v.SecretValue().Element, true)
		case v.IsObject():
			for _, element := range v.ObjectValue() {
				collect(element, inSecret)
			}
		case v.IsArray():
			for _, element := range v.ArrayValue() {
				collect(element, inSecret)
			}
		case v.IsString() && inSecret && len(v.StringValue()) > 3: // shorter ones would mask half the log
			secrets = append(secrets, v.StringValue())
		}
	}
	for key, value := range inputs {
		if key != "connection" {
			collect(value, false)
		}
	}
	// The replacer takes the first that fits: a secret that starts with another one must be ahead of it.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(secrets))
	for _, secret := range secrets {
		pairs = append(pairs, secret, "[secret]")
	}
	return strings.NewReplacer(pairs...)
}
