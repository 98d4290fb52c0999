package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// command is one resource's or function call's inputs; just one of local and remote is set.
type command struct {
	commonInputs
	local  *localInputs
	remote *remoteInputs
	inputs resource.PropertyMap
}

// variable is one environment variable. A lenient one may be refused by a remote host.
type variable struct {
	name, value string
	lenient     bool
}

// invocation is one run of a shell text.
type invocation struct {
	text           string
	variables      []variable
	stdin          *string
	stdout, stderr io.Writer
	warn           func(message string)
}

func newCommand(typ tokens.Type, inputs resource.PropertyMap) (command, error) {
	c := command{inputs: inputs}
	if typ == remoteCommand {
		c.remote = &remoteInputs{}
		err := decode(inputs, c.remote)
		c.commonInputs = c.remote.commonInputs
		return c, err
	}
	c.local = &localInputs{}
	err := decode(inputs, c.local)
	c.commonInputs = c.local.commonInputs
	return c, err
}

// execute runs text and returns the inputs plus what came out. An empty text runs nothing. The
// outputs of the previous run come from the old state, which is nil for a first run.
func (p *provider) execute(
	ctx context.Context, urn resource.URN, c command, text string, old resource.PropertyMap,
) (resource.PropertyMap, error) {
	mask := masker(c.inputs)
	log := func(severity pulumirpc.LogSeverity, message string) {
		// Ephemeral messages are the status line of the resource. A log that cannot be delivered must
		// not fail the command, and the last lines of a cancelled one are still wanted.
		_, _ = p.engine.Log(context.WithoutCancel(ctx), &pulumirpc.LogRequest{
			Severity: severity, Urn: string(urn), Message: valid(mask.Replace(message)),
			Ephemeral: severity == pulumirpc.LogSeverity_INFO,
		})
	}
	capture := &capture{line: func(line string) { log(pulumirpc.LogSeverity_INFO, line) }}
	both := c.Logging == "" || c.Logging == "stdoutAndStderr"
	stdout := capture.stream(both || c.Logging == "stdout")
	stderr := capture.stream(both || c.Logging == "stderr")

	if text != "" {
		variables, err := c.variables(old)
		if err != nil {
			return nil, err
		}
		run := invocation{text, variables, c.Stdin, stdout, stderr,
			func(message string) { log(pulumirpc.LogSeverity_WARNING, message) }}
		if c.remote != nil {
			err = runRemote(ctx, c.remote.Connection, run)
		} else {
			err = runLocal(ctx, c.local.Interpreter, c.local.Dir, run)
		}
		stdout.flush()
		stderr.flush()
		if err != nil {
			return nil, fmt.Errorf("%w: running %q:\n%s",
				err, mask.Replace(text), mask.Replace(valid(capture.all.String())))
		}
	}

	state := c.inputs.Copy()
	state["stdout"] = resource.NewProperty(stdout.text())
	state["stderr"] = resource.NewProperty(stderr.text())
	if c.local != nil {
		if err := addFiles(*c.local, state); err != nil {
			return nil, err
		}
	}
	return keepSecrets(c.inputs, state), nil
}

// keepSecrets marks the connection, and every output of a command that was given a secret.
func keepSecrets(inputs, state resource.PropertyMap) resource.PropertyMap {
	tainted := false
	for key, value := range inputs {
		tainted = tainted || key != "connection" && value.ContainsSecrets()
	}
	for key, value := range state {
		_, isInput := inputs[key]
		if (key == "connection" || tainted && !isInput) && !value.IsSecret() {
			state[key] = resource.MakeSecret(value)
		}
	}
	return state
}

// variables are the command's own ones, sorted, and the outputs of its previous run.
func (c command) variables(old resource.PropertyMap) ([]variable, error) {
	var list []variable
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		list = append(list, variable{name: name, value: c.Environment[name]})
	}
	if old == nil || (c.AddPreviousOutputInEnv != nil && !*c.AddPreviousOutputInEnv) {
		return list, nil
	}
	var previous struct{ Stdout, Stderr string }
	outputs := resource.PropertyMap{"stdout": old["stdout"], "stderr": old["stderr"]}
	if err := decode(outputs, &previous); err != nil {
		return nil, err
	}
	return append(list,
		variable{"PULUMI_COMMAND_STDOUT", previous.Stdout, true},
		variable{"PULUMI_COMMAND_STDERR", previous.Stderr, true}), nil
}

// capture collects the streams of a command, each for itself and all in the order they came.
type capture struct {
	sync.Mutex
	all  bytes.Buffer
	line func(string)
}

// maxLogLine cuts what has no line ends, such as base64 of a file, into pieces fit for a log.
const maxLogLine = 4096

// stream is one output of a command: kept whole, and passed on line by line where it is logged.
type stream struct {
	*capture
	logged  bool
	whole   bytes.Buffer
	pending []byte
}

func (c *capture) stream(logged bool) *stream { return &stream{capture: c, logged: logged} }

func (s *stream) Write(data []byte) (int, error) {
	s.Lock()
	defer s.Unlock()
	s.all.Write(data)
	s.whole.Write(data)
	for _, b := range data {
		// A progress bar ends its lines with a carriage return.
		if lineEnd := b == '\n' || b == '\r'; !lineEnd {
			s.pending = append(s.pending, b)
		} else {
			s.emit()
		}
		if len(s.pending) >= maxLogLine {
			s.emit()
		}
	}
	return len(data), nil
}

func (s *stream) flush() {
	s.Lock()
	defer s.Unlock()
	s.emit()
}

func (s *stream) emit() {
	if s.logged && len(s.pending) > 0 {
		s.line(string(s.pending))
	}
	s.pending = s.pending[:0]
}

// text is the stream without its last line end.
func (s *stream) text() string { return valid(strings.TrimSuffix(s.whole.String(), "\n")) }

// valid makes UTF-8 of any bytes: the engine takes nothing else.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
