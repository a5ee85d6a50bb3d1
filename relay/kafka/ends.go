package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// findEnds sets the begin and the end of each partition.
func (l *life) findEnds(ctx context.Context, topics map[string]*topic) (map[string]error, error) {
	begins := map[string]error{}
	err := l.listOffsets(ctx, topics, begins, earliest, readUncommitted, func(p *partition, offset int64) { p.begin = offset })
	if err != nil {
		return nil, err
	}
	errs, err := l.awaitMarks(ctx, topics)
	maps.Copy(errs, begins)
	return errs, err
}

// awaitMarks waits until all records can be read, and sets the end of each partition: Kafka
// acknowledges a commit before it has marked the records as committed in each partition. A
// topic with a transaction that does not end gets an error, since the records behind its
// first one cannot be read.
func (l *life) awaitMarks(ctx context.Context, topics map[string]*topic) (map[string]error, error) {
	errs, highest := map[string]error{}, map[*partition]int64{}
	err := l.listOffsets(ctx, topics, errs, latest, readUncommitted, func(p *partition, offset int64) { highest[p] = offset })
	left := maps.Clone(topics)
	for began := time.Now(); err == nil; err = pause(ctx) {
		if err = l.listOffsets(ctx, left, errs, latest, readCommitted, func(p *partition, offset int64) { p.end = offset }); err != nil {
			break
		}
		maps.DeleteFunc(left, func(name string, t *topic) bool {
			return errs[name] != nil || !slices.ContainsFunc(t.partitions, func(p *partition) bool { return p.end < highest[p] })
		})
		if len(left) == 0 {
			break
		}
		for name, t := range left {
			if err := l.endForgotten(ctx, t); err != nil {
				errs[name] = err
			} else if time.Since(began) > l.timeout {
				errs[name] = refused("topic "+name+" has an open transaction, and the records behind it cannot be read", hangs)
			}
		}
	}
	return errs, err
}

const hangs = "Another program writes to the topic, or Kafka has forgotten a transaction when a server crashed: " +
	"kafka-transactions.sh find-hanging lists it, and abort ends it. The relay ends its own if the user may Alter the cluster."

// endForgotten ends a transaction of this transactional id that the coordinator takes for
// complete and that is still open in a partition. When the last replica of a partition
// crashes between the commit and the mark in the partition, the coordinator finds
// no leader for the partition, takes it for deleted, and never marks it. Nothing that was
// acknowledged is in such a transaction, since a write waits for the marks.
func (l *life) endForgotten(ctx context.Context, t *topic) error {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{l.id}
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil || len(resp.TransactionStates) != 1 || resp.TransactionStates[0].ErrorCode != 0 {
		return nil // it is asked again until the time is over
	}
	state := resp.TransactionStates[0]
	if !slices.Contains([]string{"Empty", "CompleteCommit", "CompleteAbort"}, state.State) {
		return nil // the coordinator is about to mark it
	}
	for _, p := range t.partitions {
		if err := l.endForgottenIn(ctx, t, p, state.ProducerID, state.ProducerEpoch); err != nil {
			return err
		}
	}
	return nil
}

func (l *life) endForgottenIn(ctx context.Context, t *topic, p *partition, id int64, epoch int16) error {
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = t.name, []int32{p.number}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, l.client.Broker(int(p.leader)))
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil // it is asked again until the time is over
	}
	for _, producer := range resp.Topics[0].Partitions[0].ActiveProducers {
		if producer.ProducerID != id || producer.CurrentTxnStartOffset < 0 || producer.ProducerEpoch >= int32(epoch) {
			continue
		}
		marker := kmsg.NewWriteTxnMarkersRequestMarker()
		marker.ProducerID, marker.ProducerEpoch = id, int16(producer.ProducerEpoch)
		marker.CoordinatorEpoch = max(producer.CoordinatorEpoch, 0) // it is -1 before the first mark
		mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		mt.Topic, mt.Partitions = t.name, []int32{p.number}
		marker.Topics = append(marker.Topics, mt)
		write := kmsg.NewPtrWriteTxnMarkersRequest()
		write.Markers = append(write.Markers, marker)
		if err := abort(ctx, l, p, write); err != nil {
			return refused(fmt.Sprintf("topic %s has a transaction that Kafka has forgotten: %v", t.name, err), hangs)
		}
	}
	return nil
}

func abort(ctx context.Context, l *life, p *partition, write *kmsg.WriteTxnMarkersRequest) error {
	resp, err := write.RequestWith(ctx, l.client.Broker(int(p.leader)))
	if err != nil {
		return err
	}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
