// SPDX-License-Identifier: Apache-2.0

package grace

// Waiting tells whether somebody is in Wait with a step to wait for.
func (d *Domain) Waiting() bool { return d.waiters.Load() != 0 }
