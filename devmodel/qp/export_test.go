// SPDX-License-Identifier: Apache-2.0

package qp

// Waiting is how many bytes of frames wait for QPs.
func (t *Table) Waiting() int64 { return t.buffers.used.Load() }
