// SPDX-License-Identifier: Apache-2.0

// Package trace carries the one stream of events that the units of a device
// emit: plain structs, each with a String method in kernel names. The log, files
// of events and package check are its sinks.
//
// Sinks are functions. They are called from any goroutine, partly under the
// device's control lock: a sink must be quick, must not block and must not
// call back into the device. What an event refers to does not change after it
// was emitted: Writer encodes it later, elsewhere.
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

// Notice is an event that is there for a person to see, as a lamp on a card is;
// it is rare.
type Notice interface{ Notice() }

// Log writes events to logger at level trace, alarms at level error and notices
// at level info. Formatting costs nothing while that level is off.
func Log(logger hclog.Logger) func(any) {
	return func(event any) {
		switch event.(type) {
		case Alarm:
			logger.Error(fmt.Sprint(event))
		case Notice:
			logger.Info(fmt.Sprint(event))
		default:
			if logger.IsTrace() {
				logger.Trace(fmt.Sprint(event))
			}
		}
	}
}
