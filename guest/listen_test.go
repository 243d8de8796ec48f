// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	tcpHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	udpHead = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"
)

func writeTable(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Lines as the kernel writes them; IPv6 is missing here, as it may be.
func TestListening(t *testing.T) {
	dir := t.TempDir()
	writeTable(t, dir, "tcp", tcpHead+
		"   0: 00000000:1389 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1 0000000000000000 100 0 0 10 0\n"+
		"   1: 014DA8C0:9C40 024DA8C0:1389 01 00000000:00000000 00:00000000 00000000     0        0 1235 1 0000000000000000 20 4 30 10 -1\n")
	writeTable(t, dir, "udp", udpHead+
		" 1389: 00000000:1389 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1236 2 0000000000000000 0\n"+
		" 1390: 014DA8C0:A000 024DA8C0:1389 01 00000000:00000000 00:00000000 00000000     0        0 1237 2 0000000000000000 0\n"+
		" 4791: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1238 2 0000000000000000 0\n"+
		"nonsense\n")
	s := sockets{procNet: dir, rdma: func() []string { return []string{"0/3"} }}
	want := map[string]bool{"tcp 00000000:1389 1234": true, "udp 00000000:1389 1236": true, "rdma 0/3": true}
	if diff := cmp.Diff(want, s.listening()); diff != "" {
		t.Error(diff)
	}
}

func TestAwaitNew(t *testing.T) {
	dir := t.TempDir()
	const old = "   0: 00000000:1389 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1\n"
	writeTable(t, dir, "tcp6", tcpHead+old)
	s := sockets{procNet: dir}
	before := s.listening()
	if s.awaitNew(before, time.Millisecond, nil) {
		t.Error("what listened before is taken for new")
	}
	ended := make(chan struct{})
	close(ended)
	if s.awaitNew(before, time.Hour, ended) {
		t.Error("the end of the command is taken for a listener")
	}
	found := make(chan bool)
	go func() { found <- s.awaitNew(before, time.Hour, nil) }()
	writeTable(t, dir, "udp6", udpHead+
		" 1389: 00000000000000000000000000000000:1389 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1239 2\n")
	if !<-found {
		t.Error("a new listener was not found")
	}
}

// nested appends a netlink attribute with attributes in it.
func nested(msg []byte, kind uint16, attrs ...[]byte) []byte {
	return appendAttr(msg, kind|0x8000, slices.Concat(attrs...))
}

func TestListeningIn(t *testing.T) {
	u32 := func(kind uint16, v uint32) []byte {
		return appendAttr(nil, kind, binary.LittleEndian.AppendUint32(nil, v))
	}
	entry := func(number uint32, state byte) []byte {
		return nested(nil, attrResCMIDItem, u32(attrResCMIDN, number), appendAttr(nil, attrResState, []byte{state}))
	}
	msg := slices.Concat(u32(attrDevIndex, 0), nested(nil, attrResCMID, entry(4, 5), entry(5, cmListen), entry(6, cmListen)))
	if diff := cmp.Diff([]uint32{5, 6}, listeningIn(msg)); diff != "" {
		t.Error(diff)
	}
	for cut := range msg { // a message that is cut anywhere is no reason to panic
		listeningIn(msg[:cut])
	}
}
