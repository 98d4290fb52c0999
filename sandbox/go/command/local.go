package main

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/gobwas/glob"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/infer/types"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// Process says how a program is run on this machine.
type Process struct {
	Stdin                  *string            `pulumi:"stdin,optional"`
	Logging                *string            `pulumi:"logging,optional"`
	Interpreter            *[]string          `pulumi:"interpreter,optional"`
	Dir                    *string            `pulumi:"dir,optional"`
	Environment            *map[string]string `pulumi:"environment,optional"`
	AssetPaths             *[]string          `pulumi:"assetPaths,optional"`
	ArchivePaths           *[]string          `pulumi:"archivePaths,optional"`
	AddPreviousOutputInEnv *bool              `pulumi:"addPreviousOutputInEnv,optional"`
}

// Made is what a program left: what it printed, and the files that the globs of Process match.
type Made struct {
	Streams
	Assets  *map[string]types.AssetOrArchive `pulumi:"assets,optional"`
	Archive *resource.Archive                `pulumi:"archive,optional"`
}

// LocalCommand is the resource local.Command.
type LocalCommand struct{}

// LocalArgs are its inputs.
type LocalArgs struct {
	Texts
	Process
}

// LocalState are its inputs and outputs.
type LocalState struct {
	LocalArgs
	Made
}

// Run is the function local.run, which runs at a preview as well.
type Run struct{}

// RunArgs are its arguments.
type RunArgs struct {
	Process
	Command string `pulumi:"command"`
}

// RunResult is what it returns.
type RunResult struct {
	RunArgs
	Made
}

// Annotate gives the resource its token.
func (c *LocalCommand) Annotate(a infer.Annotator) { a.SetToken("local", "Command") }

// Annotate gives the function its token.
func (r *Run) Annotate(a infer.Annotator) { a.SetToken("local", "run") }

// Create runs `create`.
func (*LocalCommand) Create(
	ctx context.Context, req infer.CreateRequest[LocalArgs],
) (answer infer.CreateResponse[LocalState], err error) {
	answer.Output.LocalArgs = req.Inputs
	if answer.ID, err = resource.NewUniqueHex(req.Name, 8, 0); err == nil {
		err = runFirst(ctx, req.DryRun, &answer.Output, req.Inputs.Create)
	}
	return answer, err
}

// Update runs `update`, or `create` where there is none.
func (*LocalCommand) Update(
	ctx context.Context, req infer.UpdateRequest[LocalArgs, LocalState],
) (answer infer.UpdateResponse[LocalState], err error) {
	answer.Output = LocalState{LocalArgs: req.Inputs, Made: req.State.Made}
	err = runFirst(ctx, req.DryRun, &answer.Output, req.Inputs.Update, req.Inputs.Create)
	return answer, err
}

// Delete runs the `delete` of the state.
func (*LocalCommand) Delete(
	ctx context.Context, req infer.DeleteRequest[LocalState],
) (infer.DeleteResponse, error) {
	return infer.DeleteResponse{}, runFirst(ctx, false, &req.State, req.State.Delete)
}

// Invoke runs the command.
func (*Run) Invoke(
	ctx context.Context, req infer.FunctionRequest[RunArgs],
) (answer infer.FunctionResponse[RunResult], err error) {
	answer.Output.RunArgs = req.Input
	answer.Output.Made, err = req.Input.Process.run(ctx, req.Input.Command, Made{})
	return answer, err
}

func (s *LocalState) run(ctx context.Context, text string) (err error) {
	s.Made, err = s.Process.run(ctx, text, s.Made)
	return err
}

// run runs the text; `last` is what its last run left. When ctx ends, the shell is killed, but not
// its children: as long as one of them holds stdout or stderr open, run does not return.
func (in Process) run(ctx context.Context, text string, last Made) (Made, error) {
	words := []string{"/bin/sh", "-c"}
	if in.Interpreter != nil && len(*in.Interpreter) > 0 {
		words = *in.Interpreter
	}
	words = append(words[:len(words):len(words)], text)
	process := exec.CommandContext(ctx, words[0], words[1:]...)
	directory, err := os.Getwd()
	if in.Dir != nil {
		directory = *in.Dir
	} else if err != nil {
		return last, err
	}
	process.Dir = directory
	process.Env = os.Environ()
	if in.Environment != nil {
		for name, value := range *in.Environment {
			process.Env = append(process.Env, name+"="+value)
		}
	}
	for name, value := range last.previous(in.AddPreviousOutputInEnv) {
		process.Env = append(process.Env, name+"="+value)
	}
	if in.Stdin != nil && *in.Stdin != "" {
		process.Stdin = strings.NewReader(*in.Stdin)
	}
	printed := newCapture(ctx, in.Logging)
	process.Stdout, process.Stderr = printed.streams()
	streams, err := printed.end(text, process.Run())
	if err != nil {
		return last, err
	}
	return in.collect(directory, Made{streams, last.Assets, last.Archive})
}

// collect adds the files that the globs match.
func (in Process) collect(directory string, made Made) (Made, error) {
	if in.AssetPaths != nil {
		files, err := match(directory, *in.AssetPaths)
		if err != nil {
			return made, err
		}
		assets := map[string]types.AssetOrArchive{}
		for name, file := range files {
			assets[name] = types.AssetOrArchive{Asset: file.(*resource.Asset)}
		}
		made.Assets = &assets
	}
	if in.ArchivePaths != nil {
		files, err := match(directory, *in.ArchivePaths)
		if err != nil {
			return made, err
		}
		if made.Archive, err = resource.NewAssetArchive(files); err != nil {
			return made, err
		}
	}
	return made, nil
}

// match returns the files below the directory that the globs match. The last glob that matches a
// file decides; one that starts with "!" leaves the file out.
func match(directory string, patterns []string) (map[string]any, error) {
	globs := make([]glob.Glob, len(patterns))
	for i, pattern := range patterns {
		var err error
		if globs[i], err = glob.Compile(strings.TrimPrefix(pattern, "!"), '/'); err != nil {
			return nil, err
		}
	}
	files := map[string]any{}
	return files, fs.WalkDir(os.DirFS(directory), ".",
		func(name string, entry fs.DirEntry, err error) error {
			included := false
			for i, pattern := range patterns {
				if globs[i].Match(name) {
					included = !strings.HasPrefix(pattern, "!")
				}
			}
			if err == nil && included && !entry.IsDir() {
				files[name], err = resource.NewPathAsset(path.Join(directory, name))
			}
			return err
		})
}
