// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// lockedBuffer may be read while somebody logs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestSilentClientsMakePlace: of many clients that say nothing the oldest go, so
// that one with something to say is served; and there is one line about all of
// them.
func TestSilentClientsMakePlace(t *testing.T) {
	const limit = 32 // connections
	var log lockedBuffer
	path, _ := serveDevice(t, newCounter(), vfiouser.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
	first := dial(t, path)
	var silent []net.Conn
	for range 100 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	for i, conn := range silent[:1+len(silent)-limit] { // the last of these goes for the last that came
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("silent connection %d: %v, want EOF", i, err)
		}
	}
	if _, err := first.Read32(0, 0); err != nil {
		t.Errorf("client with the device: %v", err)
	}
	first.Close()
	second := dial(t, path)
	if _, err := second.Read32(0, 0); err != nil {
		t.Errorf("new client: %v", err)
	}
	if n := strings.Count(log.String(), "too many connections"); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, log.String())
	}
}
