// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/binary"

	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// adminQueue is a driver's side of PF_FW_ATQ (ice_controlq.c): aqEntries slots
// at Base, and one buffer.
type adminQueue struct {
	*bench
	mem  *guestmem.Memory
	regs *reg.Space
	next uint32
}

const (
	aqEntries = 16
	aqBuffer  = rdmatest.Base + 0x1000

	atqBAL, atqBAH, atqLEN, atqH, atqT = 0x80000, 0x80100, 0x80200, 0x80300, 0x80400

	// Flags of descriptors (LIBIE_AQ_FLAG_*).
	aqRD, aqBUF, aqSI = 1 << 10, 1 << 12, 1 << 13
)

// newFirmware is a card's firmware with all queues off.
func newFirmware(b *bench) *adminQueue {
	q := &adminQueue{bench: b, mem: rdmatest.Memory(b, 1<<20)}
	f := fw.New(fw.Config{Mem: q.mem, Emit: b.emit})
	b.Cleanup(f.Close)
	q.regs = reg.NewSpace(8<<20, b.emit, f.Registers())
	return q
}

// newAdminQueue is the firmware with its queue for commands on, at an address.
func newAdminQueue(b *bench, ring uint64) *adminQueue {
	q := newFirmware(b)
	q.regs.Write32(atqH, 0)
	q.regs.Write32(atqT, 0)
	q.regs.Write32(atqLEN, aqEntries|1<<31)
	q.regs.Write32(atqBAL, uint32(ring))
	q.regs.Write32(atqBAH, uint32(ring>>32))
	return q
}

// send executes a command with its parameters, 16-bit words, and its buffer.
func (q *adminQueue) send(op, flags uint16, buf []byte, params ...uint16) *adminQueue {
	return q.sendAt(op, flags, aqBuffer, buf, params...)
}

func (q *adminQueue) sendAt(op, flags uint16, at uint64, buf []byte, params ...uint16) *adminQueue {
	var d [fw.DescriptorSize]byte
	le := binary.LittleEndian
	le.PutUint16(d[0:], flags|aqSI)
	le.PutUint16(d[2:], op)
	le.PutUint16(d[4:], uint16(len(buf)))
	for i, p := range params {
		le.PutUint16(d[16+2*i:], p)
	}
	if len(buf) > 0 {
		le.PutUint32(d[24:], uint32(at>>32))
		le.PutUint32(d[28:], uint32(at))
		if at == aqBuffer {
			if err := q.mem.Write(at, buf); err != nil {
				q.Fatal(err)
			}
		}
	}
	if err := q.mem.Write(rdmatest.Base+fw.DescriptorSize*uint64(q.next), d[:]); err != nil {
		q.Fatal(err)
	}
	q.next = (q.next + 1) % aqEntries
	q.regs.Write32(atqT, q.next)
	return q
}

// Commands and resources (libie/adminq.h, ice_adminq_cmd.h).
const (
	aqRequest, aqRelease  = 0x0008, 0x0009
	aqVersion             = 0x0001
	aqDownload            = 0x0c40
	resChange, resGlobal  = 3, 4
	accessRead, accessSet = 1, 2
)

// lock takes a resource.
func (q *adminQueue) lock(res uint16) *adminQueue { return q.send(aqRequest, 0, nil, res, accessSet) }

// packageBuffer has one section of 4 bytes, at an offset.
func packageBuffer(at byte) []byte {
	return []byte{1, 0, 16, 0, 9, 0, 0, 0, at, 0, 4, 0, 0, 0, 0, 0}
}

var fwScenarios = map[string]scenario{
	"aq-unsupported": {
		trigger: func(b *bench) { newAdminQueue(b, rdmatest.Base).send(0x0632, 0, nil) }, // get_sensor_reading
		near:    func(b *bench) { newAdminQueue(b, rdmatest.Base).send(aqVersion, 0, nil) },
	},
	"aq-unknown": {
		trigger: func(b *bench) { newAdminQueue(b, rdmatest.Base).send(0x7777, 0, nil) },
		near:    func(b *bench) { newAdminQueue(b, rdmatest.Base).send(aqVersion, 0, nil) },
	},
	"aq-descriptor": { // a command that takes a buffer without flag RD
		trigger: func(b *bench) {
			newAdminQueue(b, rdmatest.Base).lock(resGlobal).send(aqDownload, aqBUF, packageBuffer(12))
		},
		near: func(b *bench) {
			newAdminQueue(b, rdmatest.Base).lock(resGlobal).send(aqDownload, aqBUF|aqRD, packageBuffer(12))
		},
	},
	"aq-off": {
		trigger: func(b *bench) { newFirmware(b).regs.Write32(atqT, 1) },
		near:    func(b *bench) { newFirmware(b).regs.Write32(atqT, 0) }, // as drivers do before they begin
	},
	"aq-index": {
		trigger: func(b *bench) { newAdminQueue(b, rdmatest.Base).regs.Write32(atqT, aqEntries) },
		near: func(b *bench) {
			q := newAdminQueue(b, rdmatest.Base)
			for range aqEntries + 1 { // past the wrap
				q.send(aqVersion, 0, nil)
			}
		},
	},
	"aq-memory": {
		trigger: func(b *bench) {
			newAdminQueue(b, rdmatest.Base).lock(resGlobal).sendAt(aqDownload, aqBUF|aqRD, unmapped, packageBuffer(12))
		},
		near: func(b *bench) { newAdminQueue(b, unmapped) }, // nothing posted yet
	},
	"aq-lock": {
		trigger: func(b *bench) { newAdminQueue(b, rdmatest.Base).send(aqDownload, aqBUF|aqRD, packageBuffer(12)) },
		near: func(b *bench) {
			newAdminQueue(b, rdmatest.Base).lock(resGlobal).send(aqDownload, aqBUF|aqRD, packageBuffer(12))
		},
	},
	"aq-unlock": {
		trigger: func(b *bench) { newAdminQueue(b, rdmatest.Base).lock(resChange).send(aqRelease, 0, nil, resGlobal) },
		near:    func(b *bench) { newAdminQueue(b, rdmatest.Base).lock(resGlobal).send(aqRelease, 0, nil, resGlobal) },
	},
	"ddp-buffer": {
		trigger: func(b *bench) {
			newAdminQueue(b, rdmatest.Base).lock(resGlobal).send(aqDownload, aqBUF|aqRD, packageBuffer(13))
		},
		near: func(b *bench) {
			newAdminQueue(b, rdmatest.Base).lock(resGlobal).send(aqDownload, aqBUF|aqRD, packageBuffer(12))
		},
	},
}
