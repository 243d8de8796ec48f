// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"strings"
)

// Personality is a profile that drivers can be tried with: what QUERY_FPM_VAL
// offers and where COMMIT_FPM_VAL puts it. Nothing of it is faked; each one is
// a device that could be, and takes drivers down a road of their own.
type Personality struct {
	Name    string
	About   string // one line
	Profile Profile
}

// Personalities are the ones that come with the model, the default first.
func Personalities() []Personality {
	paged := SmallGuest()
	paged.PBLEPage = pdsPerSegment - 2
	paged.Limits[PBLE].Max = 513 * pblesInPage

	high := SmallGuest()
	high.PBLESD = 2048 + 16
	high.MaxSDs = 2048 + 32

	return []Personality{
		{"default", "three static segments and as many PBLEs as 8 GiB of 4 KiB pages need, in direct segments", SmallGuest()},
		// 2 pages of PBLEs end the first segment, 511 begin the next: neither
		// fills one, so the driver makes both of pages. 1 GiB of 4 KiB pages
		// takes all there are, as a list of two levels.
		{"paged-pbles", "all PBLEs in two paged segments, of 2 and of 511 pages: PFHMC_PDINV and lists of two levels", paged},
		// With FPM addresses cut to 32 bits, PBLEs are looked for in segment 16,
		// where nothing is.
		{"high-fpm", "PBLEs begin above FPM address 4 GiB, at SD 2064: FPM addresses have more than 32 bits", high},
	}
}

// LoadPersonality returns the personality of that name, or else the one in
// the file of that name: JSON as MarshalJSON writes it.
func LoadPersonality(nameOrFile string) (Personality, error) {
	var known []string
	for _, p := range Personalities() {
		if p.Name == nameOrFile {
			return p, nil
		}
		known = append(known, p.Name)
	}
	b, err := readFile(nameOrFile)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(nameOrFile, "/.") {
		return Personality{}, fmt.Errorf("no personality %q: there are %s, and files", nameOrFile, strings.Join(known, ", "))
	}
	if err != nil {
		return Personality{}, fmt.Errorf("personality: %w", err)
	}
	var p Personality
	if err := p.UnmarshalJSON(b); err != nil {
		return Personality{}, fmt.Errorf("personality %s: %w", nameOrFile, err)
	}
	return p, nil
}

// maxFile is far more bytes than a personality has.
const maxFile = 1 << 20

// readFile is os.ReadFile for files that are no longer than maxFile.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxFile)
	}
	return b, err
}

// personalityFile is a Personality as a file has it.
type personalityFile struct {
	Name         string `json:"name"`
	About        string `json:"about"`
	FirstSD      uint32 `json:"first_sd"`
	MaxSDs       uint32 `json:"max_sds"`
	PBLESD       uint32 `json:"pble_sd"`
	PBLEPage     uint32 `json:"pble_page"`
	MaxCEQs      uint32 `json:"max_ceqs"`
	HTMultiplier uint32 `json:"ht_multiplier"`
	TimerBucket  uint32 `json:"timer_bucket"`
	// Objects by name; types that are missing are not offered.
	Objects map[string]limitFile `json:"objects"`
}

type limitFile struct {
	Max   uint32 `json:"max"`
	Size  uint32 `json:"size,omitempty"`  // bytes
	Block uint32 `json:"block,omitempty"` // of free lists
}

// MarshalJSON writes it in the form that LoadPersonality reads.
func (p Personality) MarshalJSON() ([]byte, error) {
	f := personalityFile{p.Name, p.About, p.Profile.FirstSD, p.Profile.MaxSDs, p.Profile.PBLESD, p.Profile.PBLEPage,
		p.Profile.MaxCEQs, p.Profile.HTMultiplier, p.Profile.TimerBucket, map[string]limitFile{}}
	for o, row := range objects {
		l := p.Profile.Limits[o]
		if l == (Limit{}) {
			continue
		}
		out := limitFile{Max: l.Max, Block: l.Block}
		if row.fixed == 0 {
			out.Size = 1 << l.Log2
		}
		f.Objects[row.name] = out
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads that form and checks that a driver can live with it.
func (p *Personality) UnmarshalJSON(b []byte) error {
	var f personalityFile
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	out := Personality{f.Name, f.About, Profile{FirstSD: f.FirstSD, MaxSDs: f.MaxSDs, PBLESD: f.PBLESD, PBLEPage: f.PBLEPage,
		MaxCEQs: f.MaxCEQs, HTMultiplier: f.HTMultiplier, TimerBucket: f.TimerBucket}}
	for name, l := range f.Objects {
		o := Object(0)
		for o < NumObjects && objects[o].name != name {
			o++
		}
		switch {
		case o == NumObjects || objects[o].query == none:
			return fmt.Errorf("objects: no type %q is offered by a count", name)
		case objects[o].fixed != 0 && l.Size != 0 && l.Size != 1<<objects[o].fixed:
			return fmt.Errorf("objects: %s: size %d: the driver takes it for %d", name, l.Size, 1<<objects[o].fixed)
		case objects[o].fixed == 0 && l.Max > 0 && bits.OnesCount32(l.Size) != 1:
			return fmt.Errorf("objects: %s: size %d is not a power of two", name, l.Size)
		}
		out.Profile.Limits[o] = Limit{Max: l.Max, Block: l.Block}
		if objects[o].fixed == 0 && l.Size > 0 {
			out.Profile.Limits[o].Log2 = uint8(bits.Len32(l.Size) - 1)
		}
	}
	if err := out.Profile.Validate(); err != nil {
		return err
	}
	*p = out
	return nil
}
