// SPDX-License-Identifier: Apache-2.0

// Echo is the least that QEMU takes for a PCI device: one trapped register BAR
// behind a vfio-user socket, with read and write on Go's net poller and nothing
// else in the way. It is what benchmarks hold the real server against, so it
// checks nothing and must not be used for anything else.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// The device as a guest sees it. The identity is nobody's.
const (
	vendorID  = 0x1234
	deviceID  = 0xec40
	barSize   = 4096
	configLen = 256 // conventional PCI: no capability needed
)

const (
	headerLen = 16
	accessLen = 16 // u64 offset, u32 region, u32 count
	writeLen  = 24 // an access and 8 bytes of data, in REGION_WRITE_MULTI

	version = "\x00\x00\x00\x00" + `{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"write_multiple":true}}` + "\x00"
)

var le = binary.LittleEndian

func main() {
	socket := flag.String("socket", "", "path to listen on")
	flag.Parse()
	l, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	for {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		if err := newDevice().serve(conn); !errors.Is(err, io.EOF) {
			log.Print(err)
		}
		conn.Close()
	}
}

type device struct {
	config [configLen]byte
	bar    [barSize]byte
	out    []byte // the reply in the making
}

func newDevice() *device {
	d := &device{out: make([]byte, 64<<10)}
	le.PutUint16(d.config[0x00:], vendorID)
	le.PutUint16(d.config[0x02:], deviceID)
	le.PutUint16(d.config[0x0a:], 0xff00) // class: fits none
	return d
}

// serve reads what is there and answers message by message until the client
// leaves, which is io.EOF. Descriptors are lost in read, which is what this device wants.
func (d *device) serve(conn net.Conn) error {
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := conn.Read(buf[have:])
		if err != nil {
			return err
		}
		have += n
		at := 0
		for have-at >= headerLen {
			h := vfiouser.ParseHeader(buf[at:])
			size := int(h.Size)
			if size < headerLen || size > len(buf) {
				return fmt.Errorf("%v of %d bytes", h.Command, size)
			}
			if have-at < size {
				break
			}
			length, err := d.handle(h, buf[at+headerLen:at+size])
			if err != nil {
				return err
			}
			at += size
			if h.Flags&vfiouser.FlagNoReply != 0 {
				continue
			}
			h.Size, h.Flags, h.Errno = uint32(headerLen+length), vfiouser.FlagReply, 0
			h.Put(d.out)
			if _, err := conn.Write(d.out[:headerLen+length]); err != nil {
				return err
			}
		}
		have = copy(buf, buf[at:have])
	}
}

// handle does one command; the payload of the reply is in d.out behind the
// header, and its length is returned.
func (d *device) handle(h vfiouser.Header, p []byte) (int, error) {
	out := d.out[headerLen:]
	switch h.Command {
	case vfiouser.CmdRegionRead:
		n := int(le.Uint32(p[12:]))
		copy(out, p[:accessLen])
		copy(out[accessLen:accessLen+n], d.at(p))
		return accessLen + n, nil
	case vfiouser.CmdRegionWrite:
		d.write(p, p[accessLen:])
		return copy(out, p[:accessLen]), nil
	case vfiouser.CmdRegionWriteMulti:
		for w := p[8:]; len(w) >= writeLen; w = w[writeLen:] {
			d.write(w, w[accessLen:accessLen+le.Uint32(w[12:])])
		}
		return copy(out, p[:8]), nil
	case vfiouser.CmdVersion:
		return copy(out, version), nil
	case vfiouser.CmdDMAMap, vfiouser.CmdSetIRQs:
		return 0, nil
	case vfiouser.CmdDMAUnmap:
		return copy(out, p), nil
	case vfiouser.CmdDeviceGetInfo:
		return put32(out, 16, vfiouser.DevicePCI|vfiouser.DeviceReset, vfiouser.NumRegions, vfiouser.NumIRQs), nil
	case vfiouser.CmdGetRegionInfo:
		var size, flags uint32
		index := le.Uint32(p[8:])
		switch index {
		case vfiouser.RegionBAR0:
			size, flags = barSize, vfiouser.RegionRead|vfiouser.RegionWrite
		case vfiouser.RegionConfig:
			size, flags = configLen, vfiouser.RegionRead|vfiouser.RegionWrite
		}
		return put32(out, 32, flags, index, 0, size, 0, 0, 0), nil
	case vfiouser.CmdGetIRQInfo:
		var count uint32
		index := le.Uint32(p[8:])
		if index == vfiouser.IRQErr {
			count = 1 // or QEMU warns
		}
		return put32(out, 16, vfiouser.IRQEventFD, index, count), nil
	case vfiouser.CmdDeviceReset:
		clear(d.config[0x04:0x06])
		return 0, nil
	}
	return 0, fmt.Errorf("%v is not for this device", h.Command)
}

// at is the memory that an access starts at.
func (d *device) at(access []byte) []byte {
	off := le.Uint64(access)
	if le.Uint32(access[8:]) == vfiouser.RegionConfig {
		return d.config[off:]
	}
	return d.bar[off:]
}

// write stores all that goes to the BAR. Of config space only COMMAND can be
// written: QEMU itself keeps the BARs.
func (d *device) write(access, data []byte) {
	if le.Uint32(access[8:]) != vfiouser.RegionConfig || le.Uint64(access) == 0x04 {
		copy(d.at(access), data)
	}
}

func put32(p []byte, words ...uint32) int {
	for i, w := range words {
		le.PutUint32(p[4*i:], w)
	}
	return 4 * len(words)
}
