// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// tsharkName names the image and the program in it.
const tsharkName = "tshark"

func tsharkRecipe() fetchRecipe {
	return fetchRecipe{Format: 1, Release: trixie.name, Packages: []string{tsharkName}}
}

// Tshark returns the program and the first arguments that start the cache's
// tshark, which is fetched if need be: a dissector that shares nothing with
// vrnic, for tests to read captures with. No guest needs it, so Build makes it
// only when it is named.
//
// It reads files; that of a live interface would need dumpcap and rights.
func (c *Cache) Tshark(ctx context.Context) ([]string, error) {
	if e := c.current(tsharkName, hashOf(tsharkRecipe())); e != nil {
		return tsharkArgv(e), nil
	}
	var e *entry
	err := c.locked(ctx, func() (err error) {
		e, err = c.tsharkLocked(ctx, false)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get tshark: %w", err)
	}
	return tsharkArgv(e), nil
}

// tsharkLocked returns the cache's tshark, a fresh one if asked to.
func (c *Cache) tsharkLocked(ctx context.Context, refresh bool) (*entry, error) {
	recipe := tsharkRecipe()
	have := c.current(tsharkName, hashOf(recipe))
	if have != nil && !refresh {
		return have, nil
	}
	dir, err := c.tempLocked(tsharkName)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	if err := mergeUsr(root); err != nil {
		return nil, err
	}
	packages, err := c.fetchLocked(ctx, tsharkName, trixie, recipe, have, root, needed)
	if errors.Is(err, errUnchanged) {
		return have, nil
	} else if err != nil {
		return nil, err
	}
	if _, err := output(ctx, tsharkArgv(&entry{dir: dir}), "--version"); err != nil {
		return nil, err
	}
	return c.publishLocked(dir, Manifest{
		Name: tsharkName, Key: keyOf(hashOf(recipe), packages), Recipe: hashOf(recipe),
		Version: versionOf(packages, tsharkName), Packages: withoutFiles(packages),
	})
}

func tsharkArgv(e *entry) []string { return treeProgram(e, "usr/bin/"+tsharkName) }
