package brokers_test

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	natsmill "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	sqlmill "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
)

// redelivery is how long a message may take, where the broker has a limit.
const redelivery = time.Second

var quiet = watermill.NopLogger{}

// Endpoints are a publisher and a subscriber of one process.
type endpoints struct {
	pub message.Publisher
	sub message.Subscriber
	db  *sql.DB // of both, or nil
}

// close closes them. The server may be away.
func (e endpoints) close() {
	_, _ = e.pub.Close(), e.sub.Close()
	if e.db != nil {
		_ = e.db.Close()
	}
}

// A link says how to reach a broker, from any process.
type link struct {
	Broker  string // the name of its row
	Address string

	inProcess *gochannel.GoChannel
	amqp      *amqp091.Config // of connections that the test cuts
}

// open makes a publisher and a subscriber, with the settings that docs/watermill.md recommends.
func (l link) open() (endpoints, error) {
	switch l.Broker {
	case "gochannel":
		shared := notClosed{l.inProcess}
		return endpoints{pub: shared, sub: shared}, nil
	case "Redis Streams":
		return l.openRedis()
	case "PostgreSQL":
		return l.openSQL()
	case "NATS":
		return l.openNATS()
	case "RabbitMQ":
		return l.openRabbit()
	}
	return endpoints{}, fmt.Errorf("no broker %q", l.Broker)
}

// notClosed is shared by all consumers of the process. Each closes it.
type notClosed struct{ *gochannel.GoChannel }

func (notClosed) Close() error { return nil }

func (l link) openRedis() (e endpoints, err error) {
	client := func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: l.Address}) }
	e.pub, err = redisstream.NewPublisher(redisstream.PublisherConfig{Client: client()}, quiet)
	if err != nil {
		return e, err
	}
	e.sub, err = redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client(), ConsumerGroup: "billing",
		MaxIdleTime: redelivery, ClaimInterval: redelivery / 4, NackResendSleep: 10 * time.Millisecond,
		DisableIndefiniteInitialBlock: true,
	}, quiet)
	return e, err
}

func (l link) openSQL() (e endpoints, err error) {
	config, err := pgx.ParseConfig(l.Address)
	if err != nil {
		return e, err
	}
	e.db = stdlib.OpenDB(*config)
	db := sqlmill.BeginnerFromStdSQL(e.db)
	e.pub, err = sqlmill.NewPublisher(db, sqlmill.PublisherConfig{
		SchemaAdapter: sqlmill.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, quiet)
	if err != nil {
		return e, err
	}
	e.sub, err = sqlmill.NewSubscriber(db, sqlmill.SubscriberConfig{
		ConsumerGroup: "billing", SchemaAdapter: sqlmill.DefaultPostgreSQLSchema{}, OffsetsAdapter: sqlmill.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
		PollInterval:     50 * time.Millisecond, ResendInterval: 10 * time.Millisecond, RetryInterval: 100 * time.Millisecond,
	}, quiet)
	return e, err
}

func (l link) openNATS() (e endpoints, err error) {
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond)}
	e.pub, err = natsmill.NewPublisher(natsmill.PublisherConfig{
		URL: l.Address, NatsOptions: options, JetStream: natsmill.JetStreamConfig{AutoProvision: true},
	}, quiet)
	if err != nil {
		return e, err
	}
	e.sub, err = natsmill.NewSubscriber(natsmill.SubscriberConfig{
		URL: l.Address, NatsOptions: options, QueueGroupPrefix: "billing", AckWaitTimeout: time.Minute,
		JetStream: natsmill.JetStreamConfig{
			AutoProvision: true, DurablePrefix: "billing",
			DurableCalculator: func(prefix, topic string) string { return prefix + "_" + topic },
			SubscribeOptions:  []nats.SubOpt{nats.AckExplicit(), nats.DeliverAll(), nats.AckWait(redelivery), nats.MaxAckPending(2)},
		},
	}, quiet)
	return e, err
}

func (l link) openRabbit() (e endpoints, err error) {
	config := amqp.NewDurableQueueConfig(l.Address)
	config.Publish.ConfirmDelivery = true
	config.Connection.AmqpConfig = l.amqp
	config.Connection.Reconnect = &amqp.ReconnectConfig{BackoffInitialInterval: 100 * time.Millisecond, BackoffMultiplier: 1.2, BackoffMaxInterval: time.Second}
	if e.pub, err = amqp.NewPublisher(config, quiet); err != nil {
		return e, err
	}
	e.sub, err = amqp.NewSubscriber(config, quiet)
	return e, err
}

// initialize makes a topic, so that what is published waits for its consumers. A group of Redis
// begins with the oldest message, and a gochannel has its consumers before.
func (e endpoints) initialize(topic string) error {
	if s, ok := e.sub.(message.SubscribeInitializer); ok {
		return s.SubscribeInitialize(topic)
	}
	return nil
}
