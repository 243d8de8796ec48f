// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"encoding/binary"
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// checkFunction refuses commands for another function's memory.
func (c *CQP) checkFunction(fn uint64) error {
	if fn != uint64(c.pf) {
		return fmt.Errorf("HMC function %d, this is %d: %w", fn, c.pf, errParameter)
	}
	return nil
}

// Firmware and hardware version as QUERY_RDMA_FEATURES tells them.
const (
	fwMajor, fwMinor   = 1, 65
	featureFWInfo      = 0
	featureHWVersion   = 1
	featureCount       = 2
	featureHWModelWord = 0x0001_0001_0001 // model 1, version 1.1; no driver reads it
)

// queryFeatures writes as many features as the buffer holds; the first tells
// how many there are, so that the driver can ask again.
func (c *CQP) queryFeatures(w *wqe) (result, error) {
	features := [featureCount]uint64{
		featureFWInfo<<48 | featureCount<<32 | fwMajor<<16 | fwMinor,
		featureHWVersion<<48 | featureHWModelWord,
	}
	n := min(w.bits(3, 31, 0)/8, featureCount)
	if n == 0 {
		return result{}, fmt.Errorf("feature buffer of %d bytes: %w", w.bits(3, 31, 0), errParameter)
	}
	var b [8 * featureCount]byte
	for i, f := range features {
		binary.LittleEndian.PutUint64(b[8*i:], f)
	}
	return result{}, c.write(w, "feature buffer", w.q[4], b[:8*n])
}

func (c *CQP) queryFPM(w *wqe) (result, error) {
	if err := c.checkFunction(w.bits(2, 15, 0)); err != nil {
		return result{}, err
	}
	c.tables.queried = true
	b := c.hmc.Query()
	return result{}, c.write(w, "FPM query buffer", w.q[4], b[:])
}

func (c *CQP) commitFPM(w *wqe) (result, error) {
	if err := c.checkFunction(w.bits(2, 15, 0)); err != nil {
		return result{}, err
	}
	if n := w.bits(3, 31, 0); n < hmc.FPMSize {
		return result{}, fmt.Errorf("commit buffer of %d bytes: %w", n, errParameter)
	}
	var b [hmc.FPMSize]byte
	if err := c.read(w, "FPM commit buffer", w.q[4], b[:]); err != nil {
		return result{}, err
	}
	if !c.tables.queried {
		c.emit(OutOfOrder{Op: w.name, Before: "QUERY_FPM_VAL", Index: w.index})
	}
	if err := c.hmc.Commit(&b); err != nil {
		return result{}, err
	}
	return result{}, c.write(w, "FPM commit buffer", w.q[4], b[:])
}

func (c *CQP) pagesAllocated(w *wqe) (result, error) {
	if err := c.checkFunction(w.bits(2, 5, 0)); err != nil {
		return result{}, err
	}
	return result{}, c.hmc.PagesAllocated()
}

// maxMemEntries is how many SD entries a WQE can name beside its own three
// (hmc.h:IRDMA_MAX_SD_ENTRIES).
const maxMemEntries = 8

// updateSDs: entry 0 has no valid bit and is always there.
func (c *CQP) updateSDs(w *wqe) (result, error) {
	if err := c.checkFunction(w.bits(2, 5, 0)); err != nil {
		return result{}, err
	}
	const entryValid, skipEntry = 63, 7
	var entries []hmc.SDEntry
	if !w.flag(3, skipEntry) {
		entries = append(entries, hmc.SDEntry{Cmd: w.bits(0, 31, 0), Data: w.q[1]})
	}
	for _, i := range []int{4, 6} {
		if w.flag(i, entryValid) {
			entries = append(entries, hmc.SDEntry{Cmd: w.bits(i, 31, 0), Data: w.q[i+1]})
		}
	}
	n := w.bits(3, 3, 0)
	if n > maxMemEntries {
		return result{}, fmt.Errorf("%d SD entries in memory: %w", n, errParameter)
	}
	if n > 0 {
		var b [16 * maxMemEntries]byte
		if err := c.read(w, "SD entries", w.q[2]&^0x7F, b[:16*n]); err != nil {
			return result{}, err
		}
		for i := range int(n) {
			entries = append(entries, hmc.SDEntry{
				Cmd:  binary.LittleEndian.Uint64(b[16*i:]) & (1<<32 - 1),
				Data: binary.LittleEndian.Uint64(b[16*i+8:]),
			})
		}
	}
	for _, e := range entries {
		if !e.Valid() {
			c.checkUnused(e.Index())
		}
	}
	if err := c.hmc.UpdateSDs(entries); err != nil {
		return result{}, err
	}
	for _, e := range entries {
		c.vacate("SD", e.Index())
		if e.Valid() {
			c.tables.had.sd = true
			addr, size := backing(e)
			c.probe(w, "SD", addr, size)
			c.occupy(owner{"SD", e.Index(), "backing"}, addr, size)
		}
	}
	return result{grace: true}, nil
}

// backing is the guest memory of a segment: its own, or its page descriptors'
// (hmc.c:irdma_set_sd_entry).
func backing(e hmc.SDEntry) (addr, size uint64) {
	const direct, pageSize, segmentSize = 1 << 1, 1 << 12, 1 << 21
	if e.Data&direct != 0 {
		size = segmentSize
	} else {
		size = pageSize
	}
	return e.Data &^ (pageSize - 1), size
}

// checkUnused reports live objects whose backing a segment clear takes away.
func (c *CQP) checkUnused(sd uint32) {
	first, end := c.hmc.Within(hmc.QP, sd)
	for id := first; id < end; id++ {
		if c.qps.Has(id) {
			c.emit(SDInUse{SD: sd, Object: "QP", ID: id})
		}
	}
	first, end = c.hmc.Within(hmc.CQ, sd)
	for id := first; id < end; id++ {
		if c.queues.CQ(id) != nil {
			c.emit(SDInUse{SD: sd, Object: "CQ", ID: id})
		}
	}
	first, end = c.hmc.Within(hmc.FSIAV, sd)
	for id := first; id < end; id++ {
		if _, ok := c.tables.ahs[id]; ok {
			c.emit(SDInUse{SD: sd, Object: "AH", ID: id})
		}
	}
	if stag, ok := c.mrs.Using(sd); ok {
		c.emit(SDInUse{SD: sd, Object: "STag", ID: stag})
	}
}

// object checks that object id of type o may be made: the function has so
// many, and their backing is there.
func (c *CQP) object(o hmc.Object, id uint32) error {
	if !c.hmc.Backed() {
		return fmt.Errorf("%v %d before SHMC_PAGES_ALLOCATED: %w", o, id, errState)
	}
	if n := c.hmc.Count(o); id >= n {
		return fmt.Errorf("%v %d, the function has %d: %w", o, id, n, errParameter)
	}
	_, err := c.hmc.Resolve(o, id)
	return err
}
