// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/fw"
)

// Unreachable is the event, once per client, of guest memory that the card
// needs and cannot share with the guest. Nothing works then, and it is not the
// driver's fault: the client has to be started differently.
type Unreachable struct {
	IOVA uint64 // where it was noticed
	// Private: there is a descriptor, but the guest works on a copy of what is
	// behind it. Otherwise the client sent none.
	Private bool
}

func (u Unreachable) String() string {
	why := "the client gave no descriptor for it"
	if u.Private {
		why = "what the guest writes does not arrive (share=off)"
	}
	return fmt.Sprintf("guest memory at %#x cannot be shared: %s; start QEMU with -object memory-backend-memfd,id=ram,size=SIZE,share=on -machine memory-backend=ram", u.IOVA, why)
}

// Alarm makes it something for people: see package trace.
func (Unreachable) Alarm() {}

// remote is the client's memory by messages: slow, and only to be used where
// nothing waits for the device, but it always shows what the guest sees.
type remote struct {
	alarmed atomic.Bool // Unreachable was emitted, or is being found out
	probes  sync.WaitGroup

	mu     sync.Mutex
	read   func(ctx context.Context, iova uint64, p []byte) error // nil: no client that can
	ctx    context.Context
	cancel context.CancelFunc
}

// AttachMemory gives the card the client's way to read memory by message. It
// comes before Attach and is good until Detach.
func (d *Device) AttachMemory(read, _ func(ctx context.Context, iova uint64, p []byte) error) {
	r := &d.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = read
	r.ctx, r.cancel = context.WithCancel(context.Background())
}

// attach begins a client's life.
func (r *remote) attach() { r.alarmed.Store(false) }

// detach ends it, and returns when no message is under way.
func (r *remote) detach() {
	r.mu.Lock()
	if r.cancel != nil {
		r.cancel()
	}
	r.read = nil
	r.mu.Unlock()
	r.probes.Wait()
}

// missing says once that there is memory without a descriptor.
func (d *Device) missing(iova uint64) {
	if d.remote.alarmed.CompareAndSwap(false, true) {
		d.emit(Unreachable{IOVA: iova})
	}
}

// suspect looks, beside everything else, at whether a descriptor that was read
// as zeroes is what the guest wrote. No driver posts a blank one, so this
// happens once or never; a client that cannot tell leaves it open.
func (d *Device) suspect(b fw.BlankDescriptor) {
	r := &d.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read == nil || !r.alarmed.CompareAndSwap(false, true) {
		return
	}
	read, ctx := r.read, r.ctx
	r.probes.Go(func() {
		var theirs, ours [fw.DescriptorSize]byte
		err := read(ctx, b.Address, theirs[:])
		if err == nil {
			err = d.mem.Read(b.Address, ours[:])
		}
		// In shared memory both have no opcode, or the next one.
		if err != nil || fw.OpcodeOf(theirs) == 0 || fw.OpcodeOf(ours) != 0 {
			r.alarmed.Store(false)
			return
		}
		d.emit(Unreachable{IOVA: b.Address, Private: true})
	})
}
