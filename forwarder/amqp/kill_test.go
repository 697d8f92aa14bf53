package amqp_test

func runForwarderProcess() {}
