// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Direction names one or both directions of a port's cable, as its station
// sees them.
type Direction uint8

// What the station sends, what it gets, and both.
const (
	Tx Direction = 1 << iota
	Rx
	Both = Tx | Rx
)

var directions = []string{Tx: "tx", Rx: "rx", Both: "both"}

func (d Direction) String() string { return directions[d] }

// Impairment is a rule for the cables between ports and switch. Each direction
// of each port that it names is impaired by itself, with a random source of its
// own: the same frames at the same times meet the same fate. Times on the
// machine's clock are good to about 1 ms.
//
// Damage is of the kind that the FCS does not tell: done where the frame lay in
// a switch's memory, the FCS being made behind it (netem's corrupt is the same).
// So a card receives the frame. It is the checksums inside that find it, not the
// MAC, whose counter of CRC errors (GLPRT_CRCERRS) stays. A bit that turns over
// on a cable would be seen by the MAC, which drops the frame: to stations that is
// Loss.
type Impairment struct {
	// Probabilities from 0 to 1.
	Loss      float64
	Duplicate float64
	Corrupt   float64 // one bit behind the Ethernet header is turned over; the FCS is right, see below
	Reorder   float64 // the frame is late once more, by Delay or at least 1 ms; others overtake it

	Delay  time.Duration
	Jitter time.Duration // evenly Delay-Jitter to Delay+Jitter; frames keep their order

	Rate uint64 // bit/s, counted as on a wire: 24 bytes of preamble, FCS and gap a frame; 0: no limit

	// Queue bounds the bytes held back in one direction of one port, buffers
	// counted whole; further frames are dropped. 0: 4 MiB in front of a Rate, and
	// 64 MiB without one, where frames only wait for their time.
	Queue int

	Seed uint64
	Port string    // "": every port
	Dir  Direction // 0: Tx, so that a frame between two stations meets the rule once
}

// Queues where the rule names none.
const (
	ratedQueue   = 4 << 20
	unratedQueue = 64 << 20
)

// impairKeys are the words of ParseImpair.
var impairKeys = []struct {
	name string
	set  func(r *Impairment, value string) error
}{
	{"loss", func(r *Impairment, v string) error { return parsePercent(v, &r.Loss) }},
	{"delay", func(r *Impairment, v string) error { return parseDuration(v, &r.Delay) }},
	{"jitter", func(r *Impairment, v string) error { return parseDuration(v, &r.Jitter) }},
	{"reorder", func(r *Impairment, v string) error { return parsePercent(v, &r.Reorder) }},
	{"duplicate", func(r *Impairment, v string) error { return parsePercent(v, &r.Duplicate) }},
	{"corrupt", func(r *Impairment, v string) error { return parsePercent(v, &r.Corrupt) }},
	{"rate", func(r *Impairment, v string) error { return parseRate(v, &r.Rate) }},
	{"queue", func(r *Impairment, v string) error { return parseSize(v, &r.Queue) }},
	{"seed", func(r *Impairment, v string) (err error) {
		if r.Seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			return fmt.Errorf("%q is not a number", v)
		}
		return nil
	}},
	{"port", func(r *Impairment, v string) error {
		r.Port = v
		return nil
	}},
	{"dir", func(r *Impairment, v string) error {
		i := slices.Index(directions, v)
		if i < 1 {
			return fmt.Errorf("%q is none of tx, rx, both", v)
		}
		r.Dir = Direction(i)
		return nil
	}},
}

// ParseImpair reads a rule such as loss=1%,delay=2ms,jitter=1ms,reorder=2%,
// duplicate=1%,corrupt=0.1%,rate=100mbit,queue=1m,seed=7,port=NAME,dir=both.
func ParseImpair(spec string) (Impairment, error) {
	var r Impairment
	given := map[string]bool{}
	for word := range strings.SplitSeq(spec, ",") {
		name, value, ok := strings.Cut(word, "=")
		i := slices.IndexFunc(impairKeys, func(k struct {
			name string
			set  func(*Impairment, string) error
		}) bool {
			return k.name == name
		})
		switch {
		case i < 0:
			var names []string
			for _, k := range impairKeys {
				names = append(names, k.name)
			}
			return Impairment{}, fmt.Errorf("impairment %q: %q is none of %s", spec, name, strings.Join(names, ", "))
		case !ok || value == "":
			return Impairment{}, fmt.Errorf("impairment %q: %s needs a value", spec, name)
		case given[name]:
			return Impairment{}, fmt.Errorf("impairment %q: %s is given twice", spec, name)
		}
		given[name] = true
		if err := impairKeys[i].set(&r, value); err != nil {
			return Impairment{}, fmt.Errorf("impairment %q: %s: %w", spec, name, err)
		}
	}
	if r.Jitter > r.Delay {
		return Impairment{}, fmt.Errorf("impairment %q: jitter is more than delay", spec)
	}
	return r, nil
}

// String is the rule in the words of ParseImpair.
func (r Impairment) String() string {
	var words []string
	add := func(name, value string, is bool) {
		if is {
			words = append(words, name+"="+value)
		}
	}
	percent := func(name string, p float64) {
		add(name, strconv.FormatFloat(p*100, 'f', -1, 64)+"%", p != 0)
	}
	percent("loss", r.Loss)
	add("delay", r.Delay.String(), r.Delay != 0)
	add("jitter", r.Jitter.String(), r.Jitter != 0)
	percent("reorder", r.Reorder)
	percent("duplicate", r.Duplicate)
	percent("corrupt", r.Corrupt)
	add("rate", strconv.FormatUint(r.Rate, 10)+"bit", r.Rate != 0)
	add("queue", strconv.Itoa(r.Queue), r.Queue != 0)
	add("seed", strconv.FormatUint(r.Seed, 10), true)
	add("port", r.Port, r.Port != "")
	add("dir", r.direction().String(), true)
	return strings.Join(words, ",")
}

func (r Impairment) direction() Direction {
	if r.Dir == 0 {
		return Tx
	}
	return r.Dir & Both
}

// applies tells whether the rule is one for that port and direction.
func (r Impairment) applies(port string, d Direction) bool {
	return (r.Port == "" || r.Port == port) && r.direction()&d != 0
}

func parsePercent(v string, to *float64) error {
	number, ok := strings.CutSuffix(v, "%")
	p, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(p >= 0 && p <= 100) {
		return fmt.Errorf("%q is not a percentage from 0%% to 100%%", v)
	}
	*to = p / 100
	return nil
}

// maxDelay keeps sums of times far from overflow.
const maxDelay = time.Hour

func parseDuration(v string, to *time.Duration) error {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > maxDelay {
		return fmt.Errorf("%q is not a time from 0s to %v, such as 2ms", v, maxDelay)
	}
	*to = d
	return nil
}

// parseUnits reads a number with one of the suffixes, the first that fits.
func parseUnits(v string, units []unit) (uint64, bool) {
	v = strings.ToLower(v)
	for _, u := range units {
		if number, ok := strings.CutSuffix(v, u.suffix); ok {
			f, err := strconv.ParseFloat(number, 64)
			f *= u.factor
			if err != nil || !(f >= 1 && f <= math.MaxInt32*1e3) {
				return 0, false
			}
			return uint64(math.Round(f)), true
		}
	}
	return 0, false
}

type unit struct {
	suffix string
	factor float64
}

func parseRate(v string, to *uint64) error {
	n, ok := parseUnits(v, []unit{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}})
	if !ok {
		return fmt.Errorf("%q is not a rate such as 64kbit, 100mbit, 2.5gbit", v)
	}
	*to = n
	return nil
}

func parseSize(v string, to *int) error {
	n, ok := parseUnits(v, []unit{{"k", 1 << 10}, {"m", 1 << 20}, {"", 1}})
	if !ok || n > math.MaxInt32 {
		return fmt.Errorf("%q is not a number of bytes such as 65536, 512k, 4m", v)
	}
	*to = int(n)
	return nil
}
