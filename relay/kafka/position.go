package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// place is an offset of a partition, and the epoch of the leader that has written the record
// before it. A partition that has lost this record, and has others at its offsets since, has
// no such offset of this epoch.
type place struct {
	offset int64
	epoch  int32 // noEpoch: unknown
}

const noEpoch = -1

// A position is the places of partitions, like 0:120:7,1:99. One without an epoch is not
// compared with the partition.
func formatPosition(places map[int32]place) string {
	var parts []string
	for _, number := range slices.Sorted(maps.Keys(places)) {
		part := fmt.Sprintf("%d:%d", number, places[number].offset)
		if epoch := places[number].epoch; epoch != noEpoch {
			part += fmt.Sprintf(":%d", epoch)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

func parsePosition(text string) (map[int32]place, error) {
	places := map[int32]place{}
	if text == "" {
		return places, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		var numbers []int64
		for field := range strings.SplitSeq(part, ":") {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil || n < 0 {
				return nil, badPosition(text)
			}
			numbers = append(numbers, n)
		}
		if len(numbers) == 2 {
			numbers = append(numbers, noEpoch)
		}
		if len(numbers) != 3 {
			return nil, badPosition(text)
		}
		places[int32(numbers[0])] = place{numbers[1], int32(numbers[2])}
	}
	return places, nil
}

func badPosition(text string) error {
	return invalid("the position "+strconv.Quote(text)+" is not one of Kafka", "Positions come from ReadBack or from Read.")
}

func (t *topic) idText() string { return base64.RawURLEncoding.EncodeToString(t.id[:]) }

// placesOf returns the places of a position of a source in a topic. Those of another topic
// with the same name are refused.
func (t *topic) placesOf(position string) (map[int32]place, error) {
	if position == "" {
		return map[int32]place{}, nil
	}
	id, places, _ := strings.Cut(position, "/")
	if id != t.idText() {
		return nil, refused("topic "+t.name+" is not the one of the position: it was deleted and made again", otherTopic)
	}
	return parsePosition(places)
}

// Where the header of a batch of records has its fields.
const (
	batchStart      = 0 // the offset of the first record
	batchLength     = 8 // of what follows
	batchEpoch      = 12
	batchMagic      = 16
	batchLastDelta  = 23
	batchHeader     = 27
	batchBeforeBody = 12
)

// epochBefore returns the epoch of the batch that ends before an offset: its records may be
// marks of a transaction, or aborted, and then the client returns none of them.
func epochBefore(batches []byte, offset int64) int32 {
	epoch := int32(noEpoch)
	for len(batches) >= batchHeader && batches[batchMagic] >= 2 {
		last := int64(binary.BigEndian.Uint64(batches[batchStart:])) + int64(binary.BigEndian.Uint32(batches[batchLastDelta:]))
		if last >= offset {
			break
		}
		epoch = int32(binary.BigEndian.Uint32(batches[batchEpoch:]))
		length := batchBeforeBody + int(binary.BigEndian.Uint32(batches[batchLength:]))
		batches = batches[min(length, len(batches)):]
	}
	return epoch
}
