// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// lengthLen is the length before each frame of a stream: 4 bytes, big endian,
// without itself (QEMU's net/stream_data.c:net_stream_data_receive).
const lengthLen = 4

// ErrFrameTooLong is the end of a stream whose peer announced a frame above
// MaxFrame. QEMU too ends the connection then (net/net.c:net_fill_rstate).
var ErrFrameTooLong = errors.New("frame is too long")

// appendRecord appends a frame as a stream carries it.
func appendRecord(b, frame []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(frame)))
	return append(b, frame...)
}

// decodeStream hands the frames of a stream to deliver, which may use each
// during the call, and returns what ended the stream: nil at an end between
// frames. It holds one buffer, whatever the peer announces.
func decodeStream(r io.Reader, deliver func(frame []byte)) error {
	buf := make([]byte, 2*(lengthLen+MaxFrame))
	start, end := 0, 0
	for {
		for end-start >= lengthLen {
			n := binary.BigEndian.Uint32(buf[start:])
			if n > MaxFrame {
				return fmt.Errorf("%w: %d bytes", ErrFrameTooLong, n)
			}
			next := start + lengthLen + int(n)
			if next > end {
				break
			}
			deliver(buf[start+lengthLen : next : next])
			start = next
		}
		if start == end {
			start, end = 0, 0
		} else if len(buf)-start < lengthLen+MaxFrame {
			end = copy(buf, buf[start:end])
			start = 0
		}
		n, err := r.Read(buf[end:])
		end += n
		switch {
		case err == nil || n > 0:
		case errors.Is(err, io.EOF) && start == end:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
}
