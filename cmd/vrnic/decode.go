// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/decode"
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

const decodeLong = `Names raw words field by field, with the kernel's names: of a driver's log, of
guest memory, of a register. Bits that are set and belong to no field are
pointed out. What several fields mean together follows behind "=".

HEX are hexadecimal numbers of up to 64 bits, with 0x or without, separated by
blanks, commas or colons, also as JSON lists of strings, as vrnic run --events
has them. Lines of the kernel's print_hex_dump (dyndbg prints them for irdma:
"WQE: MR_REG_NS WQE00000000: ...") and of hexdump -C are taken as they are; -
reads standard input. One word alone is the structure's header, which often is
all that a log has. Several structures may follow each other.
`

const decodeExamples = `  vrnic decode cqp 0x882f180a00000000
  vrnic decode aeqe ffff888200000800 81940420_00200005
  dmesg | grep 'QP_HOST CTX WQE' | vrnic decode qpc -
  jq 'select(.type=="cqp.Op").fields.WQE' events.json | vrnic decode cqp -
  vrnic decode qpc --at 160 0x3b8001ff
  vrnic decode oicr 0x04000000
  vrnic decode reg PFHMC_PDINV 0x00678002
  vrnic decode --json sd 0x80008003 0x12345803`

func newDecode() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "decode",
		Short:   "Name the fields of raw words: WQEs, completions, events, contexts, registers",
		Long:    decodeLong,
		Example: decodeExamples,
		RunE:    needsSubcommand,
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print data, an array of structures, instead of text")
	show := func(w io.Writer, results []decode.Result) error { return showDecoded(w, results, asJSON) }
	for _, f := range decode.Formats() {
		at := -1
		sub := &cobra.Command{
			Use:   f.Name + " HEX...",
			Short: f.About,
			Args:  cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				runs, err := readWords(cmd.InOrStdin(), args)
				if err != nil {
					return err
				}
				if at >= 0 {
					if len(runs) != 1 || runs[0].At >= 0 {
						return fmt.Errorf("--at: the words say themselves where they lie")
					}
					runs[0].At = at
				}
				results, err := f.Decode(runs)
				if err != nil {
					return err
				}
				return show(cmd.OutOrStdout(), results)
			},
		}
		if f.Words > 1 {
			sub.Flags().IntVar(&at, "at", -1, "byte offset of the first word in the structure")
		}
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(newDecodeOICR(show), newDecodeRegister(show))
	return cmd
}

// readWords takes words from arguments, of which "-" is standard input.
func readWords(in io.Reader, args []string) ([]decode.Run, error) {
	const limit = 1 << 20
	text := make([]string, len(args))
	for i, a := range args {
		if a != "-" {
			text[i] = a
			continue
		}
		b, err := io.ReadAll(io.LimitReader(in, limit+1))
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		text[i] = string(b)
	}
	if len(args) == 1 {
		return decode.Parse(text[0])
	}
	return decode.Parse(strings.Join(text, " "))
}

func showDecoded(w io.Writer, results []decode.Result, asJSON bool) error {
	if asJSON {
		out, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, string(out))
		return err
	}
	for i, r := range results {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if _, err := io.WriteString(w, r.Text()); err != nil {
			return err
		}
	}
	return nil
}

// registerTable is that of every card: no client ever sees this one.
func registerTable() []reg.Row {
	d := devmodel.New(devmodel.Config{Engine: engine.Config{Manual: true}})
	defer d.Close()
	return d.RegisterTable()
}

func decodeRegister(name, hex string) ([]decode.Result, error) {
	digits := strings.TrimPrefix(strings.ReplaceAll(hex, "_", ""), "0x")
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is no hexadecimal number of at most 32 bits", hex)
	}
	row, label, err := findRegister(registerTable(), name)
	if err != nil {
		return nil, err
	}
	return []decode.Result{decode.Register(row, label, uint32(v))}, nil
}

// findRegister finds a register by its kernel name, with an index or without,
// or by its offset: its row, at the offset of the element, and its name.
func findRegister(table []reg.Row, name string) (*reg.Row, string, error) {
	off, notNumber := strconv.ParseUint(name, 0, 32)
	plain, _, _ := strings.Cut(name, "(")
	for _, r := range table {
		if notNumber != nil && r.Name != plain {
			continue
		}
		if r.Name == name {
			return &r, name, nil
		}
		n, m := max(r.N, 1), max(r.M, 1)
		for i := range n * m {
			e := r
			e.Offset += uint32(i/m)*r.Stride + uint32(i%m)*r.Stride2
			if notNumber == nil && uint64(e.Offset) != off {
				continue
			}
			label := r.Name
			switch {
			case m > 1:
				label = fmt.Sprintf("%s(%d,%d)", r.Name, i/m, i%m)
			case n > 1:
				label = fmt.Sprintf("%s(%d)", r.Name, i)
			}
			if notNumber == nil || label == name {
				return &e, label, nil
			}
		}
		if notNumber != nil {
			return nil, "", fmt.Errorf("%s: %s has no such element", name, r.Name)
		}
	}
	if notNumber == nil {
		return nil, "", fmt.Errorf("no register at offset %#x", off)
	}
	return nil, "", fmt.Errorf("%s: no such register%s", name, similar(table, plain))
}

// similar names registers that the user may mean.
func similar(table []reg.Row, name string) string {
	var found []string
	for _, r := range table {
		if strings.Contains(r.Name, strings.ToUpper(name)) && len(found) < 4 {
			found = append(found, r.Name)
		}
	}
	if len(found) == 0 || name == "" {
		return ""
	}
	return "; do you mean " + strings.Join(found, ", ") + "?"
}

// registerNames completes the first argument.
func registerNames(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		for _, r := range registerTable() {
			names = append(names, r.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newDecodeRegister(show func(io.Writer, []decode.Result) error) *cobra.Command {
	return &cobra.Command{
		Use:               "reg NAME|OFFSET HEX",
		Short:             "a register's value, by its kernel name or its offset",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: registerNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := decodeRegister(args[0], args[1])
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), results)
		},
	}
}

func newDecodeOICR(show func(io.Writer, []decode.Result) error) *cobra.Command {
	return &cobra.Command{
		Use:   "oicr HEX",
		Short: "a value of PFINT_OICR, and what the drivers do about it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := decodeRegister("PFINT_OICR", args[0])
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), results)
		},
	}
}
