package main

import _ "embed"

// The statements of the story, with names of tables in braces.
var (
	//go:embed sql/workflow_begin.sql
	workflowBeginSQL string

	//go:embed sql/workflow_end.sql
	workflowEndSQL string

	//go:embed sql/workflow_list.sql
	workflowListSQL string
)
