package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pkg/sftp"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// copySource copies an asset or an archive to a host, unless the old state (nil: none) says that the
// same source went to the same path before.
func (p *provider) copySource(ctx context.Context, inputs, old resource.PropertyMap) error {
	if old != nil && old["source"].DeepEquals(inputs["source"]) &&
		old["remotePath"].DeepEquals(inputs["remotePath"]) {
		return nil
	}
	var in copyInputs
	if err := decode(inputs, &in); err != nil {
		return err
	}
	client, closeClient, err := dial(ctx, in.Connection)
	if err != nil {
		return err
	}
	defer closeClient()
	defer context.AfterFunc(ctx, closeClient)()
	files, err := sftp.NewClient(client)
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }()

	source := inputs["source"]
	if source.IsSecret() {
		source = source.SecretValue().Element
	}
	switch {
	case source.IsAsset() && source.AssetValue().IsPath():
		return copyPath(files, source.AssetValue().Path, in.RemotePath)
	case source.IsAsset() && source.AssetValue().IsText():
		text := strings.NewReader(source.AssetValue().Text)
		return copyFile(files, text, in.RemotePath, 0o644)
	case source.IsArchive() && source.ArchiveValue().IsPath():
		return copyPath(files, source.ArchiveValue().Path, in.RemotePath)
	default:
		return fmt.Errorf("source is %s, must be a FileAsset, a StringAsset or a FileArchive",
			source.TypeString())
	}
}

// copyPath copies a file, or all in a directory. Into a remote directory that exists a source goes
// under its own name; of a source directory written with a final slash only the content goes.
func copyPath(to *sftp.Client, source, target string) error {
	if info, err := to.Stat(target); err == nil && info.IsDir() && !strings.HasSuffix(source, "/") {
		target = path.Join(target, filepath.Base(source))
	}
	return filepath.WalkDir(source, func(local string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, local)
		if err != nil {
			return err
		}
		remote := path.Join(target, filepath.ToSlash(relative))
		info, err := os.Stat(local) // follows links, as what is copied must stand for itself
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if err := to.MkdirAll(remote); err != nil {
				return fmt.Errorf("directory %s: %w", remote, err)
			}
			return nil
		}
		file, err := os.Open(local)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		return copyFile(to, file, remote, info.Mode().Perm())
	})
}

func copyFile(to *sftp.Client, content io.Reader, remote string, mode fs.FileMode) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy to %s: %w", remote, err)
		}
	}()
	if err := to.MkdirAll(path.Dir(remote)); err != nil {
		return err
	}
	file, err := to.Create(remote)
	if err != nil {
		return err
	}
	if _, err := file.ReadFrom(content); err != nil {
		_ = file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return to.Chmod(remote, mode)
}
