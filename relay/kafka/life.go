package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// life is a producer with an epoch of the transactional id. While it has the epoch, no
// other sink of the relay writes. It ends with the first error: a client that is not sure
// of its epoch could ask for the next one, and so take the lead from the sink that has it.
type life struct {
	broker
	config Config
	names  names
	id     string // the transactional id
	source string
	lead   int64 // the newest lead that it has written for

	mu     sync.Mutex
	topics map[string]*topic // by name
}

// transactionTimeout is how long Kafka keeps a transaction of a relay that has died, and
// consumers wait behind it, unless another process takes the lead.
const transactionTimeout = time.Minute

// begin returns a producer with an epoch for a log and a namespace. A new lead gets a new
// epoch.
func (s *Sink) begin(ctx context.Context, log, namespace string, lead int64) (*life, error) {
	source := relay.Source(log, namespace)
	if l := s.life; l != nil && l.source == source && lead <= l.lead {
		return l, nil
	}
	s.end()
	l := &life{config: s.config, names: names{s.config.Prefix, namespace}, source: source, lead: lead, topics: map[string]*topic{}}
	l.id = l.names.all() + s.config.Relay + "." + log
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.TransactionalID(l.id), kgo.TransactionTimeout(transactionTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchMaxBytesFn(l.limitOf), kgo.MaxBufferedBytes(64 << 20),
		kgo.ProduceRequestTimeout(s.config.Timeout), kgo.MetadataMinAge(100 * time.Millisecond),
	}, s.options...)...)
	if err != nil {
		return nil, fmt.Errorf("open kafka: %w", err)
	}
	l.broker = broker{client, s.config.Timeout}
	s.life = l
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	err = client.Ping(ctx) // its error names the cause, when the server is down
	if err == nil {
		_, _, err = client.ProducerID(ctx)
	}
	if err != nil {
		s.end()
		return nil, explain(fmt.Errorf("connect to kafka: %w", err))
	}
	return l, nil
}

// end closes the connections of a life. Kafka aborts its transaction when the next begins.
func (s *Sink) end() {
	if s.life != nil {
		s.life.client.Close()
		s.life = nil
	}
}

func (l *life) limitOf(name string) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.topics[name]; t != nil {
		return int32(t.limit)
	}
	return usualLimit
}

// prepare finds or makes the topics of streams, and compares events with those that the
// topics have. A stream that cannot be written alone gets an error.
func (l *life) prepare(ctx context.Context, batch posthorn.SinkBatch, streams []*streamBatch) error {
	l.lead = max(l.lead, batch.Lead)
	var look []*streamBatch
	for _, b := range streams {
		b.topic = l.topics[b.name]
		if t := b.topic; t == nil || !t.compared || t.lead != batch.Lead || relay.LowestID(b.events) <= t.highest {
			look = append(look, b)
		}
	}
	if len(look) > 0 {
		if err := l.look(ctx, batch, look); err != nil {
			return err
		}
	}
	for _, b := range streams {
		if b.err == nil {
			b.makeRecords(l.source)
		}
	}
	return nil
}

func (l *life) look(ctx context.Context, batch posthorn.SinkBatch, streams []*streamBatch) error {
	var wanted []string
	for _, b := range streams {
		wanted = append(wanted, b.name)
	}
	topics, errs, err := l.ensure(ctx, wanted)
	if err != nil {
		return err
	}
	more, err := l.findEnds(ctx, topics)
	if err != nil {
		return err
	}
	for name, err := range more {
		errs[name] = err
	}
	places := make(chan struct{}, comparedAtOnce)
	var all sync.WaitGroup
	for _, b := range streams {
		if b.err = errs[b.name]; b.err != nil {
			continue
		}
		b.topic = topics[b.name]
		if known := l.topics[b.name]; known != nil {
			b.topic.highest = known.highest
		}
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			b.err = l.compare(ctx, batch, b)
		})
	}
	all.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range streams {
		if b.err != nil {
			delete(l.topics, b.name)
		} else {
			l.topics[b.name] = b.topic
		}
	}
	return nil
}

// forget makes the next batch of a topic be compared with its ends.
func (l *life) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.topics, name)
}

// comparedAtOnce is how many topics are read at once.
const comparedAtOnce = 16

// ensure finds topics, and makes those that do not exist unless they must.
func (l *life) ensure(ctx context.Context, wanted []string) (map[string]*topic, map[string]error, error) {
	made := map[string]error{}
	for began := time.Now(); ; {
		topics, errs, err := l.find(ctx, wanted)
		if err != nil {
			return nil, nil, err
		}
		var missing []string
		for _, name := range wanted {
			if topics[name] != nil || errs[name] != nil {
				continue
			}
			if err, tried := made[name]; tried && (err != nil || time.Since(began) > l.timeout) {
				errs[name] = err
				if err == nil {
					errs[name] = fmt.Errorf("topic %s was made, and Kafka does not show it", name)
				}
				continue
			}
			if l.config.TopicsMustExist {
				errs[name] = refused("topic "+name+" does not exist", "Make it, or allow the relay to make topics: leave create=false out of the URL.")
				continue
			}
			missing = append(missing, name)
		}
		if len(missing) == 0 {
			return topics, errs, l.readLimits(ctx, topics)
		}
		if err := l.make(ctx, missing, made); err != nil {
			return nil, nil, err
		}
		if err := pause(ctx); err != nil { // the controller has the topic, and the server soon
			return nil, nil, err
		}
	}
}

// largestBatch is the limit of the topics that sinks make. An event of the default size
// limit, 1 MiB, would not fit into the usual one.
const largestBatch = "4194304"

// make makes topics that were not made before, and notes the result of each.
func (l *life) make(ctx context.Context, missing []string, made map[string]error) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(l.timeout.Milliseconds())
	for _, name := range missing {
		if _, tried := made[name]; tried {
			continue
		}
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(l.config.Partitions), -1
		settings := map[string]string{limitSetting: largestBatch}
		if l.config.Replicas > 0 {
			t.ReplicationFactor = int16(l.config.Replicas)
		}
		if l.config.Replicas >= 3 {
			settings["min.insync.replicas"] = "2"
		}
		for name, value := range settings {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = name, kmsg.StringPtr(value)
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return fmt.Errorf("make topics: %w", err)
	}
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case err == nil, errors.Is(err, kerr.TopicAlreadyExists): // another process made it
			made[t.Topic] = nil
		default:
			if t.ErrorMessage != nil {
				err = fmt.Errorf("%w: %s", err, *t.ErrorMessage)
			}
			made[t.Topic] = explain(fmt.Errorf("make topic %s: %w", t.Topic, err))
		}
	}
	return nil
}
