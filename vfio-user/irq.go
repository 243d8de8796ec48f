// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// vector is one interrupt of one connection.
type vector struct {
	events *eventfds

	mu       sync.Mutex
	fd       int  // eventfd to signal; -1 none
	autoMask bool // INTx: firing masks
	masked   bool
	pending  bool // raised while it could not fire
	dead     bool // the connection ended
}

// raise fires the vector, or remembers one interrupt if it has no eventfd or is
// masked.
func (v *vector) raise() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending = true
	v.fire()
}

// fire delivers a pending interrupt if that is possible.
func (v *vector) fire() {
	if v.dead || !v.pending || v.masked || v.fd < 0 {
		return
	}
	v.pending = false
	v.masked = v.autoMask
	if v.events.signal(v.fd) != nil {
		unix.Close(v.fd)
		v.fd = -1
	}
}

// connect gives the vector an eventfd, or with -1 takes it away.
func (v *vector) connect(fd int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fd >= 0 {
		unix.Close(v.fd)
	}
	v.fd = fd
	v.fire()
}

func (v *vector) mask(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.masked = on
	v.fire()
}

// off is the vector's part in switching off its index. A latched interrupt
// stays: QEMU switches MSI-X off and on again to add a vector. INTx has a level,
// which the device raises again if it is still up.
func (v *vector) off() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fd >= 0 {
		unix.Close(v.fd)
	}
	v.fd, v.masked = -1, false
	v.pending = v.pending && !v.autoMask
}

func (v *vector) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending = false
}

func (v *vector) kill() {
	v.off()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dead = true
}

// irqs are the interrupts of one connection.
type irqs struct {
	index  [NumIRQs][]vector
	masker IRQMasker // nil if the device does not care
	watch  irqWatch  // eventfds by which the client masks and unmasks
}

func newIRQs(counts [NumIRQs]uint32, masker IRQMasker, events *eventfds) *irqs {
	q := &irqs{masker: masker}
	for i, n := range counts {
		q.index[i] = make([]vector, n)
		for j := range q.index[i] {
			v := &q.index[i][j]
			v.events, v.fd, v.autoMask = events, -1, i == IRQIntx
		}
	}
	q.watch.act, q.watch.pace = q.mask, watchPace()
	return q
}

// raise is what a device gets as its signal function.
func (q *irqs) raise(index, vector int) {
	if index >= 0 && index < NumIRQs && vector >= 0 && vector < len(q.index[index]) {
		q.index[index][vector].raise()
	}
}

// close ends all delivery and closes all eventfds.
func (q *irqs) close() {
	q.watch.close()
	for i := range q.index {
		for j := range q.index[i] {
			q.index[i][j].kill()
		}
	}
}

// reset forgets interrupts that were not delivered; eventfds stay.
func (q *irqs) reset() {
	for i := range q.index {
		for j := range q.index[i] {
			q.index[i][j].forget()
		}
	}
}

func (q *irqs) mask(index, vector int, on bool) {
	q.index[index][vector].mask(on)
	if q.masker != nil {
		q.masker.IRQMasked(index, vector, on)
	}
}

// irqSet is a DEVICE_SET_IRQS request after the check of everything but its
// descriptors. The vectors exist.
type irqSet struct {
	data, action        uint32 // one IRQSetData*, one of IRQSetMask, Unmask, Trigger
	index, start, count int
	bools               []byte
}

func (q *irqs) parseSet(p []byte) (irqSet, error) {
	var s irqSet
	if len(p) < irqSetSize {
		return s, fmt.Errorf("payload of %d bytes is too short", len(p))
	}
	le := binary.LittleEndian
	argsz, flags, index, start, count := le.Uint32(p), le.Uint32(p[4:]), le.Uint32(p[8:]), le.Uint32(p[12:]), le.Uint32(p[16:])
	if argsz < irqSetSize {
		return s, fmt.Errorf("argsz %d is too small", argsz)
	}
	s.data, s.action = flags&irqSetDataMask, flags&irqSetActionMask
	if flags != s.data|s.action || !oneBit(s.data) || !oneBit(s.action) {
		return s, fmt.Errorf("flags %#x", flags)
	}
	if index >= NumIRQs {
		return s, fmt.Errorf("index %d does not exist", index)
	}
	if have := uint32(len(q.index[index])); start >= have || count > have-start {
		return s, fmt.Errorf("vectors %d+%d of index %d, which has %d", start, count, index, have)
	}
	if count == 0 && (start != 0 || flags != IRQSetDataNone|IRQSetTrigger) {
		return s, fmt.Errorf("start %d, flags %#x with no vectors", start, flags)
	}
	if (index == IRQErr || index == IRQReq) && s.action != IRQSetTrigger {
		return s, fmt.Errorf("index %d cannot be masked", index)
	}
	s.index, s.start, s.count = int(index), int(start), int(count)
	if s.data == IRQSetDataBool {
		if s.bools = p[irqSetSize:]; len(s.bools) != s.count {
			return s, fmt.Errorf("%d bytes for %d vectors", len(s.bools), s.count)
		}
	}
	return s, nil
}

func oneBit(x uint32) bool { return x != 0 && x&(x-1) == 0 }

// set is DEVICE_SET_IRQS.
func (q *irqs) set(m *request) error {
	s, err := q.parseSet(m.payload)
	if err != nil {
		return err
	}
	if s.data == IRQSetDataEventFD {
		return q.setEventFDs(s, m)
	}
	if len(m.fds) != 0 {
		return fmt.Errorf("%d descriptors without EVENTFD", len(m.fds))
	}
	if s.count == 0 {
		q.off(s.index)
		return nil
	}
	for i := range s.count {
		if s.data == IRQSetDataBool && s.bools[i] == 0 {
			continue
		}
		if s.action == IRQSetTrigger {
			q.raise(s.index, s.start+i)
		} else {
			q.mask(s.index, s.start+i, s.action == IRQSetMask)
		}
	}
	return nil
}

func (q *irqs) off(index int) {
	q.watch.off(index)
	for i := range q.index[index] {
		q.index[index][i].off()
	}
}

func (q *irqs) setEventFDs(s irqSet, m *request) error {
	if len(m.fds) != 0 && len(m.fds) != s.count {
		return fmt.Errorf("%d descriptors for %d vectors", len(m.fds), s.count)
	}
	for _, fd := range m.fds {
		if !isEventFD(fd) {
			return fmt.Errorf("descriptor is not an eventfd")
		}
	}
	for i := range s.count {
		fd := -1
		if len(m.fds) != 0 {
			fd = m.takeFD(i)
		}
		if s.action == IRQSetTrigger {
			q.index[s.index][s.start+i].connect(fd)
		} else if err := q.watch.set(watchKey{s.index, s.start + i, s.action == IRQSetMask}, fd); err != nil {
			return err
		}
	}
	return nil
}

// isEventFD refuses what the kernel's VFIO would refuse too: a write to
// something else could block or end the process. Without /proc it believes.
func isEventFD(fd int) bool {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err != nil || name == "anon_inode:[eventfd]"
}
