// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

func start(t *testing.T, sockets int) (*Host, Options) {
	t.Helper()
	dir := t.TempDir()
	o := Options{Control: filepath.Join(dir, "control")}
	for i := range sockets {
		o.Sockets = append(o.Sockets, filepath.Join(dir, string(rune('a'+i))))
	}
	h, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, o
}

func TestTwoCardsAreApart(t *testing.T) {
	h, o := start(t, 2)
	const pfqfFDEna = 0x43A000
	var clients []*vfiouser.Client
	for _, s := range o.Sockets {
		c, err := vfiouser.Dial(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	if err := clients[0].Write32(0, pfqfFDEna, 1); err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{1, 0} {
		if got, err := clients[i].Read32(0, pfqfFDEna); err != nil || got != want {
			t.Errorf("card %d: PFQF_FD_ENA = %d, %v, want %d", i, got, err, want)
		}
		r, err := Ask(t.Context(), o.Control, Request{Device: i, What: "regs", Name: "PFQF_FD_ENA"})
		if err != nil {
			t.Fatal(err)
		}
		var regs []Register
		if err := json.Unmarshal(r.Data, &regs); err != nil || len(regs) != 1 || regs[0].Value != want {
			t.Errorf("card %d explains %s, %v", i, r.Data, err)
		}
	}
	h.Close()
	for _, p := range append(o.Sockets, o.Control) {
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", p, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	_, o := start(t, 1)
	for _, c := range []struct {
		r    Request
		want string // part of the text, or of the error
		bad  bool
	}{
		{Request{What: "hmc"}, "SD", false},
		{Request{What: "qp"}, "QP", false},
		{Request{What: "cq"}, "CQ", false},
		{Request{What: "regs"}, "REGISTER", false},
		{Request{What: "regs", Name: "GLINT_DYN_CTL(3)"}, "0x16000c", false},
		{Request{What: "regs", Name: "GLINT_DYN_CTL"}, "reset value", false},
		{Request{What: "regs", Name: "GLINT_DYN_CTL(3000)"}, "no such register", true},
		{Request{What: "regs", Name: "nonsense"}, "no such register", true},
		{Request{What: "hmc", Name: "7"}, "not valid", true},
		{Request{What: "hmc", Name: "x"}, "not a number", true},
		{Request{What: "qp", Name: "1"}, "no QP 1", true},
		{Request{What: "pizza"}, "nothing called", true},
		{Request{What: "process"}, "goroutines", false},
		{Request{What: "link", Name: "sideways"}, "want up or down", true},
		{Request{What: "reset"}, "want corer", true},
		{Request{What: "reset", Name: "pfr"}, "want corer", true},
		{Request{Device: 1, What: "reset", Name: "corer"}, "no device 1", true},
		{Request{Device: 1, What: "hmc"}, "no device 1", true},
		{Request{Device: -1, What: "hmc"}, "no device -1", true},
	} {
		r, err := Ask(t.Context(), o.Control, c.r)
		got := r.Text
		if err != nil {
			got = err.Error()
		}
		if (err != nil) != c.bad || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, error %v; want %q", c.r, got, err, c.want)
		}
	}
}

// What is done to a card from outside is there for its driver to read.
func TestCommands(t *testing.T) {
	_, o := start(t, 2)
	c, err := vfiouser.Dial(t.Context(), o.Sockets[1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const (
		pfqfFDEna    = 0x43A000 // cleared by every reset
		glgenRstat   = 0x0B8188
		devstate     = 3
		resetTypeLow = 2
	)
	for want, name := range []string{1: "corer", 2: "globr", 3: "empr"} {
		if name == "" {
			continue
		}
		if err := c.Write32(0, pfqfFDEna, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := Ask(t.Context(), o.Control, Request{Device: 1, What: "reset", Name: name}); err != nil {
			t.Fatal(err)
		}
		v, err := c.Read32(0, glgenRstat)
		if err != nil || v>>resetTypeLow&3 != uint32(want) {
			t.Errorf("%s: GLGEN_RSTAT = %#x, %v; want RESET_TYPE %d", name, v, err, want)
		}
		// The driver waits as here (ice_common.c:ice_check_reset).
		for v&devstate != 0 && err == nil {
			v, err = c.Read32(0, glgenRstat)
		}
		if v, err := c.Read32(0, pfqfFDEna); err != nil || v != 0 {
			t.Errorf("%s: PFQF_FD_ENA = %d, %v; want it cleared", name, v, err)
		}
	}
	for _, name := range []string{"down", "up"} {
		if _, err := Ask(t.Context(), o.Control, Request{Device: 1, What: "link", Name: name}); err != nil {
			t.Error(err)
		}
	}
}

func TestSocketInUse(t *testing.T) {
	_, o := start(t, 1)
	if _, err := Start(t.Context(), Options{Sockets: o.Sockets}); !errors.Is(err, vfiouser.ErrSocketInUse) {
		t.Errorf("a live socket: %v", err)
	}
	// A failed start leaves nothing of its own behind.
	other := filepath.Join(t.TempDir(), "other")
	if _, err := Start(t.Context(), Options{Sockets: []string{other, o.Sockets[0]}}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Lstat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed start left %s: %v", other, err)
	}
}

func TestEndOfContextStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	h, err := Start(ctx, Options{Sockets: []string{filepath.Join(dir, "s")}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	h.Close()
	select {
	case err := <-h.Errors():
		t.Errorf("error %v", err)
	default:
	}
}

func TestDefaultMAC(t *testing.T) {
	a, b := DefaultMAC("/run/a"), DefaultMAC("/run/b")
	if a == b || a != DefaultMAC("/run/a") {
		t.Errorf("addresses %x and %x: want them stable and different", a, b)
	}
	if a[0]&3 != 2 {
		t.Errorf("%x is not a locally administered unicast address", a)
	}
}

// Clients that take every place leave when they are idle or closed, and the
// socket answers again.
func TestControlClientsAreBounded(t *testing.T) {
	_, o := start(t, 1)
	var idle []net.Conn
	for range maxClients {
		c, err := net.Dial("unix", o.Control)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// One answer proves that the server has taken the connection.
		if _, err := c.Write([]byte("{}\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := Ask(t.Context(), o.Control, Request{What: "qp"})
		answered <- err
	}()
	for _, c := range idle {
		c.Close()
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestLongRequest(t *testing.T) {
	_, o := start(t, 1)
	_, err := Ask(t.Context(), o.Control, Request{What: strings.Repeat("x", maxRequest)})
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("error %v", err)
	}
}
