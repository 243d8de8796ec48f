// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// artifacts are the logs of one run. Without a directory they go nowhere.
type artifacts struct {
	console, kernel, qemu, monitor io.Writer
	files                          []*os.File
}

func openArtifacts(dir string) (*artifacts, error) {
	a := &artifacts{console: io.Discard, kernel: io.Discard, qemu: io.Discard, monitor: io.Discard}
	if dir == "" {
		return a, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	for _, log := range []struct {
		name string
		to   *io.Writer
	}{
		{"console.log", &a.console},
		{"kernel.log", &a.kernel},
		{"qemu.log", &a.qemu},
		{"qmp.log", &a.monitor},
	} {
		f, err := os.Create(filepath.Join(dir, log.name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("artifacts: %w", err), a.close())
		}
		a.files = append(a.files, f)
		*log.to = f
	}
	return a, nil
}

func (a *artifacts) close() error {
	var errs []error
	for _, f := range a.files {
		if err := f.Close(); err != nil {
			errs = append(errs, fmt.Errorf("artifacts: %w", err))
		}
	}
	a.files = nil
	return errors.Join(errs...)
}

// locked serializes the writers of one sink.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// belowConsole passes on the lines of a raw kernel log that the console did not
// print, so that console and log together show every line once.
type belowConsole struct {
	w       io.Writer
	level   int
	partial []byte
}

func (b *belowConsole) Write(p []byte) (int, error) {
	b.partial = append(b.partial, p...)
	for {
		i := strings.IndexByte(string(b.partial), '\n')
		if i < 0 {
			return len(p), nil
		}
		line := b.partial[:i+1]
		b.partial = b.partial[i+1:]
		var prefix int
		if n, err := fmt.Sscanf(string(line), "<%d>", &prefix); n != 1 || err != nil || prefix&7 < b.level {
			continue
		}
		if _, err := b.w.Write(line); err != nil {
			return 0, err
		}
	}
}

// lastLine keeps the last line with something in it.
type lastLine struct {
	mu      sync.Mutex
	line    string
	partial []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range p {
		switch {
		case b == '\n':
			if s := printable(l.partial); strings.TrimSpace(s) != "" {
				l.line = s
			}
			l.partial = l.partial[:0]
		case len(l.partial) < maxLineLen:
			l.partial = append(l.partial, b)
		}
	}
	return len(p), nil
}

func (l *lastLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := printable(l.partial); strings.TrimSpace(s) != "" {
		return s
	}
	return l.line
}
