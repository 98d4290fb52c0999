package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	p "github.com/pulumi/pulumi-go-provider"
)

// Texts are the shell texts of a command's life, and the values that replace it when they change.
type Texts struct {
	Triggers *[]any  `pulumi:"triggers,optional" provider:"replaceOnChanges"`
	Create   *string `pulumi:"create,optional"`
	Update   *string `pulumi:"update,optional"`
	Delete   *string `pulumi:"delete,optional"`
}

// Streams is what the last run printed, each stream without its last line end.
type Streams struct {
	Stdout string `pulumi:"stdout"`
	Stderr string `pulumi:"stderr"`
}

// runnable is the state of a command: it runs a text and keeps what the text printed.
type runnable interface {
	run(ctx context.Context, text string) error
}

// runFirst runs the first text that was given. A preview runs nothing.
func runFirst(ctx context.Context, preview bool, state runnable, texts ...*string) error {
	for _, text := range texts {
		if text != nil && !preview {
			return state.run(ctx, *text)
		}
	}
	return nil
}

// previous are the variables that tell a command what its last run printed.
func (s Streams) previous(wanted *bool) map[string]string {
	variables := map[string]string{}
	if wanted == nil || *wanted {
		for name, text := range map[string]string{
			"PULUMI_COMMAND_STDOUT": s.Stdout, "PULUMI_COMMAND_STDERR": s.Stderr,
		} {
			if text != "" {
				variables[name] = text
			}
		}
	}
	return variables
}

// capture keeps what a command prints, and passes the lines on to the status of its resource.
type capture struct {
	stdout, stderr bytes.Buffer
	both           bytes.Buffer // in the order of writing, for the error
	guard          sync.Mutex
	logging        string
	lines          *io.PipeWriter
	logged         chan struct{}
}

func newCapture(ctx context.Context, logging *string) *capture {
	reader, writer := io.Pipe()
	c := &capture{logging: "stdoutAndStderr", lines: writer, logged: make(chan struct{})}
	if logging != nil {
		c.logging = *logging
	}
	go func() {
		defer close(c.logged)
		// A line of more than 64 KiB ends the scanner. Nobody reads the pipe then, and the command
		// hangs at its next write. The official plugin does the same.
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			p.GetLogger(ctx).InfoStatus(scanner.Text())
		}
	}()
	return c
}

// streams are the writers for stdout and stderr.
func (c *capture) streams() (stdout, stderr io.Writer) {
	writer := func(name string, own *bytes.Buffer) io.Writer {
		if c.logging == name || c.logging == "stdoutAndStderr" {
			return io.MultiWriter(own, (*both)(c), c.lines)
		}
		return io.MultiWriter(own, (*both)(c))
	}
	return writer("stdout", &c.stdout), writer("stderr", &c.stderr)
}

// end waits for the last log line and returns the streams, or the error with all that was printed.
func (c *capture) end(text string, failure error) (Streams, error) {
	_ = c.lines.Close() // never fails
	<-c.logged
	if failure != nil {
		return Streams{}, fmt.Errorf("%w: running %q:\n%s", failure, text, c.both.String())
	}
	return Streams{
		Stdout: strings.TrimSuffix(c.stdout.String(), "\n"),
		Stderr: strings.TrimSuffix(c.stderr.String(), "\n"),
	}, nil
}

// both is the capture as a writer for either stream, which write at the same time.
type both capture

func (b *both) Write(data []byte) (int, error) {
	b.guard.Lock()
	defer b.guard.Unlock()
	return b.both.Write(data)
}
