// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// The little of the RDMA subsystem's netlink interface that tells which
// connection manager ids listen (uapi/rdma/rdma_netlink.h). An id that listens on
// every address has one for each device, and those are what is seen.
const (
	rdmaNLDev = 5 << 10 // RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, 0)

	nldevGet        = rdmaNLDev + 1  // RDMA_NLDEV_CMD_GET
	nldevResCMIDGet = rdmaNLDev + 11 // RDMA_NLDEV_CMD_RES_CM_ID_GET

	attrDevIndex    = 1  // RDMA_NLDEV_ATTR_DEV_INDEX
	attrResState    = 27 // RDMA_NLDEV_ATTR_RES_STATE
	attrResCMID     = 30 // RDMA_NLDEV_ATTR_RES_CM_ID
	attrResCMIDItem = 31 // RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY
	attrResCMIDN    = 63 // RDMA_NLDEV_ATTR_RES_CM_IDN

	cmListen = 8 // drivers/infiniband/core/cma_priv.h:RDMA_CM_LISTEN
)

// listeningCMIDs identifies the RDMA connection manager's ids that listen. No
// RDMA is no error: there are none then.
func listeningCMIDs() (ids []string) {
	_ = rdmaDump(nldevGet, nil, func(dev []byte) {
		eachAttr(dev, func(kind uint16, index []byte) {
			if kind != attrDevIndex || len(index) != 4 {
				return
			}
			_ = rdmaDump(nldevResCMIDGet, appendAttr(nil, attrDevIndex, index), func(m []byte) {
				for _, n := range listeningIn(m) {
					ids = append(ids, fmt.Sprintf("%d/%d", binary.LittleEndian.Uint32(index), n))
				}
			})
		})
	})
	return ids
}

// listeningIn returns the numbers of the listening ids in one message of a dump.
func listeningIn(msg []byte) (numbers []uint32) {
	eachAttr(msg, func(kind uint16, table []byte) {
		if kind != attrResCMID {
			return
		}
		eachAttr(table, func(kind uint16, entry []byte) {
			if kind != attrResCMIDItem {
				return
			}
			var number uint32
			listens := false
			eachAttr(entry, func(kind uint16, v []byte) {
				switch {
				case kind == attrResState && len(v) == 1:
					listens = v[0] == cmListen
				case kind == attrResCMIDN && len(v) == 4:
					number = binary.LittleEndian.Uint32(v)
				}
			})
			if listens {
				numbers = append(numbers, number)
			}
		})
	})
	return numbers
}

// eachAttr goes through netlink attributes.
func eachAttr(b []byte, do func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.LittleEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
		do(binary.LittleEndian.Uint16(b[2:])&^flags, b[unix.SizeofRtAttr:n])
		b = b[min(len(b), (n+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
}

// rdmaDump asks for all of something; take gets the attributes of each message.
func rdmaDump(kind uint16, attrs []byte, take func(attrs []byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	if err != nil {
		return fmt.Errorf("rdma netlink: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, netlinkMessage(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, attrs), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("rdma netlink: send: %w", err)
	}
	reply := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, reply, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("rdma netlink: receive: %w", err)
		}
		for b := reply[:n]; len(b) >= unix.SizeofNlMsghdr; {
			length := int(binary.LittleEndian.Uint32(b))
			if length < unix.SizeofNlMsghdr || length > len(b) {
				return fmt.Errorf("rdma netlink: a message of %d bytes in %d", length, len(b))
			}
			switch binary.LittleEndian.Uint16(b[4:]) {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				return nil
			case kind:
				take(b[unix.SizeofNlMsghdr:length])
			}
			b = b[min(len(b), (length+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
		}
	}
}
