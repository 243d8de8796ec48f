// SPDX-License-Identifier: Apache-2.0

package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const manifestFile = "manifest.json"

// Package is one distribution package that was unpacked into an entry.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	// SHA256 is the hash of the .deb file, hexadecimal.
	SHA256 string `json:"sha256"`
	// Files are the paths, relative to root/, that were unpacked from it.
	// Directories are not listed. Only userland entries record them.
	Files []string `json:"files,omitempty"`
}

// Manifest describes one entry of the cache; it is the entry's manifest.json.
type Manifest struct {
	// Name is what the entry is found by, e.g. "qemu" or "debian-13".
	Name string `json:"name"`
	// Key identifies the content: entries of equal name and key are equal.
	Key string `json:"key"`
	// Recipe is a hash of the instructions that made the entry.
	Recipe string `json:"recipe"`
	// Version is for people: a package version or kernel release.
	Version string `json:"version"`
	// Release is the kernel release of a kernel entry.
	Release string `json:"release,omitempty"`
	// Packages are what was unpacked, sorted by name.
	Packages []Package `json:"packages,omitempty"`
	// From names the entries that this one was built of (name-key).
	From []string `json:"from,omitempty"`
	// Source is the file or directory that a developer's kernel came from.
	Source string `json:"source,omitempty"`
}

// entry is a manifest together with the place of its files.
type entry struct {
	Manifest
	dir string
}

// path returns the host path of a file of the entry, given relative to root/.
func (e *entry) path(elem ...string) string {
	return filepath.Join(append([]string{e.dir, "root"}, elem...)...)
}

func (e *entry) id() string { return e.Name + "-" + e.Key }

func readEntry(dir string) (*entry, error) {
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	e := &entry{dir: dir}
	if err := json.Unmarshal(b, &e.Manifest); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, manifestFile), err)
	}
	return e, nil
}

func (m Manifest) write(path string) error {
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// hashOf returns a short hash over v's JSON form, for keys and recipes.
func hashOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only plain structs and strings come here
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// hashFile returns the SHA-256 of a file, hexadecimal.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
