-- All that handlers wrote down.
SELECT name, message_id, outcome, payload FROM {handled}
