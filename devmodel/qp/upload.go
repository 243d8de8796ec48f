// SPDX-License-Identifier: Apache-2.0

package qp

// Upload is the context of QP id as it is now, in the driver's form: what was
// set, and the sequence numbers where they have come to. With freeze the QP
// takes no steps until its state is changed or it is resumed; what others have
// begun for it ends by grace.
func (t *Table) Upload(id uint32, freeze bool) (Context, error) {
	q, err := t.find(id)
	if err != nil {
		return Context{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frozen = q.frozen || freeze
	ctx := q.ctx
	if q.ud != nil && q.ud.begun {
		ctx.setPSNs(q.ud.psn, q.ud.psn, q.ud.psn)
	}
	if q.ep == nil {
		return ctx, nil
	}
	next, expected := q.ep.PSNs()
	ctx.setBits(88, 23, 0, uint64(expected)) // EPSN
	una, most, started := q.ep.Outstanding()
	if !started {
		return ctx, nil // the driver's numbers are to come yet
	}
	ctx.setPSNs(next, most, una)
	return ctx, nil
}

func (c *Context) setPSNs(next, most, una uint32) {
	c.setBits(80, 23, 0, uint64(next)) // PSNNXT
	c.setBits(96, 23, 0, uint64(most)) // PSNMAX
	c.setBits(96, 55, 32, uint64(una)) // PSNUNA
}

// Thaw lets a frozen QP go on.
func (t *Table) Thaw(id uint32) {
	q := t.qps[id]
	if q == nil {
		return
	}
	q.mu.Lock()
	q.frozen = false
	q.mu.Unlock()
	q.task.Schedule()
}
