module github.com/incursa/watermill-outbox/forwarder/kafka

go 1.25.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.2
	github.com/incursa/watermill-outbox v0.0.0
	github.com/stretchr/testify v1.12.1
	github.com/twmb/franz-go v1.21.1
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.18.6 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.26 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.13.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/incursa/watermill-outbox => ../..
