// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
)

// Command is the number of a message (vfio-user.rst, "Message Types").
type Command uint16

// The commands. DIRTY_PAGES (14) was removed from the protocol.
const (
	CmdVersion          Command = 1
	CmdDMAMap           Command = 2
	CmdDMAUnmap         Command = 3
	CmdDeviceGetInfo    Command = 4
	CmdGetRegionInfo    Command = 5
	CmdGetRegionIOFDs   Command = 6
	CmdGetIRQInfo       Command = 7
	CmdSetIRQs          Command = 8
	CmdRegionRead       Command = 9
	CmdRegionWrite      Command = 10
	CmdDMARead          Command = 11 // server to client
	CmdDMAWrite         Command = 12 // server to client
	CmdDeviceReset      Command = 13
	CmdRegionWriteMulti Command = 15
	CmdDeviceFeature    Command = 16
	CmdMigDataRead      Command = 17
	CmdMigDataWrite     Command = 18
)

// Sizes of the structures, in bytes.
const (
	headerSize       = 16
	deviceInfoSize   = 16 // u32 argsz, flags, num_regions, num_irqs
	regionInfoSize   = 32 // u32 argsz, flags, index, cap_offset, u64 size, offset
	irqInfoSize      = 16 // u32 argsz, flags, index, count
	irqSetSize       = 20 // u32 argsz, flags, index, start, count
	ioFDsSize        = 16 // u32 argsz, flags, index, count
	dmaHeaderSize    = 16 // u64 address, count
	narrowHeaderSize = 12 // u64 address, u32 count: DMA messages of QEMU 10
	capHeaderSize    = 8  // u16 id, version, u32 next
	sparseHeaderSize = 8  // u32 nr_areas, reserved
	areaSize         = 16 // u64 offset, size
	regionHeaderSize = 16 // u64 offset, u32 region, count
	multiHeaderSize  = 8  // u64 wr_cnt
	multiEntrySize   = 24 // u64 offset, u32 region, count, u8 data[8]
	multiEntryData   = 8
	dmaMapSize       = 32 // u32 argsz, flags, u64 offset, address, size
	dmaUnmapSize     = 24 // u32 argsz, flags, u64 address, size
)

// Limits of this implementation, told or refused in VERSION.
const (
	maxMsgFDs       = 8       // most descriptors the server takes in one message
	maxDataTransfer = 1 << 20 // most bytes of one region or DMA transfer
	maxMessage      = headerSize + regionHeaderSize + maxDataTransfer
	pageSize        = 4096     // granularity of DMA maps
	maxOfferedFDs   = 1024     // libvfio-user refuses a client that offers more
	maxDMAMaps      = 65535    // most DMA ranges at a time; QEMU's own limit
	maxDMAMessage   = 64 << 10 // most bytes of one DMA_READ or DMA_WRITE
)

// String gives the name as the specification spells it, without the prefix.
func (c Command) String() string {
	names := [...]string{
		CmdVersion:          "VERSION",
		CmdDMAMap:           "DMA_MAP",
		CmdDMAUnmap:         "DMA_UNMAP",
		CmdDeviceGetInfo:    "DEVICE_GET_INFO",
		CmdGetRegionInfo:    "DEVICE_GET_REGION_INFO",
		CmdGetRegionIOFDs:   "DEVICE_GET_REGION_IO_FDS",
		CmdGetIRQInfo:       "DEVICE_GET_IRQ_INFO",
		CmdSetIRQs:          "DEVICE_SET_IRQS",
		CmdRegionRead:       "REGION_READ",
		CmdRegionWrite:      "REGION_WRITE",
		CmdDMARead:          "DMA_READ",
		CmdDMAWrite:         "DMA_WRITE",
		CmdDeviceReset:      "DEVICE_RESET",
		CmdRegionWriteMulti: "REGION_WRITE_MULTI",
		CmdDeviceFeature:    "DEVICE_FEATURE",
		CmdMigDataRead:      "MIG_DATA_READ",
		CmdMigDataWrite:     "MIG_DATA_WRITE",
	}
	if int(c) < len(names) && names[c] != "" {
		return names[c]
	}
	return fmt.Sprintf("command %d", uint16(c))
}

// Header flags (vfio-user.rst, "Header").
const (
	FlagTypeMask uint32 = 0xf
	FlagCommand  uint32 = 0
	FlagReply    uint32 = 1
	FlagNoReply  uint32 = 1 << 4
	FlagError    uint32 = 1 << 5
)

// Header is the 16 bytes in front of every message, little-endian.
type Header struct {
	ID      uint16 // chosen by the sender of the command, echoed in the reply
	Command Command
	Size    uint32 // bytes of the whole message, header included
	Flags   uint32
	Errno   uint32 // valid in a reply with FlagError
}

// IsReply tells a reply from a command.
func (h Header) IsReply() bool { return h.Flags&FlagTypeMask == FlagReply }

// ParseHeader decodes the first 16 bytes of b, which must be there.
func ParseHeader(b []byte) Header {
	_ = b[headerSize-1]
	return Header{
		ID:      binary.LittleEndian.Uint16(b[0:]),
		Command: Command(binary.LittleEndian.Uint16(b[2:])),
		Size:    binary.LittleEndian.Uint32(b[4:]),
		Flags:   binary.LittleEndian.Uint32(b[8:]),
		Errno:   binary.LittleEndian.Uint32(b[12:]),
	}
}

// Put encodes h into the first 16 bytes of b, which must be there.
func (h Header) Put(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint16(b[0:], h.ID)
	binary.LittleEndian.PutUint16(b[2:], uint16(h.Command))
	binary.LittleEndian.PutUint32(b[4:], h.Size)
	binary.LittleEndian.PutUint32(b[8:], h.Flags)
	binary.LittleEndian.PutUint32(b[12:], h.Errno)
}

// Message is what an Observer sees of one message.
type Message struct {
	Header
	Sent    bool   // by this side
	Payload []byte // behind the header; valid only during the call
	FDs     int    // how many descriptors came or went with it
}

// Regions of a PCI device (linux/vfio.h, VFIO_PCI_*_REGION_INDEX).
const (
	RegionBAR0   = 0
	RegionBAR5   = 5
	RegionROM    = 6
	RegionConfig = 7
	RegionVGA    = 8
	NumRegions   = 9
)

// Flags of a region (linux/vfio.h, VFIO_REGION_INFO_FLAG_*).
const (
	RegionRead  uint32 = 1 << 0
	RegionWrite uint32 = 1 << 1
	RegionMmap  uint32 = 1 << 2
	RegionCaps  uint32 = 1 << 3
)

// capSparseMmap is the region capability that lists mappable areas
// (linux/vfio.h, VFIO_REGION_INFO_CAP_SPARSE_MMAP).
const (
	capSparseMmap        = 1
	capSparseMmapVersion = 1
)

// Interrupt indices of a PCI device (linux/vfio.h, VFIO_PCI_*_IRQ_INDEX).
const (
	IRQIntx = 0
	IRQMSI  = 1
	IRQMSIX = 2
	IRQErr  = 3
	IRQReq  = 4
	NumIRQs = 5
)

// Flags of an interrupt index (linux/vfio.h, VFIO_IRQ_INFO_*).
const (
	IRQEventFD    uint32 = 1 << 0
	IRQMaskable   uint32 = 1 << 1
	IRQAutomasked uint32 = 1 << 2
	IRQNoResize   uint32 = 1 << 3
)

// Flags of DEVICE_SET_IRQS (linux/vfio.h, VFIO_IRQ_SET_*): one of each group.
const (
	IRQSetDataNone    uint32 = 1 << 0
	IRQSetDataBool    uint32 = 1 << 1
	IRQSetDataEventFD uint32 = 1 << 2
	irqSetDataMask           = IRQSetDataNone | IRQSetDataBool | IRQSetDataEventFD

	IRQSetMask       uint32 = 1 << 3
	IRQSetUnmask     uint32 = 1 << 4
	IRQSetTrigger    uint32 = 1 << 5
	irqSetActionMask        = IRQSetMask | IRQSetUnmask | IRQSetTrigger
)

// Flags of DEVICE_GET_INFO (linux/vfio.h, VFIO_DEVICE_FLAGS_*).
const (
	DeviceReset uint32 = 1 << 0
	DevicePCI   uint32 = 1 << 1
)

// Flags of DMA_MAP. The last two say how a descriptor is to be used and are
// newer than QEMU 10.2 (vfio-user.rst, "VFIO_USER_DMA_MAP").
const (
	DMARead  uint32 = 1 << 0
	DMAWrite uint32 = 1 << 1
	DMAMmap  uint32 = 1 << 2
	DMAFile  uint32 = 1 << 3
)

// Flags of DMA_UNMAP (linux/vfio.h, VFIO_DMA_UNMAP_FLAG_*). The dirty bitmap
// form is not part of the protocol any more and is refused.
const (
	DMAUnmapAll uint32 = 1 << 1
)
