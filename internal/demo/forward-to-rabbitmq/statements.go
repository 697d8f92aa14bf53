package main

import _ "embed"

// The statements of the story.
var (
	//go:embed sql/create.sql
	createSQL string

	//go:embed sql/order_add.sql
	orderAddSQL string

	//go:embed sql/outbox_left.sql
	outboxLeftSQL string
)
