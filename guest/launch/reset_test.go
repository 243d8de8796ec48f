// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"errors"
	"testing"
)

// TestReset: with a command in the middle of its output, and another before its
// start; what comes after is a guest like any other.
func TestReset(t *testing.T) {
	m, err := Boot(t.Context(), fakeConfig(t, "ok"))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer m.Kill()
	for range 3 {
		p, err := m.Start(Command{Argv: []string{"yes"}})
		if err != nil {
			t.Fatal(err)
		}
		q, err := m.Start(Command{Argv: []string{"cat"}, Stdin: eternal(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Reset(t.Context()); err != nil {
			t.Fatalf("%+v", err)
		}
		for _, p := range []*Process{p, q} {
			if _, err := p.Wait(t.Context(), 0); !errors.Is(err, ErrReset) {
				t.Errorf("a command of before ended with %v", err)
			}
		}
		var out bytes.Buffer
		if r, err := m.Exec(t.Context(), Command{Argv: []string{"echo", "hello"}, Stdout: &out}, 0); err != nil || r.Status != 0 || out.String() != "hello\n" {
			t.Errorf("a command of afterwards: %+v, %v, %q", r, err, out.String())
		}
		if m.Kernel() == "" || len(m.Ready().Missing) == 0 {
			t.Errorf("the agent said nothing new: %q, %+v", m.Kernel(), m.Ready())
		}
	}
	if err := m.Close(); err != nil {
		t.Errorf("power off: %+v", err)
	}
	if err := m.Reset(t.Context()); err == nil {
		t.Error("a machine that is off was reset")
	}
}

// TestResetEndsQEMU: as it does when its device's server is gone.
func TestResetEndsQEMU(t *testing.T) {
	m, err := Boot(t.Context(), fakeConfig(t, "reset-kills"))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer m.Kill()
	var e *MachineError
	if err := m.Reset(t.Context()); !errors.As(err, &e) {
		t.Errorf("got %v, want a MachineError", err)
	}
}
