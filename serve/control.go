// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Request is one question to the control socket: one JSON object, one line.
type Request struct {
	Device int `json:"device"` // index of the device, from 0
	// What is asked: hmc, regs, qp, cq, mr and the like (see explainers), findings
	// to be explained; link, reset to be done; process, of the serving process (see
	// Process), ports and impair, of the segment, not of a device.
	What string `json:"what"`
	// Name is which one: a number or a register name, empty for all; of link up
	// or down, of reset corer, globr or empr; of impair the rules, with blanks
	// between them.
	Name string `json:"name,omitempty"`

	// Of mr: the walk to make, and how many bytes to show from its start.
	Address string `json:"address,omitempty"`
	Length  string `json:"length,omitempty"` // empty: 1, or Bytes
	Bytes   uint32 `json:"bytes,omitempty"`
}

// Response is the answer: a person's text, and the same as data. With an error
// they tell how far it went.
type Response struct {
	Error string          `json:"error,omitempty"`
	Text  string          `json:"text,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Limits on what control clients can make us hold.
const (
	maxRequest = 64 << 10
	maxClients = 16
	// idle is how long a client may say nothing; acceptPause the pause after a
	// failed accept, for instance for want of descriptors.
	idle        = 30 * time.Second
	acceptPause = 100 * time.Millisecond
)

// serveControl answers control clients until ctx ends. A client too many waits
// for another to go.
func (h *Host) serveControl(ctx context.Context, l net.Listener, logger hclog.Logger) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	room := make(chan struct{}, maxClients)
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := l.Accept()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			<-room
			if errors.Is(err, net.ErrClosed) {
				logger.Error("control socket", "error", err)
				return
			}
			logger.Warn("control socket: accept failed", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-room }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			h.answerAll(c)
		}()
	}
}

func (h *Host) answerAll(c net.Conn) {
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxRequest)
	out := json.NewEncoder(c)
	for c.SetDeadline(time.Now().Add(idle)) == nil && in.Scan() {
		var r Request
		var resp Response
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			resp.Error = fmt.Sprintf("request is not JSON: %v", err)
		} else {
			resp = h.answer(r)
		}
		if out.Encode(resp) != nil {
			return
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		_ = out.Encode(Response{Error: fmt.Sprintf("request longer than %d bytes", maxRequest)})
	}
}

func (h *Host) answer(r Request) Response {
	text, data, err := h.carryOut(r)
	resp := Response{Text: text}
	if err != nil {
		resp.Error = err.Error()
	}
	if data == nil {
		return resp
	}
	if resp.Data, err = json.Marshal(data); err != nil {
		return Response{Error: fmt.Sprintf("encoding the answer: %v", err)}
	}
	return resp
}

func (h *Host) carryOut(r Request) (text string, data any, err error) {
	if r.What == "process" {
		p := process()
		return fmt.Sprintf("goroutines %d\n", p.Goroutines), p, nil
	}
	switch r.What {
	case "ports":
		return h.explainPorts(r)
	case "impair":
		return "", nil, h.impair(r.Name)
	}
	if r.Device < 0 || r.Device >= len(h.cards) {
		return "", nil, fmt.Errorf("no device %d: this process serves %d", r.Device, len(h.cards))
	}
	d := h.cards[r.Device]
	if r.What == "findings" {
		return h.explainFindings(r.Device)
	}
	if e := explainers[r.What]; e != nil {
		return e(d.dev, r)
	}
	if c := commands[r.What]; c != nil {
		return "", nil, c(d, r.Name)
	}
	known := append(slices.Sorted(maps.Keys(explainers)), append(slices.Sorted(maps.Keys(commands)), "findings", "ports", "impair")...)
	return "", nil, fmt.Errorf("nothing called %q: known are %s", r.What, strings.Join(known, ", "))
}

// Ask sends one request to the control socket at path. An error in the answer
// comes with the answer.
func Ask(ctx context.Context, path string, r Request) (Response, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return Response{}, fmt.Errorf("control socket: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.SetDeadline(time.Now().Add(idle)); err != nil {
		return Response{}, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := json.NewEncoder(c).Encode(r); err != nil {
		return Response{}, fmt.Errorf("control socket %s: %w", path, err)
	}
	var resp Response
	if err := json.NewDecoder(c).Decode(&resp); err != nil {
		return Response{}, fmt.Errorf("control socket %s: %w", path, err)
	}
	if resp.Error != "" {
		return resp, errors.New(resp.Error)
	}
	return resp, nil
}
