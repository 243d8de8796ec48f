// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/fabric"
)

// notes are the comments of a card's queue pairs on its frames in the capture.
type notes struct{ *fabric.Notes }

// notesOf is nil without a capture.
func notesOf(p *fabric.Port) qp.Notes {
	if n := p.Notes(); n != nil {
		return notes{n}
	}
	return nil
}

// Incoming implements qp.Notes.
func (n notes) Incoming(f []byte) qp.Note {
	if x := n.Notes.Incoming(f); x != nil {
		return x
	}
	return nil
}
