package main

import _ "embed"

// The statements of the story.
var (
	//go:embed sql/shipped_list.sql
	shippedListSQL string

	//go:embed sql/outbox_open.sql
	outboxOpenSQL string

	//go:embed sql/shipped_add.sql
	shippedAddSQL string
)
