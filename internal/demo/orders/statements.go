package main

import _ "embed"

// The statements of the story, with names of tables in braces.
var (
	//go:embed sql/handled_count.sql
	handledCountSQL string

	//go:embed sql/handled_add.sql
	handledAddSQL string

	//go:embed sql/outbox_list.sql
	outboxListSQL string

	//go:embed sql/handled_list.sql
	handledListSQL string

	//go:embed sql/order_list.sql
	orderListSQL string

	//go:embed sql/outbox_count.sql
	outboxCountSQL string

	//go:embed sql/outbox_live.sql
	outboxLiveSQL string

	//go:embed sql/order_add.sql
	orderAddSQL string
)
