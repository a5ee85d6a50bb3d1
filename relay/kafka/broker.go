package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// broker is a connection to Kafka.
type broker struct {
	client  *kgo.Client
	timeout time.Duration
}

// topic is a topic that exists.
type topic struct {
	name       string
	id         [16]byte
	partitions []*partition
	limit      int   // the largest batch of records in bytes
	compared   bool  // with the events of a batch under lead
	lead       int64 // of the relay for which compared and highest hold
	highest    int64 // id at the ends of its partitions
}

// partition is a partition of a topic. Committed records have the offsets from begin to
// before end.
type partition struct {
	number, leader int32
	begin, end     int64
}

// find returns the topics with these names that exist, and the errors of others. A topic
// that is neither returned nor has an error does not exist. Without names it returns all.
func (b broker) find(ctx context.Context, names []string) (map[string]*topic, map[string]error, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return nil, nil, fmt.Errorf("read the topics: %w", err)
	}
	topics, errs := map[string]*topic{}, map[string]error{}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		name := *t.Topic
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		case err != nil:
			errs[name] = explain(fmt.Errorf("topic %s: %w", name, err))
		default:
			topics[name], err = newTopic(name, t)
			if err != nil {
				delete(topics, name)
				errs[name] = err
			}
		}
	}
	return topics, errs, nil
}

func newTopic(name string, t kmsg.MetadataResponseTopic) (*topic, error) {
	found := &topic{name: name, id: t.TopicID, limit: usualLimit}
	for _, p := range t.Partitions {
		if p.Leader < 0 {
			return nil, fmt.Errorf("partition %d of topic %s has no leader", p.Partition, name)
		}
		found.partitions = append(found.partitions, &partition{number: p.Partition, leader: p.Leader})
	}
	return found, nil
}

// usualLimit is the largest batch that Kafka accepts unless it is configured otherwise.
const usualLimit = 1 << 20

const limitSetting = "max.message.bytes"

// readLimits reads the largest batch of each topic. If Kafka does not allow that, the usual
// limit is taken.
func (b broker) readLimits(ctx context.Context, topics map[string]*topic) error {
	if len(topics) == 0 {
		return nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for name := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{limitSetting}
		req.Resources = append(req.Resources, r)
	}
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return fmt.Errorf("read the settings of the topics: %w", err)
	}
	for _, r := range resp.Resources {
		t := topics[r.ResourceName]
		if t == nil || r.ErrorCode != 0 {
			continue
		}
		for _, c := range r.Configs {
			if c.Name != limitSetting || c.Value == nil {
				continue
			}
			if limit, err := strconv.Atoi(*c.Value); err == nil {
				t.limit = limit
			}
		}
	}
	return nil
}

const (
	latest   = -1
	earliest = -2

	readUncommitted = 0
	readCommitted   = 1
)

// listOffsets asks for an offset of each partition.
func (b broker) listOffsets(
	ctx context.Context, topics map[string]*topic, errs map[string]error, timestamp int64, isolation int8, assign func(p *partition, offset int64),
) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = -1, isolation, int32(b.timeout.Milliseconds())
	for name, t := range topics {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = name
		for _, p := range t.partitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p.number, timestamp
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return fmt.Errorf("find the ends of the topics: %w", err)
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				errs[rt.Topic] = explain(fmt.Errorf("find the end of partition %d of topic %s: %w", rp.Partition, rt.Topic, err))
				continue
			}
			assign(topics[rt.Topic].partition(rp.Partition), rp.Offset)
		}
	}
	return nil
}

// pause waits a moment before Kafka is asked again.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

func (t *topic) partition(number int32) *partition {
	for _, p := range t.partitions {
		if p.number == number {
			return p
		}
	}
	return &partition{number: number} // Kafka answered with a partition that was not asked for
}

// fetchBytes is how much of a partition, and of all together, one request reads.
const fetchBytes = 8 << 20

// want asks for the records of a partition from an offset on.
type want struct {
	topic     *topic
	partition *partition
	from      place
}

// page has the committed records that Kafka has returned for a want. The next page begins at next, behind
// records that are no events of anybody, such as the marks of transactions.
type page struct {
	want
	records  []*kgo.Record
	next     place
	diverges bool // the partition has other records than those before the want
	err      error
}

// poll asks a node for records of some partitions, and waits until it has any. Each partition
// returns up to bytes, or a single batch of records.
func (b broker) poll(ctx context.Context, node int32, wants []want, bytes int32, wait time.Duration) ([]page, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = int32(wait.Milliseconds()), 1, fetchBytes, readCommitted
	wanted := map[[16]byte]map[int32]want{}
	for _, w := range wants {
		if wanted[w.topic.id] == nil {
			wanted[w.topic.id] = map[int32]want{}
		}
		wanted[w.topic.id][w.partition.number] = w
	}
	for id, partitions := range wanted {
		rt := kmsg.NewFetchRequestTopic()
		rt.TopicID = id
		for number, w := range partitions {
			rt.Topic = w.topic.name
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.LastFetchedEpoch, rp.PartitionMaxBytes = number, w.from.offset, w.from.epoch, bytes
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, b.client.Broker(int(node)))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	var pages []page
	for _, rt := range resp.Topics {
		for i := range rt.Partitions {
			if w, asked := wanted[rt.TopicID][rt.Partitions[i].Partition]; asked {
				pages = append(pages, w.process(&rt.Partitions[i]))
			}
		}
	}
	return pages, nil
}

func (w want) process(reply *kmsg.FetchResponseTopicPartition) page {
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: w.from.offset, IsolationLevel: kgo.ReadCommitted(), Topic: w.topic.name, Partition: w.partition.number,
	}, reply, kgo.DefaultDecompressor(), nil)
	if read.Err != nil {
		read.Err = fmt.Errorf("read partition %d of topic %s: %w", w.partition.number, w.topic.name, read.Err)
	}
	at := w.from
	if next != at.offset {
		at = place{next, epochBefore(reply.RecordBatches, next)}
	}
	return page{w, read.Records, at, reply.DivergingEpoch.EndOffset >= 0, read.Err}
}

// fetch reads the committed records of a partition with the offsets from to before upto.
func (b broker) fetch(ctx context.Context, t *topic, p *partition, from, upto int64) ([]*kgo.Record, error) {
	var records []*kgo.Record
	for from < upto {
		pages, err := b.poll(ctx, p.leader, []want{{t, p, place{from, noEpoch}}}, fetchBytes, b.timeout/2)
		switch {
		case err != nil:
		case len(pages) != 1:
			err = fmt.Errorf("read partition %d of topic %s: the reply has no such partition", p.number, t.name)
		case pages[0].err != nil:
			err = pages[0].err
		case pages[0].next.offset == from:
			err = fmt.Errorf("read partition %d of topic %s: kafka returned nothing, and the partition has more", p.number, t.name)
		}
		if err != nil {
			return nil, err
		}
		for _, r := range pages[0].records {
			if r.Offset < upto {
				records = append(records, r)
			}
		}
		from = pages[0].next.offset
	}
	return records, nil
}

// pages of a partition that is read back grow, since mostly its end suffices. They stop
// growing when they are as large as a reply, so that large events do not fill the memory.
const firstPage, lastPage = 64, 1024

// back visits the committed records before an offset of a partition, the last one first,
// until visit returns false.
func (b broker) back(ctx context.Context, t *topic, p *partition, before int64, visit func(*kgo.Record) bool) error {
	page := int64(firstPage)
	for before > p.begin {
		from := max(p.begin, before-page)
		records, err := b.fetch(ctx, t, p, from, before)
		if err != nil {
			return err
		}
		for i := range records {
			if !visit(records[len(records)-1-i]) {
				return nil
			}
		}
		before = from
		if sizeOf(records) < fetchBytes {
			page = min(2*page, lastPage)
		}
	}
	return nil
}

func sizeOf(records []*kgo.Record) (bytes int) {
	for _, r := range records {
		bytes += size(r)
	}
	return bytes
}
