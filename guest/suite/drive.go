// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Conn is the host's end of a runner's stdin and stdout.
type Conn struct {
	Name string // of the guest, in messages
	In   io.Writer
	Out  io.Reader

	replies chan reply // closed at the end; then err is set
	err     error
	last    int
	waiting map[int][]reply // that came before somebody asked
}

// open waits for the runner's first line.
func (c *Conn) open(ctx context.Context) error {
	c.replies, c.waiting = make(chan reply), map[int][]reply{}
	go func() {
		defer close(c.replies)
		lines := bufio.NewScanner(c.Out)
		lines.Buffer(nil, maxReply)
		for lines.Scan() {
			var p reply
			if c.err = json.Unmarshal(lines.Bytes(), &p); c.err != nil {
				c.err = fmt.Errorf("reply %q: %w", lines.Bytes(), c.err)
				return
			}
			select {
			case c.replies <- p:
			case <-ctx.Done():
				return
			}
		}
		if c.err = lines.Err(); c.err == nil {
			c.err = io.ErrUnexpectedEOF
		}
	}()
	_, err := c.await(ctx, 0, silence)
	return err
}

// maxReply bounds a line of a runner: JSON takes six characters for some bytes.
const maxReply = 6*max(maxOutput, maxLog*maxLine) + 64<<10

// silence is how long a runner may take to answer what it can answer at once.
const silence = 2 * time.Minute

// errSilent says that a guest hangs.
var errSilent = errors.New("no answer")

// send asks for something and returns its number.
func (c *Conn) send(q request) (int, error) {
	if q.ID == 0 {
		c.last++
		q.ID = c.last
	}
	b, err := json.Marshal(q)
	if err != nil {
		return 0, err
	}
	if _, err := c.In.Write(append(b, '\n')); err != nil {
		return 0, c.fail(err)
	}
	return q.ID, nil
}

// await returns the next reply about a number.
func (c *Conn) await(ctx context.Context, id int, limit time.Duration) (reply, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(c.waiting[id]) == 0 {
		select {
		case p, ok := <-c.replies:
			if !ok {
				return reply{}, c.fail(c.err)
			}
			c.waiting[p.ID] = append(c.waiting[p.ID], p)
		case <-timer.C:
			return reply{}, c.fail(fmt.Errorf("%w for %v", errSilent, limit))
		case <-ctx.Done():
			return reply{}, context.Cause(ctx)
		}
	}
	p := c.waiting[id][0]
	if c.waiting[id] = c.waiting[id][1:]; len(c.waiting[id]) == 0 {
		delete(c.waiting, id)
	}
	return p, nil
}

func (c *Conn) fail(err error) error {
	if c.Name != "" {
		return fmt.Errorf("the suite's runner in %s: %w", c.Name, err)
	}
	return fmt.Errorf("the suite's runner: %w", err)
}

// kernel returns what the guest's kernel wrote since it was asked last.
func (c *Conn) kernel(ctx context.Context) (log, wrong []string, err error) {
	id, err := c.send(request{Do: doKernel})
	if err != nil {
		return nil, nil, err
	}
	p, err := c.await(ctx, id, silence)
	return p.Log, p.Bad, err
}

// defaultGrace is what a server has to end by itself, after its client has: a guest on a
// busy machine may not get far in a second.
const defaultGrace = 20 * time.Second

// scripts runs a case's scripts and returns how they ended. The server is nil if
// there is none; grace is what it has to end by itself.
func scripts(ctx context.Context, c *Case, guests []*Conn, env [][]string, grace time.Duration) (script reply, server *reply, err error) {
	last := len(guests) - 1
	client, other := guests[0], guests[last]
	limit := c.limit() + silence
	var serverID int
	if c.Server != "" {
		if serverID, err = other.send(request{Do: doStart, Case: c.Name, Server: true, Env: env[last]}); err != nil {
			return script, nil, err
		}
		first, err := other.await(ctx, serverID, limit)
		if err != nil {
			return script, nil, err
		}
		if first.Say == sayEnded { // could not be started
			return script, &first, nil
		}
		if first.NotReady { // it has ended, or its limit has come
			ended, err := other.await(ctx, serverID, limit)
			ended.NotReady = true
			return script, &ended, err
		}
	}
	id, err := client.send(request{Do: doStart, Case: c.Name, Env: env[0]})
	if err != nil {
		return script, nil, err
	}
	if script, err = client.await(ctx, id, limit); err != nil || c.Server == "" {
		return script, nil, err
	}
	ended, err := reply{}, errSilent
	if !c.ServerStays {
		ended, err = other.await(ctx, serverID, grace)
	}
	if errors.Is(err, errSilent) {
		if _, err := other.send(request{ID: serverID, Do: doStop}); err != nil {
			return script, nil, err
		}
		ended, err = other.await(ctx, serverID, limit)
	}
	return script, &ended, err
}
