package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pkg/sftp"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/infer/types"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// CopyToRemote is the resource remote.CopyToRemote. It has no Delete: what was copied stays.
type CopyToRemote struct{}

// CopyArgs are its inputs, and its outputs too.
type CopyArgs struct {
	Connection *Connection          `pulumi:"connection" provider:"secret"`
	Triggers   *[]any               `pulumi:"triggers,optional" provider:"replaceOnChanges"`
	Source     types.AssetOrArchive `pulumi:"source"`
	RemotePath string               `pulumi:"remotePath"`
}

// Annotate gives the resource its token.
func (c *CopyToRemote) Annotate(a infer.Annotator) { a.SetToken("remote", "CopyToRemote") }

// Check refuses what cannot be copied. At a preview that does not know the source yet, this refuses
// it too: there is neither an asset nor an archive.
func (*CopyToRemote) Check(
	ctx context.Context, req infer.CheckRequest,
) (infer.CheckResponse[CopyArgs], error) {
	inputs, failures, err := infer.DefaultCheck[CopyArgs](ctx, req.NewInputs)
	asset, archive := inputs.Source.Asset, inputs.Source.Archive
	switch {
	case err != nil:
	case asset == nil && archive == nil:
		failures = append(failures, p.CheckFailure{
			Property: "asset", Reason: "either asset or archive must be set",
		})
	case asset != nil && !asset.IsPath() && !asset.IsText():
		failures = append(failures, p.CheckFailure{
			Property: "asset", Reason: "asset must be a path-based file asset or a text asset",
		})
	case archive != nil && !archive.IsPath():
		failures = append(failures, p.CheckFailure{
			Property: "archive", Reason: "archive must be a path to a file or directory",
		})
	}
	return infer.CheckResponse[CopyArgs]{Inputs: inputs, Failures: failures}, err
}

// Create copies the source.
func (*CopyToRemote) Create(
	ctx context.Context, req infer.CreateRequest[CopyArgs],
) (answer infer.CreateResponse[CopyArgs], err error) {
	answer.Output = req.Inputs
	if !req.DryRun {
		if err = req.Inputs.copy(ctx); err == nil {
			answer.ID, err = resource.NewUniqueHex("", 8, 0)
		}
	}
	return answer, err
}

// Update copies the source if its content or the remote path is another one, and only then.
func (*CopyToRemote) Update(
	ctx context.Context, req infer.UpdateRequest[CopyArgs, CopyArgs],
) (answer infer.UpdateResponse[CopyArgs], err error) {
	answer.Output = req.Inputs
	same := req.Inputs.hash() == req.State.hash() && req.Inputs.RemotePath == req.State.RemotePath
	if !req.DryRun && !same {
		err = req.Inputs.copy(ctx)
	}
	return answer, err
}

func (in CopyArgs) hash() string {
	if in.Source.Archive != nil {
		return in.Source.Archive.Hash
	}
	return in.Source.Asset.Hash
}

func (in CopyArgs) copy(ctx context.Context) error {
	client, err := in.Connection.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // a copy, unlike a command, does close its connection
	host, err := sftp.NewClient(client, sftp.UseConcurrentWrites(true))
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	switch asset := in.Source.Asset; {
	case asset == nil:
		return copyPath(host, in.Source.Archive.Path, in.RemotePath)
	case asset.IsText():
		return copyText(host, asset.Text, in.RemotePath)
	default:
		return copyPath(host, asset.Path, in.RemotePath)
	}
}

func copyText(to *sftp.Client, text, target string) error {
	if isDirectory(to, target) {
		return fmt.Errorf("remote path %s is a directory: a text asset needs the path of a file", target)
	}
	if err := to.MkdirAll(path.Dir(target)); err != nil {
		return err
	}
	return copyFile(to, strings.NewReader(text), target)
}

// copyPath copies a file, or a directory with all that is in it. A file goes into the remote
// directory that the target names, or else becomes the target. A directory always goes into the
// target, which is made if it is missing; of one written with a final slash only the content goes.
func copyPath(to *sftp.Client, source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if isDirectory(to, target) {
			target = path.Join(target, filepath.Base(source))
		} else if err := to.MkdirAll(path.Dir(target)); err != nil {
			return err
		}
		return copyFrom(to, source, target)
	}
	if err := to.MkdirAll(target); err != nil {
		return fmt.Errorf("failed to create remote directory %s: %w", target, err)
	}
	if !strings.HasSuffix(source, "/") {
		target = path.Join(target, filepath.Base(source))
	}
	return fs.WalkDir(os.DirFS(source), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		remote := path.Join(target, name)
		if !entry.IsDir() {
			return copyFrom(to, path.Join(source, name), remote)
		}
		if isDirectory(to, remote) {
			return nil
		}
		return to.Mkdir(remote)
	})
}

func copyFrom(to *sftp.Client, source, target string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	return copyFile(to, file, target)
}

// copyFile writes a file, which gets the mode that the host gives to new files.
func copyFile(to *sftp.Client, content io.Reader, target string) error {
	file, err := to.Create(target)
	if err != nil {
		return fmt.Errorf("failed to create remote file %s: %w", target, err)
	}
	_, err = file.ReadFrom(content)
	return errors.Join(err, file.Close())
}

func isDirectory(at *sftp.Client, target string) bool {
	info, err := at.Stat(target)
	return err == nil && info.IsDir()
}
