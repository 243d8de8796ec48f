// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The little of rtnetlink(7) that init needs: set a link, add an address, hear
// of changes. Multi-byte fields are in host byte order; so is our only
// architecture, little-endian.

const ifaFlags = 8 // IFA_FLAGS, a uint32 (uapi/linux/if_addr.h)

// setLink brings a link up and, if mtu is not zero, sets its MTU.
func setLink(index int, mtu int) error {
	msg := make([]byte, unix.SizeofIfInfomsg)
	info := (*unix.IfInfomsg)(unsafe.Pointer(&msg[0]))
	info.Index = int32(index)
	info.Flags, info.Change = unix.IFF_UP, unix.IFF_UP
	if mtu != 0 {
		msg = appendAttr(msg, unix.IFLA_MTU, binary.LittleEndian.AppendUint32(nil, uint32(mtu)))
	}
	return rtRequest(unix.RTM_NEWLINK, 0, msg)
}

// addAddress adds an address, usable at once: an IPv6 address skips duplicate
// detection, as there is nobody else on this wire whom we did not configure.
// An address that is there already is no error.
func addAddress(index int, p netip.Prefix) error {
	msg := make([]byte, unix.SizeofIfAddrmsg)
	info := (*unix.IfAddrmsg)(unsafe.Pointer(&msg[0]))
	info.Family = unix.AF_INET
	info.Prefixlen = uint8(p.Bits())
	info.Index = uint32(index)
	if p.Addr().Is6() {
		info.Family = unix.AF_INET6
		msg = appendAttr(msg, ifaFlags, binary.LittleEndian.AppendUint32(nil, unix.IFA_F_NODAD))
	}
	msg = appendAttr(msg, unix.IFA_LOCAL, p.Addr().AsSlice())
	msg = appendAttr(msg, unix.IFA_ADDRESS, p.Addr().AsSlice())
	err := rtRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, msg)
	if err == unix.EEXIST {
		return nil
	}
	return err
}

func appendAttr(msg []byte, kind uint16, value []byte) []byte {
	msg = binary.LittleEndian.AppendUint16(msg, uint16(unix.SizeofRtAttr+len(value)))
	msg = binary.LittleEndian.AppendUint16(msg, kind)
	msg = append(msg, value...)
	for len(msg)%unix.RTA_ALIGNTO != 0 {
		msg = append(msg, 0)
	}
	return msg
}

// netlinkSequence is the number of every request: each has a socket of its own.
const netlinkSequence = 1

// netlinkMessage puts the header before a request.
func netlinkMessage(kind, flags uint16, body []byte) []byte {
	msg := binary.LittleEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	msg = binary.LittleEndian.AppendUint16(msg, kind)
	msg = binary.LittleEndian.AppendUint16(msg, flags)
	msg = binary.LittleEndian.AppendUint32(msg, netlinkSequence)
	msg = binary.LittleEndian.AppendUint32(msg, 0) // the kernel fills in our port
	return append(msg, body...)
}

// rtRequest sends one request and waits for its acknowledgement.
func rtRequest(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("rtnetlink: %w", err)
	}
	defer unix.Close(fd)
	msg := netlinkMessage(kind, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK, body)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("rtnetlink: send: %w", err)
	}
	reply := make([]byte, 8<<10)
	for {
		n, _, err := unix.Recvfrom(fd, reply, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("rtnetlink: receive: %w", err)
		}
		// nlmsghdr (length, type, flags, sequence, port), then the errno.
		if n < unix.SizeofNlMsghdr+4 ||
			binary.LittleEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR ||
			binary.LittleEndian.Uint32(reply[8:]) != netlinkSequence {
			continue
		}
		if errno := -int32(binary.LittleEndian.Uint32(reply[unix.SizeofNlMsghdr:])); errno != 0 {
			return unix.Errno(errno)
		}
		return nil
	}
}

// watchLinks signals on the returned channel after links or devices may have
// changed: RTM_NEWLINK and friends, and the kernel's uevents. One pending
// signal stands for any number, so a receiver looks at everything again.
func watchLinks() (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	for _, source := range []struct {
		protocol int
		groups   uint32
	}{
		{unix.NETLINK_ROUTE, unix.RTMGRP_LINK},
		{unix.NETLINK_KOBJECT_UEVENT, 1},
	} {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, source.protocol)
		if err != nil {
			return nil, fmt.Errorf("netlink: %w", err)
		}
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: source.groups}); err != nil {
			return nil, fmt.Errorf("netlink: bind: %w", err)
		}
		go func() {
			// Only that something came matters; a cut or lost message
			// (ENOBUFS) says the same.
			buf := make([]byte, 256)
			for {
				if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_TRUNC); err != nil && err != unix.EINTR && err != unix.ENOBUFS {
					return
				}
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}()
	}
	return changed, nil
}
