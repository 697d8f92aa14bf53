package main

import _ "embed"

// The statements of the story, with names of tables in braces.
var (
	//go:embed sql/shipment_add.sql
	shipmentAddSQL string

	//go:embed sql/payment_add.sql
	paymentAddSQL string

	//go:embed sql/payment_list.sql
	paymentListSQL string

	//go:embed sql/shipment_list.sql
	shipmentListSQL string
)
