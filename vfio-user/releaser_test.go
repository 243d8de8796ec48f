// SPDX-License-Identifier: Apache-2.0

package vfiouser

import "testing"

// TestReleaserIsBounded: closes that do not come back hold some goroutines and
// then nobody but those who bring more.
func TestReleaserIsBounded(t *testing.T) {
	var r releaser
	leave, started := make(chan struct{}), make(chan struct{}, maxReleasers)
	stuck := func() { started <- struct{}{}; <-leave }
	for range maxReleasers {
		r.add(stuck)
		<-started
	}
	for range maxUnreleased {
		if !r.room() {
			t.Fatal("full too early")
		}
		r.add(func() {})
	}
	if r.room() {
		t.Error("room for more than there may be")
	}
	if r.workers != maxReleasers {
		t.Errorf("%d goroutines, want %d", r.workers, maxReleasers)
	}
	if r.wait() {
		t.Error("all closed, with all stuck")
	}
	close(leave)
	if !r.room() {
		t.Error("no room when they came back")
	}
	if !r.wait() {
		t.Error("not all closed")
	}
}
