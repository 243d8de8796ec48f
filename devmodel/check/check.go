// SPDX-License-Identifier: Apache-2.0

// Package check is the driver sanitizer: it turns events that show a broken
// contract into findings, by a table of rules.
//
// A finding says what, where and why. It never changes what the device does.
// Findings are counted by rule and object; the first of each is reported, the
// rest only counted. They begin anew with each client: who mends a driver and
// boots again wants to hear of what is left.
package check

import (
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/trace"
)

// Grade tells how sure and how bad a finding is.
type Grade uint8

// Grades, mildest first.
const (
	// Note: worth knowing, not the driver's fault: something the model lacks.
	Note Grade = iota
	// Warning: suspicious, or rests on an inference about hardware.
	Warning
	// Error: cannot happen with a correct driver.
	Error
)

func (g Grade) String() string { return [...]string{"note", "warning", "error"}[g] }

// MarshalText is String: JSON has the name.
func (g Grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText is its inverse.
func (g *Grade) UnmarshalText(b []byte) error {
	for *g = Note; *g <= Error; *g++ {
		if g.String() == string(b) {
			return nil
		}
	}
	return fmt.Errorf("%q is no grade", b)
}

// Rule is one row of the catalogue.
type Rule struct {
	ID      string
	Grade   Grade
	Meaning string // what the driver did
	Device  string // what the device did about it
	// Hardware is what an E810 does, as drivers tell; "inferred" where they
	// do not.
	Hardware string
	Driver   string // the driver function that does it right
	Gap      bool   // the model's fault, not the driver's: always reported
	// match tells whether an event breaks the rule, and the object it is
	// about, which findings are counted by.
	match func(event any) (object string, broken bool)
}

// Finding is a broken rule. Everything but Count is of the first time.
type Finding struct {
	Rule   string `json:"rule"`
	Grade  Grade  `json:"grade"`
	Object string `json:"object"`
	Detail string `json:"detail"` // what was seen, in kernel names
	Count  uint64 `json:"count"`

	Time time.Time `json:"time"`
	// Command is the control QP's last command completed before, as
	// "IRDMA_CQP_OP_REG_MR, WQE 17".
	Command string `json:"command,omitempty"`
	// Walk is the way through tables that led there, a step a line.
	Walk []string `json:"walk,omitempty"`
	// Event and Fields are the event behind it, see trace.Fields.
	Event  string          `json:"event"`
	Fields json.RawMessage `json:"fields"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%v[%s] %s: %s", f.Grade, f.Rule, f.Object, f.Detail)
}

// Walked is an event that knows the way through tables that led to it.
type Walked interface{ WalkLines() []string }

// maxFindings bounds what a hostile guest can make us remember, of each rule:
// what a program does wrong does not keep what its driver does from being seen.
const maxFindings = 256

type key struct{ rule, object string }

// Checker watches the events of one device.
type Checker struct {
	logger hclog.Logger

	mu       sync.Mutex
	findings map[key]*Finding
	kept     map[string]int // of findings, by rule
	lost     uint64
	errors   uint64 // of all clients
	kernel   string // release, as ice tells firmware
	command  cqp.Op // the last one completed
}

// New makes a checker that reports new findings to logger: errors and gaps of
// the model at level warn, milder ones at level debug.
func New(logger hclog.Logger) *Checker {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	return &Checker{logger: logger, findings: map[key]*Finding{}, kept: map[string]int{}}
}

// Event is the sink: it may be called from any goroutine.
func (c *Checker) Event(event any) {
	switch e := event.(type) {
	case devmodel.Attached:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.findings, c.kept, c.lost = map[key]*Finding{}, map[string]int{}, 0
		c.kernel, c.command = "", cqp.Op{}
		return
	case cqp.Op: // by far the most frequent
		c.mu.Lock()
		defer c.mu.Unlock()
		c.command = e
		return
	case fw.DriverVersion:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kernel = e.Text
		return
	}
	for i := range rules {
		r := &rules[i]
		object, broken := r.match(event)
		if !broken {
			continue
		}
		if f, fresh := c.add(r, object, event); fresh {
			level := hclog.Debug
			if r.Grade == Error || r.Gap {
				level = hclog.Warn
			}
			c.logger.Log(level, "finding: "+f.String())
		}
		return
	}
}

func (c *Checker) add(r *Rule, object string, event any) (Finding, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{r.ID, object}
	if f := c.findings[k]; f != nil {
		f.Count++
		return *f, false
	}
	if r.Grade == Error {
		c.errors++
	}
	if c.kept[r.ID] == maxFindings {
		if c.lost++; c.lost == 1 {
			c.logger.Warn("too many findings of a rule: further ones are not reported", "rule", r.ID, "limit", maxFindings)
		}
		return Finding{}, false
	}
	c.kept[r.ID]++
	f := &Finding{Rule: r.ID, Grade: r.Grade, Object: object, Detail: fmt.Sprint(event), Count: 1,
		Time: time.Now(), Event: trace.Type(event), Fields: trace.Fields(event)}
	if c.command.Name != "" {
		f.Command = fmt.Sprintf("%s, WQE %d", c.command.Name, c.command.Index)
	}
	if w, ok := event.(Walked); ok {
		f.Walk = w.WalkLines()
	}
	c.findings[k] = f
	return *f, true
}

// Findings lists what was found at grade min or above: the worst first, by rule
// and object.
func (c *Checker) Findings(min Grade) []Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list(min)
}

func (c *Checker) list(min Grade) []Finding {
	out := []Finding{}
	for _, f := range c.findings {
		if f.Grade >= min {
			out = append(out, *f)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		switch {
		case a.Grade != b.Grade:
			return a.Grade > b.Grade
		case a.Rule != b.Rule:
			return a.Rule < b.Rule
		}
		return a.Object < b.Object
	})
	return out
}

// Errors counts the errors found, once per rule and object, of all clients so
// far.
func (c *Checker) Errors() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errors
}

// Rules returns the catalogue.
func Rules() []Rule { return append([]Rule(nil), rules...) }

// Find returns a row of the catalogue.
func Find(id string) (Rule, bool) {
	for _, r := range rules {
		if r.ID == id {
			return r, true
		}
	}
	return Rule{}, false
}

// on makes a matcher for one type of event; f names the object.
func on[E any](f func(E) string) func(any) (string, bool) {
	return func(event any) (string, bool) {
		e, ok := event.(E)
		if !ok {
			return "", false
		}
		return f(e), true
	}
}

// when is on with a condition.
func when[E any](cond func(E) bool, f func(E) string) func(any) (string, bool) {
	return func(event any) (string, bool) {
		e, ok := event.(E)
		if !ok || !cond(e) {
			return "", false
		}
		return f(e), true
	}
}
