// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fs.ModeSocket | 0o600; info.Mode() != want {
		t.Errorf("mode %v, want %v", info.Mode(), want)
	}
	if _, err := vfiouser.Listen(path); !errors.Is(err, vfiouser.ErrSocketInUse) {
		t.Errorf("second Listen: %v, want ErrSocketInUse", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("first listener after the second Listen: %v", err)
	} else {
		c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	l, err = vfiouser.Listen(path)
	if err != nil {
		t.Fatalf("Listen after Close: %v", err)
	}
	l.Close()
}

// TestListenReplacesStale: a server that was killed leaves both files.
func TestListenReplacesStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := vfiouser.Listen(file); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Listen on a file: %v, want ErrExist", err)
	}
	if got, err := os.ReadFile(file); string(got) != "precious" {
		t.Errorf("file is now %q, %v", got, err)
	}
	if _, err := os.Lstat(file + ".lock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock after a failed Listen: %v", err)
	}
	if _, err := vfiouser.Listen(filepath.Join(dir, "absent", "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Listen in no directory: %v, want ErrNotExist", err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 108))
	if _, err := vfiouser.Listen(long); err == nil || !strings.Contains(err.Error(), "longer than 107 bytes") {
		t.Errorf("Listen on a long path: %v", err)
	}
}
