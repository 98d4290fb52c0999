package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

//go:embed schema.json
var schema []byte

// provider maps the life cycle of resources to commands. What it must know of the past is in the
// state that the engine hands it; it keeps nothing itself.
type provider struct {
	plugin.UnimplementedProvider
	engine pulumirpc.EngineClient
	alive  context.Context // ends when the engine cancels or goes away
	cancel context.CancelFunc
}

func newProvider(ctx context.Context, engine pulumirpc.EngineClient) *provider {
	alive, cancel := context.WithCancel(ctx)
	return &provider{engine: engine, alive: alive, cancel: cancel}
}

// Handshake says which kinds of values we take.
func (*provider) Handshake(
	context.Context, plugin.ProviderHandshakeRequest,
) (*plugin.ProviderHandshakeResponse, error) {
	return &plugin.ProviderHandshakeResponse{AcceptSecrets: true, AcceptOutputs: true}, nil
}

// GetPluginInfo tells the version.
func (*provider) GetPluginInfo(context.Context) (plugin.PluginInfo, error) {
	parsed := semver.MustParse(version)
	return plugin.PluginInfo{Version: &parsed}, nil
}

// GetSchema returns tokens and properties in Pulumi's schema format.
func (*provider) GetSchema(
	context.Context, plugin.GetSchemaRequest,
) (plugin.GetSchemaResponse, error) {
	return plugin.GetSchemaResponse{Schema: schema}, nil
}

// CheckConfig takes any configuration: there is nothing to configure.
func (*provider) CheckConfig(
	_ context.Context, req plugin.CheckConfigRequest,
) (plugin.CheckConfigResponse, error) {
	return plugin.CheckConfigResponse{Properties: req.News}, nil
}

// DiffConfig never asks for an update.
func (*provider) DiffConfig(
	context.Context, plugin.DiffConfigRequest,
) (plugin.DiffConfigResponse, error) {
	return plugin.DiffResult{Changes: plugin.DiffNone}, nil
}

// Configure has nothing to do.
func (*provider) Configure(
	context.Context, plugin.ConfigureRequest,
) (plugin.ConfigureResponse, error) {
	return plugin.ConfigureResponse{}, nil
}

// SignalCancellation ends the commands that run and lets no other begin.
func (p *provider) SignalCancellation(context.Context) error {
	p.cancel()
	return nil
}

// Check validates the inputs and leaves them as they are.
func (*provider) Check(_ context.Context, req plugin.CheckRequest) (plugin.CheckResponse, error) {
	failures := check(string(req.Type), req.News)
	return plugin.CheckResponse{Properties: req.News, Failures: failures}, nil
}

// Diff: any changed input is an update, changed triggers are a replacement.
func (*provider) Diff(_ context.Context, req plugin.DiffRequest) (plugin.DiffResponse, error) {
	detailed := plugin.NewDetailedDiffFromObjectDiff(req.OldInputs.Diff(req.NewInputs), true)
	if len(detailed) == 0 {
		return plugin.DiffResult{Changes: plugin.DiffNone}, nil
	}
	for path, change := range detailed {
		if path == "triggers" || strings.HasPrefix(path, "triggers[") {
			detailed[path] = change.ToReplace()
		}
	}
	return plugin.DiffResult{Changes: plugin.DiffSome, DetailedDiff: detailed}, nil
}

// Create runs `create`; a preview runs nothing.
func (p *provider) Create(
	ctx context.Context, req plugin.CreateRequest,
) (plugin.CreateResponse, error) {
	if req.Preview {
		return plugin.CreateResponse{Properties: unknownOutputs(req.Type, req.Properties)}, nil
	}
	ctx, done := p.bounded(ctx, req.Timeout)
	defer done()
	state, err := p.apply(ctx, req.URN, req.Type, req.Properties, nil)
	if err != nil {
		return plugin.CreateResponse{}, explain(ctx, err)
	}
	id, err := resource.NewUniqueHexID(req.Name, 8, 0)
	return plugin.CreateResponse{ID: id, Properties: state}, err
}

// Read returns the recorded state: what a command did cannot be asked for.
func (*provider) Read(_ context.Context, req plugin.ReadRequest) (plugin.ReadResponse, error) {
	return plugin.ReadResponse{
		ReadResult: plugin.ReadResult{ID: req.ID, Inputs: req.Inputs, Outputs: req.State},
	}, nil
}

// Update runs `update`, or `create` where there is none; a preview runs nothing.
func (p *provider) Update(
	ctx context.Context, req plugin.UpdateRequest,
) (plugin.UpdateResponse, error) {
	if req.Preview {
		return plugin.UpdateResponse{Properties: unknownOutputs(req.Type, req.NewInputs)}, nil
	}
	ctx, done := p.bounded(ctx, req.Timeout)
	defer done()
	state, err := p.apply(ctx, req.URN, req.Type, req.NewInputs, req.OldOutputs)
	return plugin.UpdateResponse{Properties: state}, explain(ctx, err)
}

// Delete runs the `delete` of the recorded state; copied files stay.
func (p *provider) Delete(
	ctx context.Context, req plugin.DeleteRequest,
) (plugin.DeleteResponse, error) {
	if req.Type == copyToRemote {
		return plugin.DeleteResponse{}, nil
	}
	ctx, done := p.bounded(ctx, req.Timeout)
	defer done()
	c, err := newCommand(req.Type, req.Outputs)
	if err == nil && c.Delete != "" {
		_, err = p.execute(ctx, req.URN, c, c.Delete, req.Outputs)
	}
	return plugin.DeleteResponse{}, explain(ctx, err)
}

// Invoke serves local.run, which runs at preview too.
func (p *provider) Invoke(
	ctx context.Context, req plugin.InvokeRequest,
) (plugin.InvokeResponse, error) {
	if failures := check(string(req.Tok), req.Args); len(failures) > 0 {
		return plugin.InvokeResponse{Failures: failures}, nil
	}
	ctx, done := p.bounded(ctx, 0)
	defer done()
	c, err := newCommand(tokens.Type(req.Tok), req.Args)
	if err != nil {
		return plugin.InvokeResponse{}, err
	}
	outputs, err := p.execute(ctx, "", c, c.local.Command, nil)
	return plugin.InvokeResponse{Properties: outputs}, explain(ctx, err)
}

// apply does what a create (old is nil) or an update asks for and returns the new state.
func (p *provider) apply(
	ctx context.Context, urn resource.URN, typ tokens.Type, inputs, old resource.PropertyMap,
) (resource.PropertyMap, error) {
	if typ == copyToRemote {
		return inputs, p.copySource(ctx, inputs, old)
	}
	c, err := newCommand(typ, inputs)
	if err != nil {
		return nil, err
	}
	text := c.Create
	if old != nil && c.Update != "" {
		text = c.Update
	}
	return p.execute(ctx, urn, c, text, old)
}

// unknownOutputs is what a preview knows of the state to come: all but what the command prints.
func unknownOutputs(typ tokens.Type, inputs resource.PropertyMap) resource.PropertyMap {
	state := inputs.Copy()
	if typ == copyToRemote {
		return state
	}
	unknown := resource.MakeComputed(resource.NewProperty(""))
	state["stdout"], state["stderr"] = unknown, unknown
	for paths, output := range pathOutputs {
		if inputs.HasValue(paths) {
			state[output] = unknown
		}
	}
	return state
}

// errTimeout is why a context ended whose operation ran past its customTimeouts.
var errTimeout = errors.New("ran past the resource's customTimeouts")

// bounded is a context that ends with the engine, and after the given seconds unless they are 0.
func (p *provider) bounded(
	ctx context.Context, seconds float64,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.alive, func() { cancel(errors.New("cancelled")) })
	var expire *time.Timer
	if seconds > 0 {
		expire = time.AfterFunc(time.Duration(seconds*float64(time.Second)), func() { cancel(errTimeout) })
	}
	return ctx, func() {
		stop()
		if expire != nil {
			expire.Stop()
		}
		cancel(nil)
	}
}

// explain adds why the context ended, if it did, to the error of an operation.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
