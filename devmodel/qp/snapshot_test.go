// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/qp"
)

// Who has the control lock may take note of the QPs while one of them is held,
// and look at it later, also when it is destroyed by then.
func TestListWaitsForNoQP(t *testing.T) {
	b := newBench(t)
	b.create(5, qp.RoCERC)
	b.create(3, qp.RoCERC)
	b.ok(b.modify(3, qp.Error, context()))
	b.post(rq, 1<<63)
	var look func() []qp.Info
	b.hook = func() { look = b.table.List() } // with QP 3 locked
	_, _, err := flush(b.table, qp.FlushArgs{ID: 3, RQ: true})
	b.ok(err)
	if look == nil {
		t.Fatal("no CQE was written")
	}
	b.ok(b.table.Destroy(5))
	b.create(7, qp.RoCERC)
	infos := look()
	if len(infos) != 2 || infos[0].ID != 3 || infos[0].State != "ERROR" || infos[1].ID != 5 {
		t.Errorf("QPs %+v", infos)
	}
	if infos[0].RQ.Next == 0 {
		t.Error("QP 3 as it was in the middle of the flush")
	}
}
