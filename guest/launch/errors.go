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
	KernelTail  []string // those of the kernel log, as far as the agent has sent it
}

func (e *MachineError) Error() string {
	if e.Guest != "" {
		return "guest " + e.Guest + ": " + e.Why
	}
	return "guest: " + e.Why
}

// Format writes the console's last lines too on %+v, or those of the kernel log
// where the console, which is quiet, has none.
func (e *MachineError) Format(s fmt.State, verb rune) {
	_, _ = io.WriteString(s, e.Error())
	switch {
	case verb != 'v' || !s.Flag('+'):
	case len(e.ConsoleTail) == 0 && len(e.KernelTail) == 0:
		_, _ = io.WriteString(s, "\nnothing came on the guest's console")
	case len(e.ConsoleTail) == 0:
		_, _ = io.WriteString(s, "\nlast lines of the guest's kernel log:\n  "+strings.Join(e.KernelTail, "\n  "))
	default:
		_, _ = io.WriteString(s, "\nlast lines of the guest's console:\n  "+strings.Join(e.ConsoleTail, "\n  "))
	}
}
