// Package shared is what replicas share in Redis: how often each user may ask, and what is read often. The service is right
// without it: while Redis is away, each replica limits for itself and reads from the database.
package shared

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/incursa/watermill-outbox/examples/event-registration/metrics"
)

//go:embed limit.lua
var limitScript string

//go:embed put.lua
var putScript string

const (
	// timeout is how long a request waits for Redis before it goes on without it.
	timeout = 100 * time.Millisecond

	// pause is how long nothing asks Redis after a call has failed.
	pause = time.Second
)

// A Limiter says whether a user may ask now, and if not, after how long.
type Limiter interface {
	Allow(ctx context.Context, user string) (ok bool, after time.Duration)
}

// Config configures a Redis.
type Config struct {
	// Rate is how many requests a second each user may make, and Burst how many at once.
	Rate, Burst float64

	// TTL is how long what is cached is kept. Defaults to 2 s.
	TTL time.Duration

	// Fallback limits while Redis is away. Required.
	Fallback Limiter

	// Metrics counts what failed. Required.
	Metrics *metrics.Metrics
}

// Redis is a Limiter and a cache.
type Redis struct {
	client     *redis.Client
	config     Config
	limit, put *redis.Script
	away       atomic.Int64 // until when Redis is left alone, in ns
}

// Open returns a Redis at a URL, redis://…. It connects when it is used.
func Open(url string, config Config) (*Redis, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	if config.TTL == 0 {
		config.TTL = 2 * time.Second
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = timeout, timeout, timeout, timeout
	options.MaxRetries, options.DialerRetries = 1, 1
	return &Redis{client: redis.NewClient(options), config: config, limit: redis.NewScript(limitScript), put: redis.NewScript(putScript)}, nil
}

// Close ends the connections.
func (r *Redis) Close() error { return r.client.Close() }

// Allow takes a token from the user's bucket, which all replicas share.
func (r *Redis) Allow(ctx context.Context, user string) (bool, time.Duration) {
	if r.paused() {
		return r.config.Fallback.Allow(ctx, user)
	}
	answer, err := r.limit.Run(ctx, r.client, []string{"limit:" + user}, r.config.Rate, r.config.Burst).Int64Slice()
	if err != nil || len(answer) != 2 {
		r.failed(ctx, "limit")
		return r.config.Fallback.Allow(ctx, user)
	}
	return answer[0] == 1, time.Duration(answer[1]) * time.Millisecond
}

// Get returns what is cached under a key.
func (r *Redis) Get(ctx context.Context, key string) ([]byte, bool) {
	if r.paused() {
		r.config.Metrics.CacheRead(false)
		return nil, false
	}
	value, err := r.client.HGet(ctx, "cache:"+key, "value").Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.failed(ctx, "cache")
	}
	r.config.Metrics.CacheRead(err == nil)
	return value, err == nil
}

// Put caches a value, unless there is one of a higher version.
func (r *Redis) Put(ctx context.Context, key string, version int64, value []byte) {
	if r.paused() {
		return
	}
	err := r.put.Run(ctx, r.client, []string{"cache:" + key}, strconv.FormatInt(version, 10), value, r.config.TTL.Milliseconds()).Err()
	if err != nil {
		r.failed(ctx, "cache")
	}
}

func (r *Redis) paused() bool { return time.Now().UnixNano() < r.away.Load() }

// failed counts an error and begins a pause, unless it is the client that has gone.
func (r *Redis) failed(ctx context.Context, use string) {
	if ctx.Err() == nil {
		r.config.Metrics.RedisFailed(use)
		r.away.Store(time.Now().Add(pause).UnixNano())
	}
}
