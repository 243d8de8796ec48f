// SPDX-License-Identifier: Apache-2.0

package check

import "slices"

// rules is the catalogue, by the unit that sees the violation. Of an event that
// several rows of a unit match the first counts, so that special cases come
// before general ones.
var rules = slices.Concat(regRules, fwRules, lanRules, cqpRules, hmcRules, eventRules, qpRules, mrRules)
