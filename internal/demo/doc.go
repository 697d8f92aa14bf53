// Package demo holds the stories of make demo: programs that check themselves, and say at the end what was lost, which is
// nothing. They run on embedded SQLite, and most of them on a server, by -dsn. Code to copy is in examples.
//
//	make demo                        orders, a rollback, retries, a poison message, and a worker process that is killed
//	make demo IN=FILE                the same with messages from a file, such as testdata/webhooks.ndjson.gz: a line each,
//	                                 {"topic": "order.placed", "payload": {"order": "7"}}, plain or gzip
//	make demo STORY=fan-in           three workflows, whose next step starts when all messages of the last have ended
//	make demo STORY=fanout           one stream to many destinations, and a dispatcher process that is killed
//	make demo STORY=forward-to-rabbitmq
//	                                 a relay to a RabbitMQ that is stopped and started again
//	make demo STORY=inbox-consumer   a broker that delivers messages several times, and effects that happen once
//	make console                     the web console on four shops with traffic, and one whose database is away
//	make demo STORY=multi-tenant     a database for each tenant; tenants come, go and fail
package demo
