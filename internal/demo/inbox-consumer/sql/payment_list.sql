-- The messages that caused payments.
SELECT message FROM {payments}
