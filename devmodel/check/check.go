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
	"fmt"
	"sort"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
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

// Finding is a broken rule.
type Finding struct {
	Rule   string `json:"rule"`
	Grade  string `json:"grade"`
	Object string `json:"object"`
	Detail string `json:"detail"` // of the first one
	Count  uint64 `json:"count"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%s[%s] %s: %s", f.Grade, f.Rule, f.Object, f.Detail)
}

// maxFindings bounds what a hostile guest can make us remember.
const maxFindings = 4096

type key struct{ rule, object string }

// Checker watches the events of one device.
type Checker struct {
	logger hclog.Logger

	mu       sync.Mutex
	findings map[key]*Finding
	lost     uint64
}

// New makes a checker that reports new findings to logger: errors and gaps of
// the model at level warn, milder ones at level debug.
func New(logger hclog.Logger) *Checker {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	return &Checker{logger: logger, findings: map[key]*Finding{}}
}

// Event is the sink: it may be called from any goroutine.
func (c *Checker) Event(event any) {
	if _, ok := event.(devmodel.Attached); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.findings, c.lost = map[key]*Finding{}, 0
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
	if len(c.findings) >= maxFindings {
		if c.lost++; c.lost == 1 {
			c.logger.Warn("too many findings: further ones are not reported", "limit", maxFindings)
		}
		return Finding{}, false
	}
	f := &Finding{Rule: r.ID, Grade: r.Grade.String(), Object: object, Detail: fmt.Sprint(event), Count: 1}
	c.findings[k] = f
	return *f, true
}

// Findings lists what was found at grade min or above, by rule and object.
func (c *Checker) Findings(min Grade) []Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Finding{}
	for _, f := range c.findings {
		for g := min; g <= Error; g++ {
			if f.Grade == g.String() {
				out = append(out, *f)
			}
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return a.Rule < b.Rule || a.Rule == b.Rule && a.Object < b.Object
	})
	return out
}

// Rules returns the catalogue.
func Rules() []Rule { return append([]Rule(nil), rules...) }

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
