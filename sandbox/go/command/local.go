package main

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gobwas/glob"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/archive"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/asset"
)

// grace is how long a cancelled command may take to end by itself.
const grace = 5 * time.Second

// runLocal runs the text in its own process group, so that cancelling ends the children too: by
// SIGTERM, and by SIGKILL for what is left when the command has ended or grace is over.
func runLocal(ctx context.Context, interpreter []string, dir string, run invocation) error {
	if len(interpreter) == 0 {
		interpreter = []string{"/bin/sh", "-c"}
	}
	if err := context.Cause(ctx); err != nil {
		return err // the engine has cancelled: begin nothing
	}
	arguments := append(interpreter[1:len(interpreter):len(interpreter)], run.text)
	process := exec.Command(interpreter[0], arguments...)
	process.Dir = dir
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process.Stdout, process.Stderr = run.stdout, run.stderr
	process.Env = os.Environ()
	for _, v := range run.variables {
		process.Env = append(process.Env, v.name+"="+v.value)
	}
	if run.stdin != nil {
		process.Stdin = strings.NewReader(*run.stdin)
	}
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		group := -process.Process.Pid
		_ = syscall.Kill(group, syscall.SIGTERM) // an error says that nothing is left
		select {
		case <-ended:
		case <-time.After(grace):
		}
		_ = syscall.Kill(group, syscall.SIGKILL)
	})
	defer stop()
	defer close(ended)
	return process.Wait()
}

// pathOutputs names the output that each list of path globs fills.
var pathOutputs = map[resource.PropertyKey]resource.PropertyKey{
	"assetPaths": "assets", "archivePaths": "archive",
}

// addFiles adds the files that the globs of the inputs match to the state.
func addFiles(in localInputs, state resource.PropertyMap) error {
	if in.AssetPaths != nil {
		files, err := matchFiles(in.Dir, in.AssetPaths)
		if err != nil {
			return err
		}
		assets := resource.PropertyMap{}
		for name, file := range files {
			assets[resource.PropertyKey(name)] = resource.NewProperty(file.(*asset.Asset))
		}
		state["assets"] = resource.NewProperty(assets)
	}
	if in.ArchivePaths != nil {
		files, err := matchFiles(in.Dir, in.ArchivePaths)
		if err != nil {
			return err
		}
		all, err := archive.FromAssets(files)
		if err != nil {
			return err
		}
		state["archive"] = resource.NewProperty(all)
	}
	return nil
}

// matchFiles returns the files under dir whose path relative to it matches the globs as assets. The
// last glob that matches a path decides, and one that starts with "!" leaves it out.
func matchFiles(dir string, patterns []string) (map[string]any, error) {
	globs := make([]glob.Glob, len(patterns))
	for i, pattern := range patterns {
		compiled, err := glob.Compile(strings.TrimPrefix(pattern, "!"), '/')
		if err != nil {
			return nil, err
		}
		globs[i] = compiled
	}
	if dir == "" {
		dir = "."
	}
	files := map[string]any{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		included := false
		for i, pattern := range patterns {
			if globs[i].Match(name) {
				included = !strings.HasPrefix(pattern, "!")
			}
		}
		if !included {
			return nil
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return err
		}
		files[name], err = asset.FromPath(path)
		return err
	})
	return files, err
}
