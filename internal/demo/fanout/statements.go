package main

import _ "embed"

// The statements of the story.
var (
	//go:embed sql/arrived_list.sql
	arrivedListSQL string
)
