// SPDX-License-Identifier: Apache-2.0

package launch

import "time"

// limits are the times that are not the user's to choose. Tests shorten them.
type limits struct {
	// silence is how long a booting guest may print nothing before it is
	// looked at, and how often from then on. A quiet boot prints nothing at
	// all; it takes 4 s on two idle CPUs under TCG.
	silence time.Duration
	// powerOff is what the guest gets to shut down, drivers included.
	powerOff time.Duration
	// panic is what a panicking kernel gets to print and reset.
	panic time.Duration
	// settle bounds the wait for what follows QEMU's end: the last lines of
	// its logs, on sinks that may be stuck.
	settle time.Duration
	// listen is how long a peer's command may take to listen.
	listen time.Duration
	// peerGrace is what a peer's command gets when it is not needed any more,
	// peerTerm what it gets from SIGTERM to SIGKILL.
	peerGrace, peerTerm time.Duration
}

func defaultLimits() limits {
	return limits{
		silence:  20 * time.Second,
		powerOff: 10 * time.Second,
		panic:    5 * time.Second,
		settle:   2 * time.Second,

		listen:    10 * time.Second,
		peerGrace: 3 * time.Second,
		peerTerm:  2 * time.Second,
	}
}

const (
	// maxRestarts is how often a guest that shows no life is started again.
	maxRestarts = 2
	// A silent guest hangs if it used much more CPU time than a boot takes, or
	// next to none since the last look. In between it is merely starved by an
	// overloaded host, and starting it again would make that worse.
	hangBusy = 30 * time.Second
	hangIdle = 500 * time.Millisecond
)
