// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What runs that were killed left is removed; what is in use, and a folder in
// which somebody keeps other things, is not.
func TestSocketDirsOfTheDead(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "") // TMPDIR may be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	t.Setenv("TMPDIR", tmp)
	write := func(names ...string) {
		t.Helper()
		for _, name := range names {
			path := filepath.Join(tmp, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			hourAgo := time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, hourAgo, hourAgo); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("vrnic-1/card0", "vrnic-1/card0.lock", "vrnic-1/card1", "vrnic-1/card1.lock",
		"vrnic-notes/card0", "vrnic-notes/card0.lock", "vrnic-notes/capture.pcapng",
		"vrnic-2/card0", "vrnic-2/card0.lock")
	alive, err := os.Open(filepath.Join(tmp, "vrnic-2/card0.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	if err := unix.Flock(int(alive.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	dir, err := socketDir()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(dir) != tmp {
		t.Errorf("the folder is %s", dir)
	}
	for name, want := range map[string]bool{"vrnic-1": false, "vrnic-2/card0": true, "vrnic-notes/capture.pcapng": true} {
		if _, err := os.Stat(filepath.Join(tmp, name)); errors.Is(err, fs.ErrNotExist) == want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}
