// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A FIFO is waited for; when its reader goes away, writing fails: it does not wait
// for ever, and with it the network.
func TestCaptureToFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	nobody, cancel := context.WithCancel(t.Context())
	cancel()
	n := network{pcap: path}
	out, err := n.parse(2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Capture(nobody); !errors.Is(err, context.Canceled) {
		t.Errorf("without a reader, and ended: %v", err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := out.Capture(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.(*os.File).Close()
	if err := w.(*os.File).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Errorf("a reader that stops is waited for without end: %v", err)
	}
	if _, err := w.Write([]byte("frame")); err != nil {
		t.Error(err)
	}
	reader.Close()
	if _, err := w.Write([]byte("frame")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the reader is gone: %v", err)
	}
}
