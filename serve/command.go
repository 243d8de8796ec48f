// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"runtime"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// commands are what a control client may do to a card from outside, as its
// medium, another function of it, or a person with a hand on the plug would.
// They answer nothing but an error.
var commands = map[string]func(c *card, arg string) error{
	"link":  setLink,
	"reset": reset,
}

// setLink cuts the cable between card and switch, or mends it.
func setLink(c *card, arg string) error {
	switch arg {
	case "up", "down":
		up := arg == "up"
		c.link.Lock()
		defer c.link.Unlock()
		c.port.SetLink(up)
		c.dev.SetLink(up)
		return nil
	}
	return fmt.Errorf("link %q: want up or down", arg)
}

// globalResets are the resets of the whole card, by the kernel's names.
var globalResets = map[string]reg.Domain{"corer": reg.CORER, "globr": reg.GLOBR, "empr": reg.EMPR}

func reset(c *card, arg string) error {
	dom, ok := globalResets[arg]
	if !ok {
		return fmt.Errorf("reset %q: want corer, globr or empr", arg)
	}
	c.dev.GlobalReset(dom)
	return nil
}

// Process is the data of What "process": what only the serving process itself
// can tell about the resources it uses. Descriptors and memory are in its
// /proc directory.
type Process struct {
	Goroutines int `json:"goroutines"`
}

func process() Process { return Process{Goroutines: runtime.NumGoroutine()} }
