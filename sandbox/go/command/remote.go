package main

import (
	"context"
	"fmt"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// RemoteCommand is the resource remote.Command.
type RemoteCommand struct{}

// RemoteArgs are its inputs.
type RemoteArgs struct {
	Texts
	Stdin                  *string           `pulumi:"stdin,optional"`
	Logging                *string           `pulumi:"logging,optional"`
	Connection             *Connection       `pulumi:"connection" provider:"secret"`
	Environment            map[string]string `pulumi:"environment,optional"`
	AddPreviousOutputInEnv *bool             `pulumi:"addPreviousOutputInEnv,optional"`
}

// RemoteState are its inputs and outputs.
type RemoteState struct {
	RemoteArgs
	Streams
}

// Annotate gives the resource its token.
func (c *RemoteCommand) Annotate(a infer.Annotator) { a.SetToken("remote", "Command") }

// Create runs `create`.
func (*RemoteCommand) Create(
	ctx context.Context, req infer.CreateRequest[RemoteArgs],
) (answer infer.CreateResponse[RemoteState], err error) {
	answer.Output.RemoteArgs = req.Inputs
	if answer.ID, err = resource.NewUniqueHex(req.Name, 8, 0); err == nil {
		err = runFirst(ctx, req.DryRun, &answer.Output, req.Inputs.Create)
	}
	return answer, err
}

// Update runs `update`, or `create` where there is none.
func (*RemoteCommand) Update(
	ctx context.Context, req infer.UpdateRequest[RemoteArgs, RemoteState],
) (answer infer.UpdateResponse[RemoteState], err error) {
	answer.Output = RemoteState{req.Inputs, req.State.Streams}
	err = runFirst(ctx, req.DryRun, &answer.Output, req.Inputs.Update, req.Inputs.Create)
	return answer, err
}

// Delete runs the `delete` of the state.
func (*RemoteCommand) Delete(
	ctx context.Context, req infer.DeleteRequest[RemoteState],
) (infer.DeleteResponse, error) {
	return infer.DeleteResponse{}, runFirst(ctx, false, &req.State, req.State.Delete)
}

// run runs the text in the login shell of the host. Only the end of the text ends it: a cancelled
// context does not. The connection stays open until this plugin ends.
func (s *RemoteState) run(ctx context.Context, text string) error {
	client, err := s.Connection.dial(ctx)
	if err != nil {
		return err
	}
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // an error says that it is closed
	log := p.GetLogger(ctx)
	for name, value := range s.Environment {
		if err := session.Setenv(name, value); err != nil {
			log.Error(refused(name))
			return fmt.Errorf("%s: %w", refused(name), err)
		}
	}
	for name, value := range s.previous(s.AddPreviousOutputInEnv) {
		if session.Setenv(name, value) != nil {
			log.Warning(refused(name))
		}
	}
	if s.Stdin != nil && *s.Stdin != "" {
		session.Stdin = strings.NewReader(*s.Stdin)
	}
	printed := newCapture(ctx, s.Logging)
	session.Stdout, session.Stderr = printed.streams()
	streams, err := printed.end(text, session.Run(text))
	if err == nil {
		s.Streams = streams
	}
	return err
}

func refused(variable string) string {
	return fmt.Sprintf("The SSH server refused the environment variable %s: its setting AcceptEnv "+
		"does not name it. The command itself can set it: \"%[1]s=value command\".", variable)
}
