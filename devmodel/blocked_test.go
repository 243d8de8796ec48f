// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/qp"
)

// A machine that is reset under traffic takes bus mastering away before it resets
// the card: what steps cannot reach then is no finding. With bus mastering it is.
func TestBlockedMemoryIsNobodysFault(t *testing.T) {
	var last any
	d := New(Config{Emit: func(e any) { last = e }})
	defer d.Close()
	failed := qp.QueueUnreadable{QP: 5}
	d.emit(failed)
	if _, ok := last.(Orphan); !ok {
		t.Errorf("without bus mastering: %T", last)
	}
	if err := d.WriteRegion(configRegion, 4, []byte{6, 0}); err != nil {
		t.Fatal(err)
	}
	d.emit(failed)
	if _, ok := last.(qp.QueueUnreadable); !ok {
		t.Errorf("with bus mastering: %T", last)
	}
}
