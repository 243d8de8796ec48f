// SPDX-License-Identifier: Apache-2.0

package fabric

import "fmt"

// UplinkUp is the event of an uplink that has a peer. One of datagrams, which
// cannot know, has one from the start.
type UplinkUp struct{ Name string }

func (e UplinkUp) String() string { return fmt.Sprintf("uplink %s is up", e.Name) }

// UplinkDown is the event of an uplink that lost its peer, or found none. It
// is told once until the uplink is up again or the reason changes.
type UplinkDown struct {
	Name string
	Err  error // nil: the peer closed the connection
}

func (e UplinkDown) String() string {
	if e.Err == nil {
		return fmt.Sprintf("uplink %s: the peer closed the connection", e.Name)
	}
	return fmt.Sprintf("uplink %s: %v", e.Name, e.Err)
}

// UplinkRefused is the event of frames that the kernel does not take, since there
// is nobody at the remote path of datagrams or the like. It is told once until the
// reason changes, with a lock held: whoever hears it must not call the uplink.
type UplinkRefused struct {
	Name string
	Err  error
}

func (e UplinkRefused) String() string {
	return fmt.Sprintf("uplink %s: frames are dropped: %v", e.Name, e.Err)
}

// CaptureEnded is the event of a capture that could not be written any more.
// It is told once; the network goes on without.
type CaptureEnded struct{ Err error }

func (e CaptureEnded) String() string { return fmt.Sprintf("capture ended: %v", e.Err) }

// Alarm marks the event as one for the log (package trace).
func (CaptureEnded) Alarm() {}
