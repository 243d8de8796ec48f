// SPDX-License-Identifier: Apache-2.0

package check

// units are the parts of the device, in the order of the catalogue, and the rules
// about what they see. Of an event that several rows match the first counts, so
// that special cases come before general ones.
var units = []struct {
	title string
	rules []Rule
}{
	{"Registers", regRules},
	{"Control queues and firmware", fwRules},
	{"LAN queues", lanRules},
	{"Control QP", cqpRules},
	{"Host memory cache", hmcRules},
	{"Completion and event queues", eventRules},
	{"Queue pairs", qpRules},
	{"Datagrams", udRules},
	{"RoCE packets", roceRules},
	{"Memory regions", mrRules},
}

// rules is the catalogue.
var rules = func() (all []Rule) {
	for _, u := range units {
		all = append(all, u.rules...)
	}
	return all
}()
