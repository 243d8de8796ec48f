// SPDX-License-Identifier: Apache-2.0

package fw

import "fmt"

// errno is what a command returns in its descriptor's retval: ICE_AQ_RC_*,
// since 7.x LIBIE_AQ_RC_* (include/linux/net/intel/libie/adminq.h).
type errno uint16

// The codes of the firmware, by their kernel names.
const (
	rcOK      errno = 0
	rcEPERM   errno = 1
	rcENOENT  errno = 2
	rcESRCH   errno = 3
	rcEIO     errno = 5
	rcEAGAIN  errno = 8
	rcENOMEM  errno = 9
	rcEACCES  errno = 10
	rcEBUSY   errno = 12
	rcEEXIST  errno = 13
	rcEINVAL  errno = 14
	rcENOSPC  errno = 16
	rcENOSYS  errno = 17
	rcEMODE   errno = 21
	rcENOSEC  errno = 24
	rcEBADSIG errno = 25
	rcESVN    errno = 26
	rcEBADMAN errno = 27
	rcEBADBUF errno = 28
)

// request is one admin command in execution. It holds local copies only.
type request struct {
	// desc is the descriptor. Handlers read and write the parameters, p().
	desc [32]byte
	// buf is a copy of the command buffer if the command is one that reads
	// it, otherwise zeroes, and is datalen bytes long. The response is
	// written into it.
	buf []byte
	// n is how many bytes of buf go back, never more than len(buf); preset to
	// len(buf) for commands that read the buffer and to 0 otherwise.
	n int
	// grace: the command has ended something that the data path may be using;
	// it is answered when that is over.
	grace bool
	// then, if set, follows the answer.
	then func()
}

// p is the command's parameters, 16 bytes, to be overwritten by the response.
func (r *request) p() []byte { return r.desc[16:32] }

// command is one row of the command table.
type command struct {
	op   uint16
	name string // ice_aqc_opc_* without its prefix
	rd   bool   // takes a buffer from the driver (flag RD)
	// minBuf is the shortest buffer that makes sense; a shorter one: EINVAL.
	minBuf   int
	run      func(*Firmware, *request) errno
	source   string // kernel file:symbol
	inferred bool   // the behaviour is not stated by any driver source
}

var errnoNames = map[errno]string{
	rcOK: "OK", rcEPERM: "EPERM", rcENOENT: "ENOENT", rcESRCH: "ESRCH", rcEIO: "EIO",
	rcEAGAIN: "EAGAIN", rcENOMEM: "ENOMEM", rcEACCES: "EACCES", rcEBUSY: "EBUSY",
	rcEEXIST: "EEXIST", rcEINVAL: "EINVAL", rcENOSPC: "ENOSPC", rcENOSYS: "ENOSYS",
	rcEMODE: "EMODE", rcENOSEC: "ENOSEC", rcEBADSIG: "EBADSIG", rcESVN: "ESVN",
	rcEBADMAN: "EBADMAN", rcEBADBUF: "EBADBUF",
}

func (e errno) String() string {
	if n, ok := errnoNames[e]; ok {
		return n
	}
	return fmt.Sprintf("retval %d", uint16(e))
}

// index turns the tables into one by opcode. Two rows for one opcode are a
// programming error.
func index(tables ...[]command) map[uint16]*command {
	m := map[uint16]*command{}
	for _, t := range tables {
		for i := range t {
			c := &t[i]
			if m[c.op] != nil {
				panic(fmt.Sprintf("fw: two rows for opcode %#04x", c.op))
			}
			m[c.op] = c
		}
	}
	return m
}

// execute runs the command in r, which came from slot i at addr of q.
func (f *Firmware) execute(q *sendQueue, i uint32, addr uint64, r *request) errno {
	flags, op, datalen := le.Uint16(r.desc[0:]), le.Uint16(r.desc[2:]), le.Uint16(r.desc[4:])
	c := q.commands[op]
	if c == nil || c.run == nil {
		u := UnknownCommand{Queue: q.name, Index: i, Opcode: op}
		if c != nil {
			u.Name = c.name
		}
		f.emit(u)
		f.emit(Command{q.name, i, op, u.Name, datalen, uint16(rcESRCH)})
		return rcESRCH
	}
	rc := f.call(c, q, r, func(why string) {
		f.emit(BadDescriptor{q.name, i, op, flags, datalen, addr, why})
	}, func(iova uint64, err error) {
		f.emit(QueueFault{q.name, i, "buffer", iova, err})
	})
	f.steer()
	f.emit(Command{q.name, i, op, c.name, datalen, uint16(rc)})
	return rc
}

// call fetches the buffer of r, runs c, and returns the buffer.
func (f *Firmware) call(c *command, q *sendQueue, r *request, bad func(string), fault func(uint64, error)) errno {
	flags, datalen := le.Uint16(r.desc[0:]), int(le.Uint16(r.desc[4:]))
	addr := uint64(le.Uint32(r.desc[24:]))<<32 | uint64(le.Uint32(r.desc[28:]))
	if flags&flagBUF != 0 {
		switch {
		case datalen > q.maxBuf:
			bad(fmt.Sprintf("buffer longer than %d", q.maxBuf))
			return rcEINVAL
		case datalen > largeBuf && flags&flagLB == 0:
			bad("large buffer without flag LB")
		}
		r.buf = make([]byte, datalen)
	}
	if len(r.buf) < c.minBuf {
		bad(fmt.Sprintf("%s needs a buffer of %d bytes", c.name, c.minBuf))
		return rcEINVAL
	}
	if c.rd {
		if flags&flagRD == 0 {
			bad(c.name + " without flag RD")
			return rcEINVAL
		}
		if len(r.buf) > 0 {
			if err := f.cfg.Mem.Read(addr, r.buf); err != nil {
				fault(addr, err)
				return rcEIO
			}
		}
		r.n = len(r.buf)
	}
	if rc := c.run(f, r); rc != rcOK {
		return rc
	}
	r.n = min(r.n, len(r.buf))
	if r.n > 0 {
		if err := f.cfg.Mem.Write(addr, r.buf[:r.n]); err != nil {
			fault(addr, err)
			return rcEIO
		}
	}
	le.PutUint16(r.desc[4:], uint16(r.n))
	return rcOK
}
