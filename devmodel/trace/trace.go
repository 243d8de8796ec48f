// SPDX-License-Identifier: Apache-2.0

// Package trace carries the one stream of events that the units of a device
// emit: plain structs, each with a String method in kernel names.
//
// Sinks are functions. They are called from any goroutine, partly under the
// device's control lock: a sink must be quick, must not block and must not
// call back into the device.
package trace

import (
	"fmt"

	"github.com/hashicorp/go-hclog"
)

// Fan hands each event to every sink, in order.
func Fan(sinks ...func(any)) func(any) {
	return func(event any) {
		for _, s := range sinks {
			s(event)
		}
	}
}

// Alarm is an event that somebody has to act upon, since nothing works before:
// it is rare, and its text says what to do.
type Alarm interface{ Alarm() }

// Log writes events to logger at level trace, and alarms at level error.
// Formatting costs nothing while that level is off.
func Log(logger hclog.Logger) func(any) {
	return func(event any) {
		if _, ok := event.(Alarm); ok {
			logger.Error(fmt.Sprint(event))
		} else if logger.IsTrace() {
			logger.Trace(fmt.Sprint(event))
		}
	}
}
