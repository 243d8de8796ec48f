// SPDX-License-Identifier: Apache-2.0

package minidriver

import "math/bits"

// Caps are the capabilities that the drivers act on (ice_common.c:ice_parse_common_caps).
type Caps struct {
	Functions int // population of the valid functions
	VSIs      int
	RxQueues  int
	TxQueues  int
	Vectors   int
	RSSTable  int
	RDMA      bool
	MaxTC     int
}

// Capability ids (libie/adminq.h:LIBIE_AQC_CAPS_*).
const (
	LIBIE_AQC_CAPS_VALID_FUNCTIONS = 0x0005
	LIBIE_AQC_CAPS_VSI             = 0x0017
	LIBIE_AQC_CAPS_DCB             = 0x0018
	LIBIE_AQC_CAPS_RSS             = 0x0040
	LIBIE_AQC_CAPS_RXQS            = 0x0041
	LIBIE_AQC_CAPS_TXQS            = 0x0042
	LIBIE_AQC_CAPS_MSIX            = 0x0043
	LIBIE_AQC_CAPS_FD              = 0x0045
	LIBIE_AQC_CAPS_RDMA            = 0x0051
)

type capability struct{ number, logical, phys uint32 }

func (i *ICE) listCaps(op uint16) (map[uint16]capability, error) {
	c := &Command{Op: op, Buf: make([]byte, aqBufSize)}
	if err := i.aq.do(c); err != nil {
		return nil, err
	}
	const record = 32
	n := int(c.u32(4))
	if n*record != c.Len {
		return nil, c.wrong("%d records in %d bytes", n, c.Len)
	}
	caps := make(map[uint16]capability)
	for k := range n {
		r := c.Buf[k*record:]
		caps[le.Uint16(r)] = capability{le.Uint32(r[4:]), le.Uint32(r[8:]), le.Uint32(r[12:])}
	}
	return caps, nil
}

func (i *ICE) initCaps() error {
	dev, err := i.listCaps(ice_aqc_opc_list_dev_caps)
	if err != nil {
		return err
	}
	fn, err := i.listCaps(ice_aqc_opc_list_func_caps)
	if err != nil {
		return err
	}
	i.Caps = Caps{
		Functions: bits.OnesCount32(dev[LIBIE_AQC_CAPS_VALID_FUNCTIONS].number),
		RxQueues:  int(fn[LIBIE_AQC_CAPS_RXQS].number),
		TxQueues:  int(fn[LIBIE_AQC_CAPS_TXQS].number),
		Vectors:   int(fn[LIBIE_AQC_CAPS_MSIX].number),
		RSSTable:  int(fn[LIBIE_AQC_CAPS_RSS].number),
		RDMA:      fn[LIBIE_AQC_CAPS_RDMA].number&1 != 0,
		MaxTC:     int(fn[LIBIE_AQC_CAPS_DCB].phys),
	}
	c := &i.Caps
	const allVSIs, pfRSSTable, maxRDMAFunctions = 768, 2048, 4
	if c.Functions == 0 {
		return broken("no valid functions in the device's capabilities: the driver divides by their number")
	}
	if _, ok := fn[LIBIE_AQC_CAPS_VSI]; ok {
		c.VSIs = allVSIs / c.Functions
	}
	lan := i.Kernel.lanQueues(i.opts.cpus())
	switch {
	case c.VSIs == 0:
		return broken("no VSI capability")
	case c.RxQueues < lan+1 || c.TxQueues < lan+1:
		return broken("%d Rx and %d Tx queues for %d queue pairs and the control VSI", c.RxQueues, c.TxQueues, lan)
	case fn[LIBIE_AQC_CAPS_RXQS].phys != 0 || fn[LIBIE_AQC_CAPS_TXQS].phys != 0 || fn[LIBIE_AQC_CAPS_MSIX].phys != 0:
		return broken("first queue or vector of the function is not 0")
	case c.RSSTable != pfRSSTable:
		return broken("RSS table of %d entries", c.RSSTable)
	case c.Vectors > i.F.table:
		return broken("%d vectors in the capabilities, %d in the MSI-X table", c.Vectors, i.F.table)
	case c.Functions > maxRDMAFunctions:
		c.RDMA = false
	}
	if _, ok := fn[LIBIE_AQC_CAPS_FD]; ok && i.F.Read32(GLQF_FD_SIZE) == 0 {
		return broken("GLQF_FD_SIZE is 0 with the flow director capability")
	}
	return i.F.Err()
}

func (i *ICE) initSwitch() error {
	c := &Command{Op: ice_aqc_opc_get_sw_cfg, Buf: make([]byte, 2048)}
	if err := i.aq.do(c); err != nil {
		return err
	}
	const record, typePhysPort = 6, 0
	n := int(c.u16(4))
	if c.u16(2) != 0 || n == 0 || n*record > c.Len {
		return c.wrong("%d elements in %d bytes, next %d", n, c.Len, c.u16(2))
	}
	for k := range n {
		e := c.Buf[k*record:]
		if num := le.Uint16(e); num>>14 == typePhysPort {
			i.lport, i.swID = num&0x3ff, le.Uint16(e[2:])
			return nil
		}
	}
	return c.wrong("no physical port among %d elements", n)
}

// allocResource is 0x0208 for one entry; it returns its index.
func (i *ICE) allocResource(kind uint16, count uint16) (uint16, error) {
	c := resourceCommand(ice_aqc_opc_alloc_res, kind, 0)
	le.PutUint16(c.Buf[2:], count)
	if err := i.aq.do(c); err != nil {
		return 0, err
	}
	return le.Uint16(c.Buf[4:]), nil
}

func (i *ICE) freeResource(kind, index uint16) error {
	return i.aq.do(resourceCommand(ice_aqc_opc_free_res, kind, index))
}

func resourceCommand(op, kind, index uint16) *Command {
	c := &Command{Op: op, RD: true, Buf: make([]byte, 6)}
	c.put16(0, 1)
	le.PutUint16(c.Buf, kind)
	le.PutUint16(c.Buf[2:], 1)
	le.PutUint16(c.Buf[4:], index)
	return c
}

// initFDCounter is the end of ice_common.c:ice_init_hw.
func (i *ICE) initFDCounter() error {
	var err error
	if i.fdCounter, err = i.allocResource(ICE_AQC_RES_TYPE_FDIR_COUNTER_BLOCK, 1); err != nil {
		return err
	}
	const masks = 32
	for n := range masks / i.Caps.Functions {
		i.F.Write32(GLQF_HMASK(n), 0)
		i.F.Write32(GLQF_FDMASK(n), 0)
	}
	if i.Kernel.PortOptions {
		if i.F.Read32(GL_MNG_FWSM)&fwsmLoading != 0 {
			return broken("GL_MNG_FWSM says that firmware is loading")
		}
		c := &Command{Op: ice_aqc_opc_get_port_options, Buf: make([]byte, 128)}
		c.P[1] = 1
		return tolerate(i.aq.do(c))
	}
	return i.F.Err()
}

// initFDPools is part of ice_main.c:ice_init_pf: it tells firmware how much of the
// two pools is ours and ignores the answer.
func (i *ICE) initFDPools() error {
	size := i.F.Read32(GLQF_FD_SIZE)
	for _, pool := range []struct{ kind, count uint16 }{
		{ICE_AQC_RES_TYPE_FDIR_GUARANTEED_ENTRIES, uint16(size & 0x7fff)},
		{ICE_AQC_RES_TYPE_FDIR_SHARED_ENTRIES, uint16(size >> 16 & 0x7fff)},
	} {
		if _, err := i.allocResource(pool.kind, pool.count); err != nil {
			return tolerate(err)
		}
	}
	return i.F.Err()
}
