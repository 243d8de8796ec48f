// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Type tells what a frame carries.
type Type uint8

// Frame types. The direction is named from the side that sends it.
const (
	TypeHello     Type = 1 + iota // guest: the agent runs; Hello
	TypeReady                     // guest: modules loaded, devices waited for; Ready
	TypeStart                     // host: run a command; Start
	TypeStarted                   // guest: the command runs; no payload
	TypeExit                      // guest: the command ended and all its output was sent; Exit
	TypeSignal                    // host: send a signal to the command; Signal
	TypeResize                    // host: the terminal has a new size; Resize
	TypeLog                       // guest: one line for the launcher's log; Log
	TypePowerOff                  // host: end the machine; no payload
	TypeData                      // stream bytes
	TypeCredit                    // reader of a stream: this many more bytes may come; uint32
	TypeEOF                       // writer of a stream: nothing more will come
	TypeBroken                    // reader of a stream: send nothing more
	TypeListening                 // guest: the command listens, see Start.AwaitListen; no payload
	typeEnd
)

// Stream numbers of a command, and of command 0 (the machine itself).
const (
	StreamNone   uint8 = 0
	StreamStdin  uint8 = 1 // host to guest
	StreamStdout uint8 = 2 // guest to host; the terminal's output when there is one
	StreamStderr uint8 = 3 // guest to host
	StreamKernel uint8 = 4 // guest to host, command 0: kernel log, as dmesg --raw
)

const (
	headerSize = 8

	// MaxPayload bounds a stream frame's payload: with its header it is what
	// the guest's port driver takes in one write
	// (virtio_console.c:port_fops_write cuts at 32 KiB).
	MaxPayload = 32<<10 - headerSize

	// MaxMessage bounds the payload of a message: a command line has to fit.
	MaxMessage = 1 << 20

	// Window is how many bytes of a stream may be under way unread.
	Window = 256 << 10
)

// ErrProtocol is returned when the other side breaks the rules of this package.
var ErrProtocol = errors.New("guest channel: protocol violated")

// Frame is one frame. Payload is valid until the handler it is given to returns.
type Frame struct {
	Type    Type
	Stream  uint8
	Command uint16
	Payload []byte
}

// appendFrame appends f in wire form to dst.
func appendFrame(dst []byte, f Frame) []byte {
	dst = append(dst, byte(f.Type), f.Stream)
	dst = binary.LittleEndian.AppendUint16(dst, f.Command)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Payload)))
	return append(dst, f.Payload...)
}

// frameReader reads frames. Its buffer is as large as the largest frame seen.
type frameReader struct {
	r   io.Reader
	buf []byte
}

// next reads one frame, valid until the following call. io.EOF means that the
// pipe ended between two frames.
func (fr *frameReader) next() (Frame, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(fr.r, header[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{
		Type:    Type(header[0]),
		Stream:  header[1],
		Command: binary.LittleEndian.Uint16(header[2:]),
	}
	length := binary.LittleEndian.Uint32(header[4:])
	if f.Type == 0 || f.Type >= typeEnd {
		return Frame{}, fmt.Errorf("%w: frame type %d", ErrProtocol, f.Type)
	}
	limit := uint32(MaxMessage)
	if f.Type == TypeData {
		limit = MaxPayload
	}
	if length > limit {
		return Frame{}, fmt.Errorf("%w: frame of type %d with %d bytes", ErrProtocol, f.Type, length)
	}
	if int(length) > len(fr.buf) {
		fr.buf = make([]byte, max(length, MaxPayload))
	}
	f.Payload = fr.buf[:length]
	if _, err := io.ReadFull(fr.r, f.Payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}
