// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrTimeout is returned when a command ran longer than allowed.
var ErrTimeout = errors.New("command timed out")

// ErrReset is how a command ends that ran when [Machine.Reset] was called.
var ErrReset = errors.New("the guest was reset")

// MachineError says that the guest, and not the command, failed.
type MachineError struct {
	Guest       string   // its name, if it has one
	Why         string   // one line
	ConsoleTail []string // the console's last lines
}

func (e *MachineError) Error() string {
	if e.Guest != "" {
		return "guest " + e.Guest + ": " + e.Why
	}
	return "guest: " + e.Why
}

// Format writes the console's last lines too on %+v.
func (e *MachineError) Format(s fmt.State, verb rune) {
	_, _ = io.WriteString(s, e.Error())
	switch {
	case verb != 'v' || !s.Flag('+'):
	case len(e.ConsoleTail) == 0:
		_, _ = io.WriteString(s, "\nnothing came on the guest's console")
	default:
		_, _ = io.WriteString(s, "\nlast lines of the guest's console:\n  "+strings.Join(e.ConsoleTail, "\n  "))
	}
}
