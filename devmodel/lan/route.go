// SPDX-License-Identifier: Apache-2.0

package lan

import "github.com/vrnic/vrnic/devmodel/frame"

// override is where a context descriptor sends its frame (ice_lan_tx_rx.h:
// ICE_TX_CTX_DESC_SWTCH_*).
type override uint8

const (
	overrideNone override = iota
	overrideUplink
	overrideLocal
	overrideVSI
)

// send brings a frame, padded to what the wire asks for, from a VSI to where
// rules say; n is its length without padding. It returns how often the frame was
// handed on, or 1.
func (l *LAN) send(vsi uint16, f []byte, n int, o override, target uint16) (copies int) {
	copies = 1
	s := l.steering.Load()
	if s == nil {
		l.stats.vsiTx(vsi, f[:n])
		l.toWire(f)
		return copies
	}
	v := s.VSIs[vsi]
	if v == nil {
		l.stats.txError(vsi)
		return copies
	}
	if !v.DestOverride {
		o = overrideNone
	}
	i := frame.Parse(f, s.UDPTunnels...)
	if o != overrideUplink && v.mustDrop(i.Type) || !v.own([6]byte(f[6:])) || v.PruneTx && !v.has(&i) {
		l.stats.txError(vsi)
		return copies
	}
	local, wire := s.fromVSI(v, f, &i, o, target)
	switch {
	case !wire || s.Link || s.Loopback:
		l.stats.vsiTx(vsi, f[:n])
	default:
		l.stats.linkDown.Add(1)
		wire = false
	}
	local.each(func(n uint16) {
		if to := s.VSIs[n]; to != nil && to.member(&i) {
			l.deliver(s, to, f, &i, statusLPBK)
			copies++
		}
	})
	switch {
	case wire && s.Loopback:
		l.stats.port.tx.count(f, len(f)+fcsLen)
		copies += l.fromWire(s, f)
	case wire:
		l.toWire(f)
	}
	return copies
}

// fromVSI tells which local VSIs get a frame that v sends, and whether the wire
// does.
func (s *steering) fromVSI(v *VSI, f []byte, i *frame.Info, o override, target uint16) (local set, wire bool) {
	switch o {
	case overrideUplink:
		return local, true
	case overrideVSI:
		local.add([]uint16{target})
		return local, false
	}
	wire = v.LAN && !v.LocalLB && o != overrideLocal
	if v.AllowLB || v.LocalLB || o == overrideLocal {
		s.address(&local, f, i, func(r Forward) bool {
			wire = wire && (r.LAN || !r.LB)
			return r.LB
		})
		if r := s.PromiscuousTx[frame.Class(f)]; r.LB {
			local.add(r.VSIs)
		}
		local.add(s.DefaultTx)
	}
	if v.SrcPrune {
		local.remove(v.Number)
	}
	return local, wire
}

// toWire is the port's transmit side.
func (l *LAN) toWire(f []byte) {
	l.stats.port.tx.count(f, len(f)+fcsLen)
	if l.cfg.Wire != nil {
		l.cfg.Wire(f)
	}
}

// Transmit sends a frame of the protocol engine, as Config.Wire wants it, by the
// port: rules of VSIs do not apply to it. It runs in a step. False: there is no
// link.
func (l *LAN) Transmit(f []byte) (sent bool) {
	s := l.steering.Load()
	switch {
	case s == nil || s.Link && !s.Loopback:
		l.toWire(f)
	case s.Loopback:
		l.stats.port.tx.count(f, len(f)+fcsLen)
		l.fromWire(s, f)
	default:
		l.stats.linkDown.Add(1)
		return false
	}
	return true
}
